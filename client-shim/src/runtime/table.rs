//! Every entry point of the CUDA runtime's library, in the [form of all doors](crate::doors::table).
//!
//! A runtime's library is that of its major version, so a row is there from the oldest that is served on (12000) or
//! from 13000 on, and up to 13000 where 13.x has it no more or with other arguments. A program that is linked with the
//! library of 12.x is bound to `cudaX_v12` where there is one, else to `cudaX`.

use super::{
    array, capture, copy, device, entry, entry_point, errors, event, function, graph, graph_exec, ipc,
    launch, library, logs, memory, pool, stream, texture,
};
use crate::doors::table::{Address, entry_points, rows_of};

/// The oldest runtime that is served.
pub(crate) const OLDEST: u32 = 12000;
/// The newest.
#[cfg(test)]
pub(crate) const NEWEST: u32 = 13000;

entry_points! {
    /// The entry points, ascending by name.
    static TABLE refusing by entry::not_supported;
    __cudaGetKernel 12000 [launch::get_kernel_of_stub];
    __cudaGetProcAddress 13000 [unsupported];
    __cudaInitModule 12000 [launch::init_module];
    __cudaLaunchKernel 12000..13000 as _v12 / _ptsz 12000 [launch::launch_kernel_12];
    __cudaLaunchKernel 13000 / _ptsz 13000 [launch::launch_kernel];
    __cudaPopCallConfiguration 12000 [launch::pop_call_configuration];
    __cudaPushCallConfiguration 12000 [launch::push_call_configuration];
    __cudaRegisterFatBinary 12000 [launch::register_fat_binary];
    __cudaRegisterFatBinaryEnd 12000 [launch::register_fat_binary_end];
    __cudaRegisterFunction 12000 [launch::register_function];
    __cudaRegisterHostVar 12000 [unsupported];
    __cudaRegisterManagedVar 12000 [launch::register_managed_var];
    __cudaRegisterUnifiedTable 12000 [unsupported];
    __cudaRegisterVar 12000 [launch::register_var];
    __cudaUnregisterFatBinary 12000 [launch::unregister_fat_binary];
    cudaArrayGetInfo 12000 [array::get_info];
    cudaArrayGetMemoryRequirements 12000 [unsupported];
    cudaArrayGetPlane 12000 [unsupported];
    cudaArrayGetSparseProperties 12000 [unsupported];
    cudaChooseDevice 12000 [device::choose_device];
    cudaCreateChannelDesc 12000 [array::create_channel_desc];
    cudaCreateSurfaceObject 12000 [texture::create_surface];
    cudaCreateTextureObject 12000 [texture::create_texture];
    cudaCtxResetPersistingL2Cache 12000 [device::reset_persisting_l2];
    cudaDestroyExternalMemory 12000 [unsupported];
    cudaDestroyExternalSemaphore 12000 [unsupported];
    cudaDestroySurfaceObject 12000 [texture::destroy_surface];
    cudaDestroyTextureObject 12000 [texture::destroy_texture];
    cudaDeviceCanAccessPeer 12000 [device::can_access_peer];
    cudaDeviceDisablePeerAccess 12000 [device::disable_peer_access];
    cudaDeviceEnablePeerAccess 12000 [device::enable_peer_access];
    cudaDeviceFlushGPUDirectRDMAWrites 12000 [unsupported];
    cudaDeviceGetAttribute 12000 [device::get_attribute];
    cudaDeviceGetByPCIBusId 12000 [device::by_pci_bus_id];
    cudaDeviceGetCacheConfig 12000 [device::get_cache_config];
    cudaDeviceGetDefaultMemPool 12000 [pool::get_default];
    cudaDeviceGetGraphMemAttribute 12000 [graph::get_mem_attribute];
    cudaDeviceGetHostAtomicCapabilities 13000 [unsupported];
    cudaDeviceGetLimit 12000 [device::get_limit];
    cudaDeviceGetMemPool 12000 [pool::get_current];
    cudaDeviceGetNvSciSyncAttributes 12000 [unsupported];
    cudaDeviceGetP2PAtomicCapabilities 13000 [unsupported];
    cudaDeviceGetP2PAttribute 12000 [device::p2p_attribute];
    cudaDeviceGetPCIBusId 12000 [device::pci_bus_id];
    cudaDeviceGetSharedMemConfig 12000 [device::get_shared_config];
    cudaDeviceGetStreamPriorityRange 12000 [device::stream_priority_range];
    cudaDeviceGetTexture1DLinearMaxWidth 12000 [device::texture_1d_linear_max_width];
    cudaDeviceGraphMemTrim 12000 [graph::mem_trim];
    cudaDeviceRegisterAsyncNotification 12000 [unsupported];
    cudaDeviceReset 12000 [device::reset];
    cudaDeviceSetCacheConfig 12000 [device::set_cache_config];
    cudaDeviceSetGraphMemAttribute 12000 [graph::set_mem_attribute];
    cudaDeviceSetLimit 12000 [device::set_limit];
    cudaDeviceSetMemPool 12000 [pool::set_current];
    cudaDeviceSetSharedMemConfig 12000 [device::set_shared_config];
    cudaDeviceSynchronize 12000 [device::synchronize];
    cudaDeviceUnregisterAsyncNotification 12000 [unsupported];
    cudaDriverGetVersion 12000 [device::driver_get_version];
    cudaEGLStreamConsumerAcquireFrame 12000 [unsupported];
    cudaEGLStreamConsumerConnect 12000 [unsupported];
    cudaEGLStreamConsumerConnectWithFlags 12000 [unsupported];
    cudaEGLStreamConsumerDisconnect 12000 [unsupported];
    cudaEGLStreamConsumerReleaseFrame 12000 [unsupported];
    cudaEGLStreamProducerConnect 12000 [unsupported];
    cudaEGLStreamProducerDisconnect 12000 [unsupported];
    cudaEGLStreamProducerPresentFrame 12000 [unsupported];
    cudaEGLStreamProducerReturnFrame 12000 [unsupported];
    cudaEventCreate 12000 [event::create];
    cudaEventCreateFromEGLSync 12000 [unsupported];
    cudaEventCreateWithFlags 12000 [event::create_with_flags];
    cudaEventDestroy 12000 [event::destroy];
    cudaEventElapsedTime 12000 [event::elapsed_time];
    cudaEventElapsedTime_v2 12000..13000 [event::elapsed_time];
    cudaEventQuery 12000 [event::query];
    cudaEventRecord 12000 / _ptsz 12000 [event::record];
    cudaEventRecordWithFlags 12000 / _ptsz 12000 [event::record_with_flags];
    cudaEventSynchronize 12000 [event::synchronize];
    cudaExternalMemoryGetMappedBuffer 12000 [unsupported];
    cudaExternalMemoryGetMappedMipmappedArray 12000 [unsupported];
    cudaFree 12000 [memory::free];
    cudaFreeArray 12000 [array::free_array];
    cudaFreeAsync 12000 / _ptsz 12000 [memory::free_async];
    cudaFreeHost 12000 [memory::free_host];
    cudaFreeMipmappedArray 12000 [array::free_mipmapped];
    cudaFuncGetAttributes 12000 [function::get_attributes];
    cudaFuncGetName 12000 [function::get_name];
    cudaFuncGetParamInfo 12000 [function::get_param_info];
    cudaFuncSetAttribute 12000 [function::set_attribute];
    cudaFuncSetCacheConfig 12000 [function::set_cache_config];
    cudaFuncSetSharedMemConfig 12000 [function::set_shared_config];
    cudaGLGetDevices 12000 [unsupported];
    cudaGLMapBufferObject 12000 [unsupported];
    cudaGLMapBufferObjectAsync 12000 [unsupported];
    cudaGLRegisterBufferObject 12000 [unsupported];
    cudaGLSetBufferObjectMapFlags 12000 [unsupported];
    cudaGLSetGLDevice 12000 [unsupported];
    cudaGLUnmapBufferObject 12000 [unsupported];
    cudaGLUnmapBufferObjectAsync 12000 [unsupported];
    cudaGLUnregisterBufferObject 12000 [unsupported];
    cudaGetChannelDesc 12000 [array::get_channel_desc];
    cudaGetDevice 12000 [device::get_device];
    cudaGetDeviceCount 12000 [device::get_device_count];
    cudaGetDeviceFlags 12000 [device::get_device_flags];
    cudaGetDeviceProperties 12000..13000 as _v12 [device::get_device_properties_11];
    cudaGetDeviceProperties 13000 [device::get_device_properties_13];
    cudaGetDeviceProperties_v2 12000..13000 [device::get_device_properties_12];
    cudaGetDriverEntryPoint 12000..13000 as _v12 / _ptsz 12000 [entry_point::get_12];
    cudaGetDriverEntryPoint 13000 / _ptsz 13000 [entry_point::get];
    cudaGetDriverEntryPointByVersion 12000 / _ptsz 12000 [entry_point::get_by_version];
    cudaGetErrorName 12000 [errors::get_error_name];
    cudaGetErrorString 12000 [errors::get_error_string];
    cudaGetExportTable 12000 [unsupported];
    cudaGetFuncBySymbol 12000 [launch::get_func_by_symbol];
    cudaGetKernel 12000 [launch::get_kernel];
    cudaGetLastError 12000 [errors::get_last_error];
    cudaGetMipmappedArrayLevel 12000 [array::mipmapped_level];
    cudaGetSurfaceObjectResourceDesc 12000 [texture::surface_resource];
    cudaGetSymbolAddress 12000 [memory::get_symbol_address];
    cudaGetSymbolSize 12000 [memory::get_symbol_size];
    cudaGetTextureObjectResourceDesc 12000 [texture::texture_resource];
    cudaGetTextureObjectResourceViewDesc 12000 [texture::texture_view];
    cudaGetTextureObjectTextureDesc 12000 [texture::texture_desc];
    cudaGraphAddChildGraphNode 12000 [graph::add_child];
    cudaGraphAddDependencies 12000..13000 as _v12 [graph::add_dependencies_12];
    cudaGraphAddDependencies 13000 [graph::add_dependencies];
    cudaGraphAddDependencies_v2 12000..13000 [graph::add_dependencies];
    cudaGraphAddEmptyNode 12000 [graph::add_empty];
    cudaGraphAddEventRecordNode 12000 [graph::add_event_record];
    cudaGraphAddEventWaitNode 12000 [graph::add_event_wait];
    cudaGraphAddExternalSemaphoresSignalNode 12000 [unsupported];
    cudaGraphAddExternalSemaphoresWaitNode 12000 [unsupported];
    cudaGraphAddHostNode 12000 [graph::add_host];
    cudaGraphAddKernelNode 12000 [graph::add_kernel];
    cudaGraphAddMemAllocNode 12000 [graph::add_mem_alloc];
    cudaGraphAddMemFreeNode 12000 [graph::add_mem_free];
    cudaGraphAddMemcpyNode 12000 [graph::add_memcpy];
    cudaGraphAddMemcpyNode1D 12000 [graph::add_memcpy_1d];
    cudaGraphAddMemcpyNodeFromSymbol 12000 [graph::add_memcpy_from_symbol];
    cudaGraphAddMemcpyNodeToSymbol 12000 [graph::add_memcpy_to_symbol];
    cudaGraphAddMemsetNode 12000 [graph::add_memset];
    cudaGraphAddNode 12000..13000 as _v12 [graph::add_node_12];
    cudaGraphAddNode 13000 [graph::add_node];
    cudaGraphAddNode_v2 12000..13000 [graph::add_node];
    cudaGraphChildGraphNodeGetGraph 12000 [graph::child_get_graph];
    cudaGraphClone 12000 [graph::clone];
    cudaGraphConditionalHandleCreate 12000 [graph::condition_create];
    cudaGraphCreate 12000 [graph::create];
    cudaGraphDebugDotPrint 12000 [graph::debug_dot_print];
    cudaGraphDestroy 12000 [graph::destroy];
    cudaGraphDestroyNode 12000 [graph::destroy_node];
    cudaGraphEventRecordNodeGetEvent 12000 [graph::record_get_event];
    cudaGraphEventRecordNodeSetEvent 12000 [graph::record_set_event];
    cudaGraphEventWaitNodeGetEvent 12000 [graph::wait_get_event];
    cudaGraphEventWaitNodeSetEvent 12000 [graph::wait_set_event];
    cudaGraphExecChildGraphNodeSetParams 12000 [graph_exec::exec_child];
    cudaGraphExecDestroy 12000 [graph_exec::exec_destroy];
    cudaGraphExecEventRecordNodeSetEvent 12000 [graph_exec::exec_event_record];
    cudaGraphExecEventWaitNodeSetEvent 12000 [graph_exec::exec_event_wait];
    cudaGraphExecExternalSemaphoresSignalNodeSetParams 12000 [unsupported];
    cudaGraphExecExternalSemaphoresWaitNodeSetParams 12000 [unsupported];
    cudaGraphExecGetFlags 12000 [graph_exec::exec_get_flags];
    cudaGraphExecHostNodeSetParams 12000 [graph_exec::exec_host];
    cudaGraphExecKernelNodeSetParams 12000 [graph_exec::exec_kernel];
    cudaGraphExecMemcpyNodeSetParams 12000 [graph_exec::exec_memcpy];
    cudaGraphExecMemcpyNodeSetParams1D 12000 [graph_exec::exec_memcpy_1d];
    cudaGraphExecMemcpyNodeSetParamsFromSymbol 12000 [graph_exec::exec_memcpy_from_symbol];
    cudaGraphExecMemcpyNodeSetParamsToSymbol 12000 [graph_exec::exec_memcpy_to_symbol];
    cudaGraphExecMemsetNodeSetParams 12000 [graph_exec::exec_memset];
    cudaGraphExecNodeSetParams 12000 [graph_exec::exec_node_set_params];
    cudaGraphExecUpdate 12000 [graph_exec::exec_update];
    cudaGraphExternalSemaphoresSignalNodeGetParams 12000 [unsupported];
    cudaGraphExternalSemaphoresSignalNodeSetParams 12000 [unsupported];
    cudaGraphExternalSemaphoresWaitNodeGetParams 12000 [unsupported];
    cudaGraphExternalSemaphoresWaitNodeSetParams 12000 [unsupported];
    cudaGraphGetEdges 12000..13000 as _v12 [graph::get_edges_12];
    cudaGraphGetEdges 13000 [graph::get_edges];
    cudaGraphGetEdges_v2 12000..13000 [graph::get_edges];
    cudaGraphGetNodes 12000 [graph::get_nodes];
    cudaGraphGetRootNodes 12000 [graph::get_root_nodes];
    cudaGraphHostNodeGetParams 12000 [graph::host_get_params];
    cudaGraphHostNodeSetParams 12000 [graph::host_set_params];
    cudaGraphInstantiate 12000 [graph_exec::instantiate];
    cudaGraphInstantiateWithFlags 12000 [graph_exec::instantiate];
    cudaGraphInstantiateWithParams 12000 / _ptsz 12000 [graph_exec::instantiate_with_params];
    cudaGraphKernelNodeCopyAttributes 12000..13000 as _v12 [graph::kernel_copy_attributes_12];
    cudaGraphKernelNodeCopyAttributes 13000 [graph::kernel_copy_attributes];
    cudaGraphKernelNodeGetAttribute 12000 [graph::kernel_get_attribute];
    cudaGraphKernelNodeGetParams 12000 [graph::kernel_get_params];
    cudaGraphKernelNodeSetAttribute 12000 [graph::kernel_set_attribute];
    cudaGraphKernelNodeSetParams 12000 [graph::kernel_set_params];
    cudaGraphLaunch 12000 / _ptsz 12000 [graph_exec::launch];
    cudaGraphMemAllocNodeGetParams 12000 [graph::mem_alloc_get_params];
    cudaGraphMemFreeNodeGetParams 12000 [graph::mem_free_get_params];
    cudaGraphMemcpyNodeGetParams 12000 [graph::memcpy_get_params];
    cudaGraphMemcpyNodeSetParams 12000 [graph::memcpy_set_params];
    cudaGraphMemcpyNodeSetParams1D 12000 [graph::memcpy_set_params_1d];
    cudaGraphMemcpyNodeSetParamsFromSymbol 12000 [graph::memcpy_set_params_from_symbol];
    cudaGraphMemcpyNodeSetParamsToSymbol 12000 [graph::memcpy_set_params_to_symbol];
    cudaGraphMemsetNodeGetParams 12000 [graph::memset_get_params];
    cudaGraphMemsetNodeSetParams 12000 [graph::memset_set_params];
    cudaGraphNodeFindInClone 12000 [graph::find_in_clone];
    cudaGraphNodeGetDependencies 12000..13000 as _v12 [graph::get_dependencies_12];
    cudaGraphNodeGetDependencies 13000 [graph::get_dependencies];
    cudaGraphNodeGetDependencies_v2 12000..13000 [graph::get_dependencies];
    cudaGraphNodeGetDependentNodes 12000..13000 as _v12 [graph::get_dependents_12];
    cudaGraphNodeGetDependentNodes 13000 [graph::get_dependents];
    cudaGraphNodeGetDependentNodes_v2 12000..13000 [graph::get_dependents];
    cudaGraphNodeGetEnabled 12000 [graph_exec::get_enabled];
    cudaGraphNodeGetType 12000 [graph::node_get_type];
    cudaGraphNodeSetEnabled 12000 [graph_exec::set_enabled];
    cudaGraphNodeSetParams 12000 [graph::node_set_params];
    cudaGraphReleaseUserObject 12000 [graph::release_object];
    cudaGraphRemoveDependencies 12000..13000 as _v12 [graph::remove_dependencies_12];
    cudaGraphRemoveDependencies 13000 [graph::remove_dependencies];
    cudaGraphRemoveDependencies_v2 12000..13000 [graph::remove_dependencies];
    cudaGraphRetainUserObject 12000 [graph::retain_object];
    cudaGraphUpload 12000 / _ptsz 12000 [graph_exec::upload];
    cudaGraphicsEGLRegisterImage 12000 [unsupported];
    cudaGraphicsGLRegisterBuffer 12000 [unsupported];
    cudaGraphicsGLRegisterImage 12000 [unsupported];
    cudaGraphicsMapResources 12000 [unsupported];
    cudaGraphicsResourceGetMappedEglFrame 12000 [unsupported];
    cudaGraphicsResourceGetMappedMipmappedArray 12000 [unsupported];
    cudaGraphicsResourceGetMappedPointer 12000 [unsupported];
    cudaGraphicsResourceSetMapFlags 12000 [unsupported];
    cudaGraphicsSubResourceGetMappedArray 12000 [unsupported];
    cudaGraphicsUnmapResources 12000 [unsupported];
    cudaGraphicsUnregisterResource 12000 [unsupported];
    cudaGraphicsVDPAURegisterOutputSurface 12000 [unsupported];
    cudaGraphicsVDPAURegisterVideoSurface 12000 [unsupported];
    cudaHostAlloc 12000 [memory::host_alloc];
    cudaHostGetDevicePointer 12000 [memory::host_get_device_pointer];
    cudaHostGetFlags 12000 [memory::host_get_flags];
    cudaHostRegister 12000 [memory::host_register];
    cudaHostUnregister 12000 [memory::host_unregister];
    cudaImportExternalMemory 12000 [unsupported];
    cudaImportExternalSemaphore 12000 [unsupported];
    cudaInitDevice 12000 [device::init_device];
    cudaIpcCloseMemHandle 12000 [ipc::close];
    cudaIpcGetEventHandle 12000 [ipc::get_event];
    cudaIpcGetMemHandle 12000 [ipc::get];
    cudaIpcOpenEventHandle 12000 [ipc::open_event];
    cudaIpcOpenMemHandle 12000 [ipc::open];
    cudaKernelSetAttributeForDevice 12000 [function::set_kernel_attribute];
    cudaLaunchCooperativeKernel 12000 / _ptsz 12000 [launch::launch_cooperative_kernel];
    cudaLaunchCooperativeKernelMultiDevice 12000..13000 [unsupported];
    cudaLaunchHostFunc 12000 / _ptsz 12000 [stream::launch_host_func];
    cudaLaunchKernel 12000..13000 as _v12 / _ptsz 12000 [launch::launch_kernel_12];
    cudaLaunchKernel 13000 / _ptsz 13000 [launch::launch_kernel];
    cudaLaunchKernelExC 12000 / _ptsz 12000 [launch::launch_kernel_exc];
    cudaLibraryEnumerateKernels 12000 [library::enumerate_kernels];
    cudaLibraryGetGlobal 12000 [library::get_global];
    cudaLibraryGetKernel 12000 [library::get_kernel];
    cudaLibraryGetKernelCount 12000 [library::get_kernel_count];
    cudaLibraryGetManaged 12000 [library::get_managed];
    cudaLibraryGetUnifiedFunction 12000 [unsupported];
    cudaLibraryLoadData 12000 [library::load_data];
    cudaLibraryLoadFromFile 12000 [library::load_from_file];
    cudaLibraryUnload 12000 [library::unload];
    cudaLogsCurrent 13000 [logs::current];
    cudaLogsDumpToFile 13000 [logs::dump_to_file];
    cudaLogsDumpToMemory 13000 [logs::dump_to_memory];
    cudaLogsRegisterCallback 13000 [logs::register];
    cudaLogsUnregisterCallback 13000 [logs::unregister];
    cudaMalloc 12000 [memory::malloc];
    cudaMalloc3D 12000 [memory::malloc_3d];
    cudaMalloc3DArray 12000 [array::malloc_3d_array];
    cudaMallocArray 12000 [array::malloc_array];
    cudaMallocAsync 12000 / _ptsz 12000 [memory::malloc_async];
    cudaMallocFromPoolAsync 12000 / _ptsz 12000 [pool::malloc_from];
    cudaMallocHost 12000 [memory::malloc_host];
    cudaMallocManaged 12000 [memory::malloc_managed];
    cudaMallocMipmappedArray 12000 [array::malloc_mipmapped];
    cudaMallocPitch 12000 [memory::malloc_pitch];
    cudaMemAdvise 12000..13000 as _v12 [memory::mem_advise_12];
    cudaMemAdvise 13000 [memory::mem_advise];
    cudaMemAdvise_v2 12000..13000 [memory::mem_advise];
    cudaMemDiscardAndPrefetchBatchAsync 13000 / _ptsz 13000 [memory::discard_and_prefetch_batch];
    cudaMemDiscardBatchAsync 13000 / _ptsz 13000 [memory::discard_batch];
    cudaMemGetDefaultMemPool 13000 [pool::get_default_at];
    cudaMemGetInfo 12000 [device::mem_get_info];
    cudaMemGetMemPool 13000 [pool::get_current_at];
    cudaMemPoolCreate 12000 [pool::create];
    cudaMemPoolDestroy 12000 [pool::destroy];
    cudaMemPoolExportPointer 12000 [unsupported];
    cudaMemPoolExportToShareableHandle 12000 [unsupported];
    cudaMemPoolGetAccess 12000 [pool::get_access];
    cudaMemPoolGetAttribute 12000 [pool::get_attribute];
    cudaMemPoolImportFromShareableHandle 12000 [unsupported];
    cudaMemPoolImportPointer 12000 [unsupported];
    cudaMemPoolSetAccess 12000 [pool::set_access];
    cudaMemPoolSetAttribute 12000 [pool::set_attribute];
    cudaMemPoolTrimTo 12000 [pool::trim_to];
    cudaMemPrefetchAsync 12000..13000 as _v12 / _ptsz 12000 [memory::mem_prefetch_12];
    cudaMemPrefetchAsync 13000 / _ptsz 13000 [memory::mem_prefetch];
    cudaMemPrefetchAsync_v2 12000..13000 / _ptsz 12000 [memory::mem_prefetch];
    cudaMemPrefetchBatchAsync 13000 / _ptsz 13000 [memory::prefetch_batch];
    cudaMemRangeGetAttribute 12000 [memory::mem_range_get_attribute];
    cudaMemRangeGetAttributes 12000 [memory::mem_range_get_attributes];
    cudaMemSetMemPool 13000 [pool::set_current_at];
    cudaMemcpy 12000 / _ptds 12000 [copy::memcpy];
    cudaMemcpy2D 12000 / _ptds 12000 [copy::memcpy_2d];
    cudaMemcpy2DArrayToArray 12000 / _ptds 12000 [array::array_to_array_2d];
    cudaMemcpy2DAsync 12000 / _ptsz 12000 [copy::memcpy_2d_async];
    cudaMemcpy2DFromArray 12000 / _ptds 12000 [array::from_array_2d];
    cudaMemcpy2DFromArrayAsync 12000 / _ptsz 12000 [array::from_array_2d_async];
    cudaMemcpy2DToArray 12000 / _ptds 12000 [array::to_array_2d];
    cudaMemcpy2DToArrayAsync 12000 / _ptsz 12000 [array::to_array_2d_async];
    cudaMemcpy3D 12000 / _ptds 12000 [copy::memcpy_3d];
    cudaMemcpy3DAsync 12000 / _ptsz 12000 [copy::memcpy_3d_async];
    cudaMemcpy3DBatchAsync 12000..13000 as _v12 / _ptsz 12000 [memory::box_batch_12];
    cudaMemcpy3DBatchAsync 13000 / _ptsz 13000 [memory::box_batch];
    cudaMemcpy3DPeer 12000 / _ptds 12000 [copy::memcpy_3d_peer];
    cudaMemcpy3DPeerAsync 12000 / _ptsz 12000 [copy::memcpy_3d_peer_async];
    cudaMemcpyArrayToArray 12000 / _ptds 12000 [array::array_to_array];
    cudaMemcpyAsync 12000 / _ptsz 12000 [copy::memcpy_async];
    cudaMemcpyBatchAsync 12000..13000 as _v12 / _ptsz 12000 [memory::copy_batch_12];
    cudaMemcpyBatchAsync 13000 / _ptsz 13000 [memory::copy_batch];
    cudaMemcpyFromArray 12000 / _ptds 12000 [array::from_array];
    cudaMemcpyFromArrayAsync 12000 / _ptsz 12000 [array::from_array_async];
    cudaMemcpyFromSymbol 12000 / _ptds 12000 [copy::memcpy_from_symbol];
    cudaMemcpyFromSymbolAsync 12000 / _ptsz 12000 [copy::memcpy_from_symbol_async];
    cudaMemcpyPeer 12000 [copy::memcpy_peer];
    cudaMemcpyPeerAsync 12000 [copy::memcpy_peer_async];
    cudaMemcpyToArray 12000 / _ptds 12000 [array::to_array];
    cudaMemcpyToArrayAsync 12000 / _ptsz 12000 [array::to_array_async];
    cudaMemcpyToSymbol 12000 / _ptds 12000 [copy::memcpy_to_symbol];
    cudaMemcpyToSymbolAsync 12000 / _ptsz 12000 [copy::memcpy_to_symbol_async];
    cudaMemset 12000 / _ptds 12000 [copy::memset];
    cudaMemset2D 12000 / _ptds 12000 [copy::memset_2d];
    cudaMemset2DAsync 12000 / _ptsz 12000 [copy::memset_2d_async];
    cudaMemset3D 12000 / _ptds 12000 [copy::memset_3d];
    cudaMemset3DAsync 12000 / _ptsz 12000 [copy::memset_3d_async];
    cudaMemsetAsync 12000 / _ptsz 12000 [copy::memset_async];
    cudaMipmappedArrayGetMemoryRequirements 12000 [unsupported];
    cudaMipmappedArrayGetSparseProperties 12000 [unsupported];
    cudaOccupancyAvailableDynamicSMemPerBlock 12000 [function::occupancy_shared];
    cudaOccupancyMaxActiveBlocksPerMultiprocessor 12000 [function::occupancy_blocks];
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 12000 [function::occupancy_blocks_with_flags];
    cudaOccupancyMaxActiveClusters 12000 [function::occupancy_active_clusters];
    cudaOccupancyMaxPotentialClusterSize 12000 [function::occupancy_cluster_size];
    cudaPeekAtLastError 12000 [errors::peek_at_last_error];
    cudaPointerGetAttributes 12000..13000 as _v12 [memory::pointer_get_attributes_12];
    cudaPointerGetAttributes 13000 [memory::pointer_get_attributes_13];
    cudaProfilerStart 12000 [device::profiler];
    cudaProfilerStop 12000 [device::profiler];
    cudaRuntimeGetVersion 12000..13000 as _v12 [device::runtime_get_version_12];
    cudaRuntimeGetVersion 13000 [device::runtime_get_version];
    cudaSetDevice 12000 [device::set_device];
    cudaSetDeviceFlags 12000 [device::set_device_flags];
    cudaSetDoubleForDevice 12000..13000 [unsupported];
    cudaSetDoubleForHost 12000..13000 [unsupported];
    cudaSetValidDevices 12000 [device::set_valid_devices];
    cudaSignalExternalSemaphoresAsync 12000 / _ptsz 12000 [unsupported];
    cudaSignalExternalSemaphoresAsync_v2 12000..13000 / _ptsz 12000 [unsupported];
    cudaStreamAddCallback 12000 / _ptsz 12000 [stream::add_callback];
    cudaStreamAttachMemAsync 12000 / _ptsz 12000 [memory::stream_attach_mem];
    cudaStreamBeginCapture 12000 / _ptsz 12000 [capture::begin];
    cudaStreamBeginCaptureToGraph 12000 / _ptsz 12000 [capture::begin_to_graph];
    cudaStreamCopyAttributes 12000 / _ptsz 12000 [stream::copy_attributes];
    cudaStreamCreate 12000 [stream::create];
    cudaStreamCreateWithFlags 12000 [stream::create_with_flags];
    cudaStreamCreateWithPriority 12000 [stream::create_with_priority];
    cudaStreamDestroy 12000 [stream::destroy];
    cudaStreamEndCapture 12000 / _ptsz 12000 [capture::end];
    cudaStreamGetAttribute 12000 / _ptsz 12000 [stream::get_attribute];
    cudaStreamGetCaptureInfo 12000..13000 as _v12 / _ptsz 12000 [capture::info_12];
    cudaStreamGetCaptureInfo 13000 / _ptsz 13000 [capture::info];
    cudaStreamGetCaptureInfo_v2 12000..13000 / _ptsz 12000 [capture::info_v2];
    cudaStreamGetCaptureInfo_v3 12000..13000 / _ptsz 12000 [capture::info];
    cudaStreamGetDevice 12000 / _ptsz 12000 [stream::get_device];
    cudaStreamGetFlags 12000 / _ptsz 12000 [stream::get_flags];
    cudaStreamGetId 12000 / _ptsz 12000 [stream::get_id];
    cudaStreamGetPriority 12000 / _ptsz 12000 [stream::get_priority];
    cudaStreamIsCapturing 12000 / _ptsz 12000 [capture::is_capturing];
    cudaStreamQuery 12000 / _ptsz 12000 [stream::query];
    cudaStreamSetAttribute 12000 / _ptsz 12000 [stream::set_attribute];
    cudaStreamSynchronize 12000 / _ptsz 12000 [stream::synchronize];
    cudaStreamUpdateCaptureDependencies 12000..13000 as _v12 / _ptsz 12000 [capture::update_12];
    cudaStreamUpdateCaptureDependencies 13000 / _ptsz 13000 [capture::update_dependencies];
    cudaStreamUpdateCaptureDependencies_v2 12000..13000 / _ptsz 12000 [capture::update_dependencies];
    cudaStreamWaitEvent 12000 / _ptsz 12000 [stream::wait_event];
    cudaThreadExchangeStreamCaptureMode 12000 [capture::exchange_mode];
    cudaThreadExit 12000..13000 [device::reset];
    cudaThreadGetCacheConfig 12000..13000 [device::get_cache_config];
    cudaThreadGetLimit 12000..13000 [device::get_limit];
    cudaThreadSetCacheConfig 12000..13000 [device::set_cache_config];
    cudaThreadSetLimit 12000..13000 [device::set_limit];
    cudaThreadSynchronize 12000..13000 [device::synchronize];
    cudaUserObjectCreate 12000 [graph::object_create];
    cudaUserObjectRelease 12000 [graph::object_release];
    cudaUserObjectRetain 12000 [graph::object_retain];
    cudaVDPAUGetDevice 12000 [unsupported];
    cudaVDPAUSetVDPAUDevice 12000 [unsupported];
    cudaWaitExternalSemaphoresAsync 12000 / _ptsz 12000 [unsupported];
    cudaWaitExternalSemaphoresAsync_v2 12000..13000 / _ptsz 12000 [unsupported];
}

/// The function that a runtime of a version (12090 is 12.9) has under a name.
pub(crate) fn find(name: &str, version: u32) -> Option<Address> {
    if version < OLDEST
        && let Some(address) = super::eleven::find(name)
    {
        return Some(address);
    }
    let version = version.max(OLDEST);
    let in_version = |name| rows_of(TABLE, name).iter().find(|row| row.is_in(version));
    if let Some(row) = in_version(name) {
        return Some(row.address);
    }
    let (plain, _) = name.rsplit_once('_')?;
    let twin = in_version(plain)?.twin?;
    (twin.suffix == &name[plain.len()..]).then_some(twin.address)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::doors::table::Row;

    /// Names, with those of twins, and functions of all rows that a runtime has.
    fn names(version: u32) -> Vec<(String, Address)> {
        let twin = |row: &Row| row.twin.map(|twin| (format!("{}{}", row.name, twin.suffix), twin.address));
        let rows = TABLE.iter().filter(|row| row.is_in(version));
        rows.flat_map(|row| [(row.name.to_owned(), row.address)].into_iter().chain(twin(row))).collect()
    }

    #[test]
    fn every_runtime_has_each_name_once() {
        for (version, count) in [(12090, 435), (13000, 422)] {
            let names = names(version);
            assert_eq!(names.len(), count);
            let found: BTreeMap<_, _> =
                names.iter().cloned().map(|(name, address)| (name, address.0 as usize)).collect();
            assert_eq!(found.len(), count);
            for (name, address) in names {
                assert!(!address.0.is_null());
                assert_eq!(find(&name, version), Some(address), "{name}");
            }
        }
        for missing in ["", "cudaNone", "cudaMalloc_ptsz", "cudaMalloc_", "cudaFreeAsync_ptds", "_ptsz"] {
            assert_eq!(find(missing, NEWEST), None, "{missing}");
        }
        assert_ne!(find("cudaMemAdvise", 12090), find("cudaMemAdvise", 13000));
        assert_eq!(find("cudaGetDeviceProperties_v2", 13000), None);
        assert_eq!(find("cudaMemAdvise", 11080), find("cudaMemAdvise", 12000));
    }

    #[test]
    fn a_runtime_of_cuda_11_gets_the_functions_that_it_declares_otherwise() {
        let otherwise = [
            "cudaFuncGetAttributes",
            "cudaGetDriverEntryPoint",
            "cudaGetDriverEntryPoint_ptsz",
            "cudaGraphExecUpdate",
            "cudaGraphInstantiate",
        ];
        for name in otherwise {
            assert!(find(name, 11080).is_some(), "{name}");
            assert_ne!(find(name, 11080), find(name, 12000), "{name}");
        }
        for name in ["cudaGraphLaunch", "cudaStreamGetCaptureInfo", "cudaStreamGetCaptureInfo_v2"] {
            assert!(find(name, 11080).is_some(), "{name}");
            assert_eq!(find(name, 11080), find(name, 12000), "{name}");
        }
    }

    #[test]
    fn per_thread_names_have_functions_of_their_own() {
        for row in TABLE.iter().filter(|row| row.implemented) {
            if let Some(twin) = row.twin {
                assert_ne!(row.address, twin.address, "{}", row.name);
            }
        }
    }
}
