//! Every entry point of the CUDA runtime's library, and the function behind it.
//!
//! One list serves all: the loader redirects a statically linked runtime by it, the exported symbols are
//! made from it, and the documentation's table of supported calls is written from it. `both` entries have
//! one function for the 12.x and the 13.x runtime; where the two disagree about a call's arguments, or
//! where only one has it, there is an entry for each (`v12`, `v13`). What follows `as` is the name of the
//! symbol that this library exports. Names that end in `_ptds` and `_ptsz`
//! are what programs call that were compiled for per-thread default streams.
//!
//! Functions of [`super::unsupported`] say their name and return cudaErrorNotSupported.

/// Calls the macro named with all entries: `node name as symbol [path in crate::runtime];`.
macro_rules! for_each_runtime_entry_point {
    ($callback:ident) => {
        $callback! {
            // BEGIN entries
            both __cudaGetKernel as __cudaGetKernel [launch::get_kernel_of_stub];
            v13 __cudaGetProcAddress as __cudaGetProcAddress [unsupported::__cudaGetProcAddress];
            both __cudaInitModule as __cudaInitModule [launch::init_module];
            both __cudaLaunchKernel as __cudaLaunchKernel [launch::launch_kernel::<false>];
            both __cudaLaunchKernel_ptsz as __cudaLaunchKernel_ptsz [launch::launch_kernel::<true>];
            both __cudaPopCallConfiguration as __cudaPopCallConfiguration [launch::pop_call_configuration];
            both __cudaPushCallConfiguration as __cudaPushCallConfiguration [launch::push_call_configuration];
            both __cudaRegisterFatBinary as __cudaRegisterFatBinary [launch::register_fat_binary];
            both __cudaRegisterFatBinaryEnd as __cudaRegisterFatBinaryEnd [launch::register_fat_binary_end];
            both __cudaRegisterFunction as __cudaRegisterFunction [launch::register_function];
            both __cudaRegisterHostVar as __cudaRegisterHostVar [unsupported::__cudaRegisterHostVar];
            both __cudaRegisterManagedVar as __cudaRegisterManagedVar [launch::register_managed_var];
            both __cudaRegisterUnifiedTable as __cudaRegisterUnifiedTable [unsupported::__cudaRegisterUnifiedTable];
            both __cudaRegisterVar as __cudaRegisterVar [launch::register_var];
            both __cudaUnregisterFatBinary as __cudaUnregisterFatBinary [launch::unregister_fat_binary];
            both cudaArrayGetInfo as cudaArrayGetInfo [array::get_info];
            both cudaArrayGetMemoryRequirements as cudaArrayGetMemoryRequirements [unsupported::cudaArrayGetMemoryRequirements];
            both cudaArrayGetPlane as cudaArrayGetPlane [unsupported::cudaArrayGetPlane];
            both cudaArrayGetSparseProperties as cudaArrayGetSparseProperties [unsupported::cudaArrayGetSparseProperties];
            both cudaChooseDevice as cudaChooseDevice [device::choose_device];
            both cudaCreateChannelDesc as cudaCreateChannelDesc [array::create_channel_desc];
            both cudaCreateSurfaceObject as cudaCreateSurfaceObject [unsupported::cudaCreateSurfaceObject];
            both cudaCreateTextureObject as cudaCreateTextureObject [unsupported::cudaCreateTextureObject];
            both cudaCtxResetPersistingL2Cache as cudaCtxResetPersistingL2Cache [device::reset_persisting_l2];
            both cudaDestroyExternalMemory as cudaDestroyExternalMemory [unsupported::cudaDestroyExternalMemory];
            both cudaDestroyExternalSemaphore as cudaDestroyExternalSemaphore [unsupported::cudaDestroyExternalSemaphore];
            both cudaDestroySurfaceObject as cudaDestroySurfaceObject [unsupported::cudaDestroySurfaceObject];
            both cudaDestroyTextureObject as cudaDestroyTextureObject [unsupported::cudaDestroyTextureObject];
            both cudaDeviceCanAccessPeer as cudaDeviceCanAccessPeer [device::can_access_peer];
            both cudaDeviceDisablePeerAccess as cudaDeviceDisablePeerAccess [device::disable_peer_access];
            both cudaDeviceEnablePeerAccess as cudaDeviceEnablePeerAccess [device::enable_peer_access];
            both cudaDeviceFlushGPUDirectRDMAWrites as cudaDeviceFlushGPUDirectRDMAWrites [unsupported::cudaDeviceFlushGPUDirectRDMAWrites];
            both cudaDeviceGetAttribute as cudaDeviceGetAttribute [device::get_attribute];
            both cudaDeviceGetByPCIBusId as cudaDeviceGetByPCIBusId [device::by_pci_bus_id];
            both cudaDeviceGetCacheConfig as cudaDeviceGetCacheConfig [device::get_cache_config];
            both cudaDeviceGetDefaultMemPool as cudaDeviceGetDefaultMemPool [pool::get_default];
            both cudaDeviceGetGraphMemAttribute as cudaDeviceGetGraphMemAttribute [graph::get_mem_attribute];
            v13 cudaDeviceGetHostAtomicCapabilities as cudaDeviceGetHostAtomicCapabilities [unsupported::cudaDeviceGetHostAtomicCapabilities];
            both cudaDeviceGetLimit as cudaDeviceGetLimit [device::get_limit];
            both cudaDeviceGetMemPool as cudaDeviceGetMemPool [pool::get_current];
            both cudaDeviceGetNvSciSyncAttributes as cudaDeviceGetNvSciSyncAttributes [unsupported::cudaDeviceGetNvSciSyncAttributes];
            v13 cudaDeviceGetP2PAtomicCapabilities as cudaDeviceGetP2PAtomicCapabilities [unsupported::cudaDeviceGetP2PAtomicCapabilities];
            both cudaDeviceGetP2PAttribute as cudaDeviceGetP2PAttribute [device::p2p_attribute];
            both cudaDeviceGetPCIBusId as cudaDeviceGetPCIBusId [device::pci_bus_id];
            both cudaDeviceGetSharedMemConfig as cudaDeviceGetSharedMemConfig [device::get_shared_config];
            both cudaDeviceGetStreamPriorityRange as cudaDeviceGetStreamPriorityRange [device::stream_priority_range];
            both cudaDeviceGetTexture1DLinearMaxWidth as cudaDeviceGetTexture1DLinearMaxWidth [device::texture_1d_linear_max_width];
            both cudaDeviceGraphMemTrim as cudaDeviceGraphMemTrim [graph::mem_trim];
            both cudaDeviceRegisterAsyncNotification as cudaDeviceRegisterAsyncNotification [unsupported::cudaDeviceRegisterAsyncNotification];
            both cudaDeviceReset as cudaDeviceReset [device::reset];
            both cudaDeviceSetCacheConfig as cudaDeviceSetCacheConfig [device::set_cache_config];
            both cudaDeviceSetGraphMemAttribute as cudaDeviceSetGraphMemAttribute [graph::set_mem_attribute];
            both cudaDeviceSetLimit as cudaDeviceSetLimit [device::set_limit];
            both cudaDeviceSetMemPool as cudaDeviceSetMemPool [pool::set_current];
            both cudaDeviceSetSharedMemConfig as cudaDeviceSetSharedMemConfig [device::set_shared_config];
            both cudaDeviceSynchronize as cudaDeviceSynchronize [device::synchronize];
            both cudaDeviceUnregisterAsyncNotification as cudaDeviceUnregisterAsyncNotification [unsupported::cudaDeviceUnregisterAsyncNotification];
            both cudaDriverGetVersion as cudaDriverGetVersion [device::driver_get_version];
            both cudaEGLStreamConsumerAcquireFrame as cudaEGLStreamConsumerAcquireFrame [unsupported::cudaEGLStreamConsumerAcquireFrame];
            both cudaEGLStreamConsumerConnect as cudaEGLStreamConsumerConnect [unsupported::cudaEGLStreamConsumerConnect];
            both cudaEGLStreamConsumerConnectWithFlags as cudaEGLStreamConsumerConnectWithFlags [unsupported::cudaEGLStreamConsumerConnectWithFlags];
            both cudaEGLStreamConsumerDisconnect as cudaEGLStreamConsumerDisconnect [unsupported::cudaEGLStreamConsumerDisconnect];
            both cudaEGLStreamConsumerReleaseFrame as cudaEGLStreamConsumerReleaseFrame [unsupported::cudaEGLStreamConsumerReleaseFrame];
            both cudaEGLStreamProducerConnect as cudaEGLStreamProducerConnect [unsupported::cudaEGLStreamProducerConnect];
            both cudaEGLStreamProducerDisconnect as cudaEGLStreamProducerDisconnect [unsupported::cudaEGLStreamProducerDisconnect];
            both cudaEGLStreamProducerPresentFrame as cudaEGLStreamProducerPresentFrame [unsupported::cudaEGLStreamProducerPresentFrame];
            both cudaEGLStreamProducerReturnFrame as cudaEGLStreamProducerReturnFrame [unsupported::cudaEGLStreamProducerReturnFrame];
            both cudaEventCreate as cudaEventCreate [event::create];
            both cudaEventCreateFromEGLSync as cudaEventCreateFromEGLSync [unsupported::cudaEventCreateFromEGLSync];
            both cudaEventCreateWithFlags as cudaEventCreateWithFlags [event::create_with_flags];
            both cudaEventDestroy as cudaEventDestroy [event::destroy];
            both cudaEventElapsedTime as cudaEventElapsedTime [event::elapsed_time];
            v12 cudaEventElapsedTime_v2 as cudaEventElapsedTime_v2 [event::elapsed_time];
            both cudaEventQuery as cudaEventQuery [event::query];
            both cudaEventRecord as cudaEventRecord [event::record::<false>];
            both cudaEventRecordWithFlags as cudaEventRecordWithFlags [event::record_with_flags::<false>];
            both cudaEventRecordWithFlags_ptsz as cudaEventRecordWithFlags_ptsz [event::record_with_flags::<true>];
            both cudaEventRecord_ptsz as cudaEventRecord_ptsz [event::record::<true>];
            both cudaEventSynchronize as cudaEventSynchronize [event::synchronize];
            both cudaExternalMemoryGetMappedBuffer as cudaExternalMemoryGetMappedBuffer [unsupported::cudaExternalMemoryGetMappedBuffer];
            both cudaExternalMemoryGetMappedMipmappedArray as cudaExternalMemoryGetMappedMipmappedArray [unsupported::cudaExternalMemoryGetMappedMipmappedArray];
            both cudaFree as cudaFree [memory::free];
            both cudaFreeArray as cudaFreeArray [array::free_array];
            both cudaFreeAsync as cudaFreeAsync [memory::free_async::<false>];
            both cudaFreeAsync_ptsz as cudaFreeAsync_ptsz [memory::free_async::<true>];
            both cudaFreeHost as cudaFreeHost [memory::free_host];
            both cudaFreeMipmappedArray as cudaFreeMipmappedArray [unsupported::cudaFreeMipmappedArray];
            both cudaFuncGetAttributes as cudaFuncGetAttributes [function::get_attributes];
            both cudaFuncGetName as cudaFuncGetName [function::get_name];
            both cudaFuncGetParamInfo as cudaFuncGetParamInfo [function::get_param_info];
            both cudaFuncSetAttribute as cudaFuncSetAttribute [function::set_attribute];
            both cudaFuncSetCacheConfig as cudaFuncSetCacheConfig [function::set_cache_config];
            both cudaFuncSetSharedMemConfig as cudaFuncSetSharedMemConfig [function::set_shared_config];
            both cudaGLGetDevices as cudaGLGetDevices [unsupported::cudaGLGetDevices];
            both cudaGLMapBufferObject as cudaGLMapBufferObject [unsupported::cudaGLMapBufferObject];
            both cudaGLMapBufferObjectAsync as cudaGLMapBufferObjectAsync [unsupported::cudaGLMapBufferObjectAsync];
            both cudaGLRegisterBufferObject as cudaGLRegisterBufferObject [unsupported::cudaGLRegisterBufferObject];
            both cudaGLSetBufferObjectMapFlags as cudaGLSetBufferObjectMapFlags [unsupported::cudaGLSetBufferObjectMapFlags];
            both cudaGLSetGLDevice as cudaGLSetGLDevice [unsupported::cudaGLSetGLDevice];
            both cudaGLUnmapBufferObject as cudaGLUnmapBufferObject [unsupported::cudaGLUnmapBufferObject];
            both cudaGLUnmapBufferObjectAsync as cudaGLUnmapBufferObjectAsync [unsupported::cudaGLUnmapBufferObjectAsync];
            both cudaGLUnregisterBufferObject as cudaGLUnregisterBufferObject [unsupported::cudaGLUnregisterBufferObject];
            both cudaGetChannelDesc as cudaGetChannelDesc [array::get_channel_desc];
            both cudaGetDevice as cudaGetDevice [device::get_device];
            both cudaGetDeviceCount as cudaGetDeviceCount [device::get_device_count];
            both cudaGetDeviceFlags as cudaGetDeviceFlags [device::get_device_flags];
            v12 cudaGetDeviceProperties as cudaGetDeviceProperties_v12 [device::get_device_properties_11];
            v13 cudaGetDeviceProperties as cudaGetDeviceProperties [device::get_device_properties_13];
            v12 cudaGetDeviceProperties_v2 as cudaGetDeviceProperties_v2 [device::get_device_properties_12];
            v12 cudaGetDriverEntryPoint as cudaGetDriverEntryPoint_v12 [entry_point::get_12::<false>];
            v13 cudaGetDriverEntryPoint as cudaGetDriverEntryPoint [entry_point::get::<false>];
            both cudaGetDriverEntryPointByVersion as cudaGetDriverEntryPointByVersion [entry_point::get_by_version::<false>];
            both cudaGetDriverEntryPointByVersion_ptsz as cudaGetDriverEntryPointByVersion_ptsz [entry_point::get_by_version::<true>];
            v12 cudaGetDriverEntryPoint_ptsz as cudaGetDriverEntryPoint_ptsz_v12 [entry_point::get_12::<true>];
            v13 cudaGetDriverEntryPoint_ptsz as cudaGetDriverEntryPoint_ptsz [entry_point::get::<true>];
            both cudaGetErrorName as cudaGetErrorName [errors::get_error_name];
            both cudaGetErrorString as cudaGetErrorString [errors::get_error_string];
            both cudaGetExportTable as cudaGetExportTable [unsupported::cudaGetExportTable];
            both cudaGetFuncBySymbol as cudaGetFuncBySymbol [launch::get_func_by_symbol];
            both cudaGetKernel as cudaGetKernel [launch::get_kernel];
            both cudaGetLastError as cudaGetLastError [device::get_last_error];
            both cudaGetMipmappedArrayLevel as cudaGetMipmappedArrayLevel [unsupported::cudaGetMipmappedArrayLevel];
            both cudaGetSurfaceObjectResourceDesc as cudaGetSurfaceObjectResourceDesc [unsupported::cudaGetSurfaceObjectResourceDesc];
            both cudaGetSymbolAddress as cudaGetSymbolAddress [memory::get_symbol_address];
            both cudaGetSymbolSize as cudaGetSymbolSize [memory::get_symbol_size];
            both cudaGetTextureObjectResourceDesc as cudaGetTextureObjectResourceDesc [unsupported::cudaGetTextureObjectResourceDesc];
            both cudaGetTextureObjectResourceViewDesc as cudaGetTextureObjectResourceViewDesc [unsupported::cudaGetTextureObjectResourceViewDesc];
            both cudaGetTextureObjectTextureDesc as cudaGetTextureObjectTextureDesc [unsupported::cudaGetTextureObjectTextureDesc];
            both cudaGraphAddChildGraphNode as cudaGraphAddChildGraphNode [graph::add_child];
            v12 cudaGraphAddDependencies as cudaGraphAddDependencies_v12 [graph::add_dependencies_12];
            v13 cudaGraphAddDependencies as cudaGraphAddDependencies [graph::add_dependencies];
            v12 cudaGraphAddDependencies_v2 as cudaGraphAddDependencies_v2 [graph::add_dependencies];
            both cudaGraphAddEmptyNode as cudaGraphAddEmptyNode [graph::add_empty];
            both cudaGraphAddEventRecordNode as cudaGraphAddEventRecordNode [graph::add_event_record];
            both cudaGraphAddEventWaitNode as cudaGraphAddEventWaitNode [graph::add_event_wait];
            both cudaGraphAddExternalSemaphoresSignalNode as cudaGraphAddExternalSemaphoresSignalNode [unsupported::cudaGraphAddExternalSemaphoresSignalNode];
            both cudaGraphAddExternalSemaphoresWaitNode as cudaGraphAddExternalSemaphoresWaitNode [unsupported::cudaGraphAddExternalSemaphoresWaitNode];
            both cudaGraphAddHostNode as cudaGraphAddHostNode [graph::add_host];
            both cudaGraphAddKernelNode as cudaGraphAddKernelNode [graph::add_kernel];
            both cudaGraphAddMemAllocNode as cudaGraphAddMemAllocNode [graph::add_mem_alloc];
            both cudaGraphAddMemFreeNode as cudaGraphAddMemFreeNode [graph::add_mem_free];
            both cudaGraphAddMemcpyNode as cudaGraphAddMemcpyNode [graph::add_memcpy];
            both cudaGraphAddMemcpyNode1D as cudaGraphAddMemcpyNode1D [graph::add_memcpy_1d];
            both cudaGraphAddMemcpyNodeFromSymbol as cudaGraphAddMemcpyNodeFromSymbol [graph::add_memcpy_from_symbol];
            both cudaGraphAddMemcpyNodeToSymbol as cudaGraphAddMemcpyNodeToSymbol [graph::add_memcpy_to_symbol];
            both cudaGraphAddMemsetNode as cudaGraphAddMemsetNode [graph::add_memset];
            v12 cudaGraphAddNode as cudaGraphAddNode_v12 [graph::add_node_12];
            v13 cudaGraphAddNode as cudaGraphAddNode [graph::add_node];
            v12 cudaGraphAddNode_v2 as cudaGraphAddNode_v2 [graph::add_node];
            both cudaGraphChildGraphNodeGetGraph as cudaGraphChildGraphNodeGetGraph [graph::child_get_graph];
            both cudaGraphClone as cudaGraphClone [graph::clone];
            both cudaGraphConditionalHandleCreate as cudaGraphConditionalHandleCreate [unsupported::cudaGraphConditionalHandleCreate];
            both cudaGraphCreate as cudaGraphCreate [graph::create];
            both cudaGraphDebugDotPrint as cudaGraphDebugDotPrint [graph::debug_dot_print];
            both cudaGraphDestroy as cudaGraphDestroy [graph::destroy];
            both cudaGraphDestroyNode as cudaGraphDestroyNode [graph::destroy_node];
            both cudaGraphEventRecordNodeGetEvent as cudaGraphEventRecordNodeGetEvent [graph::record_get_event];
            both cudaGraphEventRecordNodeSetEvent as cudaGraphEventRecordNodeSetEvent [graph::record_set_event];
            both cudaGraphEventWaitNodeGetEvent as cudaGraphEventWaitNodeGetEvent [graph::wait_get_event];
            both cudaGraphEventWaitNodeSetEvent as cudaGraphEventWaitNodeSetEvent [graph::wait_set_event];
            both cudaGraphExecChildGraphNodeSetParams as cudaGraphExecChildGraphNodeSetParams [unsupported::cudaGraphExecChildGraphNodeSetParams];
            both cudaGraphExecDestroy as cudaGraphExecDestroy [graph_exec::exec_destroy];
            both cudaGraphExecEventRecordNodeSetEvent as cudaGraphExecEventRecordNodeSetEvent [graph_exec::exec_event_record];
            both cudaGraphExecEventWaitNodeSetEvent as cudaGraphExecEventWaitNodeSetEvent [graph_exec::exec_event_wait];
            both cudaGraphExecExternalSemaphoresSignalNodeSetParams as cudaGraphExecExternalSemaphoresSignalNodeSetParams [unsupported::cudaGraphExecExternalSemaphoresSignalNodeSetParams];
            both cudaGraphExecExternalSemaphoresWaitNodeSetParams as cudaGraphExecExternalSemaphoresWaitNodeSetParams [unsupported::cudaGraphExecExternalSemaphoresWaitNodeSetParams];
            both cudaGraphExecGetFlags as cudaGraphExecGetFlags [graph_exec::exec_get_flags];
            both cudaGraphExecHostNodeSetParams as cudaGraphExecHostNodeSetParams [graph_exec::exec_host];
            both cudaGraphExecKernelNodeSetParams as cudaGraphExecKernelNodeSetParams [graph_exec::exec_kernel];
            both cudaGraphExecMemcpyNodeSetParams as cudaGraphExecMemcpyNodeSetParams [graph_exec::exec_memcpy];
            both cudaGraphExecMemcpyNodeSetParams1D as cudaGraphExecMemcpyNodeSetParams1D [graph_exec::exec_memcpy_1d];
            both cudaGraphExecMemcpyNodeSetParamsFromSymbol as cudaGraphExecMemcpyNodeSetParamsFromSymbol [graph_exec::exec_memcpy_from_symbol];
            both cudaGraphExecMemcpyNodeSetParamsToSymbol as cudaGraphExecMemcpyNodeSetParamsToSymbol [graph_exec::exec_memcpy_to_symbol];
            both cudaGraphExecMemsetNodeSetParams as cudaGraphExecMemsetNodeSetParams [graph_exec::exec_memset];
            both cudaGraphExecNodeSetParams as cudaGraphExecNodeSetParams [graph_exec::exec_node_set_params];
            both cudaGraphExecUpdate as cudaGraphExecUpdate [graph_exec::exec_update];
            both cudaGraphExternalSemaphoresSignalNodeGetParams as cudaGraphExternalSemaphoresSignalNodeGetParams [unsupported::cudaGraphExternalSemaphoresSignalNodeGetParams];
            both cudaGraphExternalSemaphoresSignalNodeSetParams as cudaGraphExternalSemaphoresSignalNodeSetParams [unsupported::cudaGraphExternalSemaphoresSignalNodeSetParams];
            both cudaGraphExternalSemaphoresWaitNodeGetParams as cudaGraphExternalSemaphoresWaitNodeGetParams [unsupported::cudaGraphExternalSemaphoresWaitNodeGetParams];
            both cudaGraphExternalSemaphoresWaitNodeSetParams as cudaGraphExternalSemaphoresWaitNodeSetParams [unsupported::cudaGraphExternalSemaphoresWaitNodeSetParams];
            v12 cudaGraphGetEdges as cudaGraphGetEdges_v12 [graph::get_edges_12];
            v13 cudaGraphGetEdges as cudaGraphGetEdges [graph::get_edges];
            v12 cudaGraphGetEdges_v2 as cudaGraphGetEdges_v2 [graph::get_edges];
            both cudaGraphGetNodes as cudaGraphGetNodes [graph::get_nodes];
            both cudaGraphGetRootNodes as cudaGraphGetRootNodes [graph::get_root_nodes];
            both cudaGraphHostNodeGetParams as cudaGraphHostNodeGetParams [graph::host_get_params];
            both cudaGraphHostNodeSetParams as cudaGraphHostNodeSetParams [graph::host_set_params];
            both cudaGraphInstantiate as cudaGraphInstantiate [graph_exec::instantiate];
            both cudaGraphInstantiateWithFlags as cudaGraphInstantiateWithFlags [graph_exec::instantiate];
            both cudaGraphInstantiateWithParams as cudaGraphInstantiateWithParams [graph_exec::instantiate_with_params::<false>];
            both cudaGraphInstantiateWithParams_ptsz as cudaGraphInstantiateWithParams_ptsz [graph_exec::instantiate_with_params::<true>];
            both cudaGraphKernelNodeCopyAttributes as cudaGraphKernelNodeCopyAttributes [unsupported::cudaGraphKernelNodeCopyAttributes];
            both cudaGraphKernelNodeGetAttribute as cudaGraphKernelNodeGetAttribute [unsupported::cudaGraphKernelNodeGetAttribute];
            both cudaGraphKernelNodeGetParams as cudaGraphKernelNodeGetParams [graph::kernel_get_params];
            both cudaGraphKernelNodeSetAttribute as cudaGraphKernelNodeSetAttribute [graph::kernel_set_attribute];
            both cudaGraphKernelNodeSetParams as cudaGraphKernelNodeSetParams [graph::kernel_set_params];
            both cudaGraphLaunch as cudaGraphLaunch [graph_exec::launch::<false>];
            both cudaGraphLaunch_ptsz as cudaGraphLaunch_ptsz [graph_exec::launch::<true>];
            both cudaGraphMemAllocNodeGetParams as cudaGraphMemAllocNodeGetParams [graph::mem_alloc_get_params];
            both cudaGraphMemFreeNodeGetParams as cudaGraphMemFreeNodeGetParams [graph::mem_free_get_params];
            both cudaGraphMemcpyNodeGetParams as cudaGraphMemcpyNodeGetParams [graph::memcpy_get_params];
            both cudaGraphMemcpyNodeSetParams as cudaGraphMemcpyNodeSetParams [graph::memcpy_set_params];
            both cudaGraphMemcpyNodeSetParams1D as cudaGraphMemcpyNodeSetParams1D [graph::memcpy_set_params_1d];
            both cudaGraphMemcpyNodeSetParamsFromSymbol as cudaGraphMemcpyNodeSetParamsFromSymbol [graph::memcpy_set_params_from_symbol];
            both cudaGraphMemcpyNodeSetParamsToSymbol as cudaGraphMemcpyNodeSetParamsToSymbol [graph::memcpy_set_params_to_symbol];
            both cudaGraphMemsetNodeGetParams as cudaGraphMemsetNodeGetParams [graph::memset_get_params];
            both cudaGraphMemsetNodeSetParams as cudaGraphMemsetNodeSetParams [graph::memset_set_params];
            both cudaGraphNodeFindInClone as cudaGraphNodeFindInClone [graph::find_in_clone];
            v12 cudaGraphNodeGetDependencies as cudaGraphNodeGetDependencies_v12 [graph::get_dependencies_12];
            v13 cudaGraphNodeGetDependencies as cudaGraphNodeGetDependencies [graph::get_dependencies];
            v12 cudaGraphNodeGetDependencies_v2 as cudaGraphNodeGetDependencies_v2 [graph::get_dependencies];
            v12 cudaGraphNodeGetDependentNodes as cudaGraphNodeGetDependentNodes_v12 [graph::get_dependents_12];
            v13 cudaGraphNodeGetDependentNodes as cudaGraphNodeGetDependentNodes [graph::get_dependents];
            v12 cudaGraphNodeGetDependentNodes_v2 as cudaGraphNodeGetDependentNodes_v2 [graph::get_dependents];
            both cudaGraphNodeGetEnabled as cudaGraphNodeGetEnabled [graph_exec::get_enabled];
            both cudaGraphNodeGetType as cudaGraphNodeGetType [graph::node_get_type];
            both cudaGraphNodeSetEnabled as cudaGraphNodeSetEnabled [graph_exec::set_enabled];
            both cudaGraphNodeSetParams as cudaGraphNodeSetParams [graph::node_set_params];
            both cudaGraphReleaseUserObject as cudaGraphReleaseUserObject [graph::release_object];
            v12 cudaGraphRemoveDependencies as cudaGraphRemoveDependencies_v12 [graph::remove_dependencies_12];
            v13 cudaGraphRemoveDependencies as cudaGraphRemoveDependencies [graph::remove_dependencies];
            v12 cudaGraphRemoveDependencies_v2 as cudaGraphRemoveDependencies_v2 [graph::remove_dependencies];
            both cudaGraphRetainUserObject as cudaGraphRetainUserObject [graph::retain_object];
            both cudaGraphUpload as cudaGraphUpload [graph_exec::upload::<false>];
            both cudaGraphUpload_ptsz as cudaGraphUpload_ptsz [graph_exec::upload::<true>];
            both cudaGraphicsEGLRegisterImage as cudaGraphicsEGLRegisterImage [unsupported::cudaGraphicsEGLRegisterImage];
            both cudaGraphicsGLRegisterBuffer as cudaGraphicsGLRegisterBuffer [unsupported::cudaGraphicsGLRegisterBuffer];
            both cudaGraphicsGLRegisterImage as cudaGraphicsGLRegisterImage [unsupported::cudaGraphicsGLRegisterImage];
            both cudaGraphicsMapResources as cudaGraphicsMapResources [unsupported::cudaGraphicsMapResources];
            both cudaGraphicsResourceGetMappedEglFrame as cudaGraphicsResourceGetMappedEglFrame [unsupported::cudaGraphicsResourceGetMappedEglFrame];
            both cudaGraphicsResourceGetMappedMipmappedArray as cudaGraphicsResourceGetMappedMipmappedArray [unsupported::cudaGraphicsResourceGetMappedMipmappedArray];
            both cudaGraphicsResourceGetMappedPointer as cudaGraphicsResourceGetMappedPointer [unsupported::cudaGraphicsResourceGetMappedPointer];
            both cudaGraphicsResourceSetMapFlags as cudaGraphicsResourceSetMapFlags [unsupported::cudaGraphicsResourceSetMapFlags];
            both cudaGraphicsSubResourceGetMappedArray as cudaGraphicsSubResourceGetMappedArray [unsupported::cudaGraphicsSubResourceGetMappedArray];
            both cudaGraphicsUnmapResources as cudaGraphicsUnmapResources [unsupported::cudaGraphicsUnmapResources];
            both cudaGraphicsUnregisterResource as cudaGraphicsUnregisterResource [unsupported::cudaGraphicsUnregisterResource];
            both cudaGraphicsVDPAURegisterOutputSurface as cudaGraphicsVDPAURegisterOutputSurface [unsupported::cudaGraphicsVDPAURegisterOutputSurface];
            both cudaGraphicsVDPAURegisterVideoSurface as cudaGraphicsVDPAURegisterVideoSurface [unsupported::cudaGraphicsVDPAURegisterVideoSurface];
            both cudaHostAlloc as cudaHostAlloc [memory::host_alloc];
            both cudaHostGetDevicePointer as cudaHostGetDevicePointer [memory::host_get_device_pointer];
            both cudaHostGetFlags as cudaHostGetFlags [memory::host_get_flags];
            both cudaHostRegister as cudaHostRegister [memory::host_register];
            both cudaHostUnregister as cudaHostUnregister [memory::host_unregister];
            both cudaImportExternalMemory as cudaImportExternalMemory [unsupported::cudaImportExternalMemory];
            both cudaImportExternalSemaphore as cudaImportExternalSemaphore [unsupported::cudaImportExternalSemaphore];
            both cudaInitDevice as cudaInitDevice [device::init_device];
            both cudaIpcCloseMemHandle as cudaIpcCloseMemHandle [unsupported::cudaIpcCloseMemHandle];
            both cudaIpcGetEventHandle as cudaIpcGetEventHandle [unsupported::cudaIpcGetEventHandle];
            both cudaIpcGetMemHandle as cudaIpcGetMemHandle [unsupported::cudaIpcGetMemHandle];
            both cudaIpcOpenEventHandle as cudaIpcOpenEventHandle [unsupported::cudaIpcOpenEventHandle];
            both cudaIpcOpenMemHandle as cudaIpcOpenMemHandle [unsupported::cudaIpcOpenMemHandle];
            both cudaKernelSetAttributeForDevice as cudaKernelSetAttributeForDevice [function::set_kernel_attribute];
            both cudaLaunchCooperativeKernel as cudaLaunchCooperativeKernel [launch::launch_cooperative_kernel::<false>];
            v12 cudaLaunchCooperativeKernelMultiDevice as cudaLaunchCooperativeKernelMultiDevice [unsupported::cudaLaunchCooperativeKernelMultiDevice];
            both cudaLaunchCooperativeKernel_ptsz as cudaLaunchCooperativeKernel_ptsz [launch::launch_cooperative_kernel::<true>];
            both cudaLaunchHostFunc as cudaLaunchHostFunc [stream::launch_host_func::<false>];
            both cudaLaunchHostFunc_ptsz as cudaLaunchHostFunc_ptsz [stream::launch_host_func::<true>];
            both cudaLaunchKernel as cudaLaunchKernel [launch::launch_kernel::<false>];
            both cudaLaunchKernelExC as cudaLaunchKernelExC [launch::launch_kernel_exc::<false>];
            both cudaLaunchKernelExC_ptsz as cudaLaunchKernelExC_ptsz [launch::launch_kernel_exc::<true>];
            both cudaLaunchKernel_ptsz as cudaLaunchKernel_ptsz [launch::launch_kernel::<true>];
            both cudaLibraryEnumerateKernels as cudaLibraryEnumerateKernels [library::enumerate_kernels];
            both cudaLibraryGetGlobal as cudaLibraryGetGlobal [library::get_global];
            both cudaLibraryGetKernel as cudaLibraryGetKernel [library::get_kernel];
            both cudaLibraryGetKernelCount as cudaLibraryGetKernelCount [library::get_kernel_count];
            both cudaLibraryGetManaged as cudaLibraryGetManaged [library::get_managed];
            both cudaLibraryGetUnifiedFunction as cudaLibraryGetUnifiedFunction [unsupported::cudaLibraryGetUnifiedFunction];
            both cudaLibraryLoadData as cudaLibraryLoadData [library::load_data];
            both cudaLibraryLoadFromFile as cudaLibraryLoadFromFile [library::load_from_file];
            both cudaLibraryUnload as cudaLibraryUnload [library::unload];
            v13 cudaLogsCurrent as cudaLogsCurrent [unsupported::cudaLogsCurrent];
            v13 cudaLogsDumpToFile as cudaLogsDumpToFile [unsupported::cudaLogsDumpToFile];
            v13 cudaLogsDumpToMemory as cudaLogsDumpToMemory [unsupported::cudaLogsDumpToMemory];
            v13 cudaLogsRegisterCallback as cudaLogsRegisterCallback [unsupported::cudaLogsRegisterCallback];
            v13 cudaLogsUnregisterCallback as cudaLogsUnregisterCallback [unsupported::cudaLogsUnregisterCallback];
            both cudaMalloc as cudaMalloc [memory::malloc];
            both cudaMalloc3D as cudaMalloc3D [memory::malloc_3d];
            both cudaMalloc3DArray as cudaMalloc3DArray [array::malloc_3d_array];
            both cudaMallocArray as cudaMallocArray [array::malloc_array];
            both cudaMallocAsync as cudaMallocAsync [memory::malloc_async::<false>];
            both cudaMallocAsync_ptsz as cudaMallocAsync_ptsz [memory::malloc_async::<true>];
            both cudaMallocFromPoolAsync as cudaMallocFromPoolAsync [pool::malloc_from::<false>];
            both cudaMallocFromPoolAsync_ptsz as cudaMallocFromPoolAsync_ptsz [pool::malloc_from::<true>];
            both cudaMallocHost as cudaMallocHost [memory::malloc_host];
            both cudaMallocManaged as cudaMallocManaged [memory::malloc_managed];
            both cudaMallocMipmappedArray as cudaMallocMipmappedArray [unsupported::cudaMallocMipmappedArray];
            both cudaMallocPitch as cudaMallocPitch [memory::malloc_pitch];
            v12 cudaMemAdvise as cudaMemAdvise_v12 [memory::mem_advise_12];
            v13 cudaMemAdvise as cudaMemAdvise [memory::mem_advise];
            v12 cudaMemAdvise_v2 as cudaMemAdvise_v2 [memory::mem_advise];
            v13 cudaMemDiscardAndPrefetchBatchAsync as cudaMemDiscardAndPrefetchBatchAsync [unsupported::cudaMemDiscardAndPrefetchBatchAsync];
            v13 cudaMemDiscardAndPrefetchBatchAsync_ptsz as cudaMemDiscardAndPrefetchBatchAsync_ptsz [unsupported::cudaMemDiscardAndPrefetchBatchAsync_ptsz];
            v13 cudaMemDiscardBatchAsync as cudaMemDiscardBatchAsync [unsupported::cudaMemDiscardBatchAsync];
            v13 cudaMemDiscardBatchAsync_ptsz as cudaMemDiscardBatchAsync_ptsz [unsupported::cudaMemDiscardBatchAsync_ptsz];
            v13 cudaMemGetDefaultMemPool as cudaMemGetDefaultMemPool [pool::get_default_at];
            both cudaMemGetInfo as cudaMemGetInfo [device::mem_get_info];
            v13 cudaMemGetMemPool as cudaMemGetMemPool [pool::get_current_at];
            both cudaMemPoolCreate as cudaMemPoolCreate [pool::create];
            both cudaMemPoolDestroy as cudaMemPoolDestroy [pool::destroy];
            both cudaMemPoolExportPointer as cudaMemPoolExportPointer [unsupported::cudaMemPoolExportPointer];
            both cudaMemPoolExportToShareableHandle as cudaMemPoolExportToShareableHandle [unsupported::cudaMemPoolExportToShareableHandle];
            both cudaMemPoolGetAccess as cudaMemPoolGetAccess [pool::get_access];
            both cudaMemPoolGetAttribute as cudaMemPoolGetAttribute [pool::get_attribute];
            both cudaMemPoolImportFromShareableHandle as cudaMemPoolImportFromShareableHandle [unsupported::cudaMemPoolImportFromShareableHandle];
            both cudaMemPoolImportPointer as cudaMemPoolImportPointer [unsupported::cudaMemPoolImportPointer];
            both cudaMemPoolSetAccess as cudaMemPoolSetAccess [pool::set_access];
            both cudaMemPoolSetAttribute as cudaMemPoolSetAttribute [pool::set_attribute];
            both cudaMemPoolTrimTo as cudaMemPoolTrimTo [pool::trim_to];
            v12 cudaMemPrefetchAsync as cudaMemPrefetchAsync_v12 [memory::mem_prefetch_12::<false>];
            v13 cudaMemPrefetchAsync as cudaMemPrefetchAsync [memory::mem_prefetch::<false>];
            v12 cudaMemPrefetchAsync_ptsz as cudaMemPrefetchAsync_ptsz_v12 [memory::mem_prefetch_12::<true>];
            v13 cudaMemPrefetchAsync_ptsz as cudaMemPrefetchAsync_ptsz [memory::mem_prefetch::<true>];
            v12 cudaMemPrefetchAsync_v2 as cudaMemPrefetchAsync_v2 [memory::mem_prefetch::<false>];
            v12 cudaMemPrefetchAsync_v2_ptsz as cudaMemPrefetchAsync_v2_ptsz [memory::mem_prefetch::<true>];
            v13 cudaMemPrefetchBatchAsync as cudaMemPrefetchBatchAsync [unsupported::cudaMemPrefetchBatchAsync];
            v13 cudaMemPrefetchBatchAsync_ptsz as cudaMemPrefetchBatchAsync_ptsz [unsupported::cudaMemPrefetchBatchAsync_ptsz];
            both cudaMemRangeGetAttribute as cudaMemRangeGetAttribute [unsupported::cudaMemRangeGetAttribute];
            both cudaMemRangeGetAttributes as cudaMemRangeGetAttributes [unsupported::cudaMemRangeGetAttributes];
            v13 cudaMemSetMemPool as cudaMemSetMemPool [pool::set_current_at];
            both cudaMemcpy as cudaMemcpy [copy::memcpy::<false>];
            both cudaMemcpy2D as cudaMemcpy2D [copy::memcpy_2d::<false>];
            both cudaMemcpy2DArrayToArray as cudaMemcpy2DArrayToArray [array::array_to_array_2d::<false>];
            both cudaMemcpy2DArrayToArray_ptds as cudaMemcpy2DArrayToArray_ptds [array::array_to_array_2d::<true>];
            both cudaMemcpy2DAsync as cudaMemcpy2DAsync [copy::memcpy_2d_async::<false>];
            both cudaMemcpy2DAsync_ptsz as cudaMemcpy2DAsync_ptsz [copy::memcpy_2d_async::<true>];
            both cudaMemcpy2DFromArray as cudaMemcpy2DFromArray [array::from_array_2d::<false>];
            both cudaMemcpy2DFromArrayAsync as cudaMemcpy2DFromArrayAsync [array::from_array_2d_async::<false>];
            both cudaMemcpy2DFromArrayAsync_ptsz as cudaMemcpy2DFromArrayAsync_ptsz [array::from_array_2d_async::<true>];
            both cudaMemcpy2DFromArray_ptds as cudaMemcpy2DFromArray_ptds [array::from_array_2d::<true>];
            both cudaMemcpy2DToArray as cudaMemcpy2DToArray [array::to_array_2d::<false>];
            both cudaMemcpy2DToArrayAsync as cudaMemcpy2DToArrayAsync [array::to_array_2d_async::<false>];
            both cudaMemcpy2DToArrayAsync_ptsz as cudaMemcpy2DToArrayAsync_ptsz [array::to_array_2d_async::<true>];
            both cudaMemcpy2DToArray_ptds as cudaMemcpy2DToArray_ptds [array::to_array_2d::<true>];
            both cudaMemcpy2D_ptds as cudaMemcpy2D_ptds [copy::memcpy_2d::<true>];
            both cudaMemcpy3D as cudaMemcpy3D [copy::memcpy_3d::<false>];
            both cudaMemcpy3DAsync as cudaMemcpy3DAsync [copy::memcpy_3d_async::<false>];
            both cudaMemcpy3DAsync_ptsz as cudaMemcpy3DAsync_ptsz [copy::memcpy_3d_async::<true>];
            both cudaMemcpy3DBatchAsync as cudaMemcpy3DBatchAsync [unsupported::cudaMemcpy3DBatchAsync];
            both cudaMemcpy3DBatchAsync_ptsz as cudaMemcpy3DBatchAsync_ptsz [unsupported::cudaMemcpy3DBatchAsync_ptsz];
            both cudaMemcpy3DPeer as cudaMemcpy3DPeer [copy::memcpy_3d_peer::<false>];
            both cudaMemcpy3DPeerAsync as cudaMemcpy3DPeerAsync [copy::memcpy_3d_peer_async::<false>];
            both cudaMemcpy3DPeerAsync_ptsz as cudaMemcpy3DPeerAsync_ptsz [copy::memcpy_3d_peer_async::<true>];
            both cudaMemcpy3DPeer_ptds as cudaMemcpy3DPeer_ptds [copy::memcpy_3d_peer::<true>];
            both cudaMemcpy3D_ptds as cudaMemcpy3D_ptds [copy::memcpy_3d::<true>];
            both cudaMemcpyArrayToArray as cudaMemcpyArrayToArray [array::array_to_array::<false>];
            both cudaMemcpyArrayToArray_ptds as cudaMemcpyArrayToArray_ptds [array::array_to_array::<true>];
            both cudaMemcpyAsync as cudaMemcpyAsync [copy::memcpy_async::<false>];
            both cudaMemcpyAsync_ptsz as cudaMemcpyAsync_ptsz [copy::memcpy_async::<true>];
            both cudaMemcpyBatchAsync as cudaMemcpyBatchAsync [unsupported::cudaMemcpyBatchAsync];
            both cudaMemcpyBatchAsync_ptsz as cudaMemcpyBatchAsync_ptsz [unsupported::cudaMemcpyBatchAsync_ptsz];
            both cudaMemcpyFromArray as cudaMemcpyFromArray [array::from_array::<false>];
            both cudaMemcpyFromArrayAsync as cudaMemcpyFromArrayAsync [array::from_array_async::<false>];
            both cudaMemcpyFromArrayAsync_ptsz as cudaMemcpyFromArrayAsync_ptsz [array::from_array_async::<true>];
            both cudaMemcpyFromArray_ptds as cudaMemcpyFromArray_ptds [array::from_array::<true>];
            both cudaMemcpyFromSymbol as cudaMemcpyFromSymbol [copy::memcpy_from_symbol::<false>];
            both cudaMemcpyFromSymbolAsync as cudaMemcpyFromSymbolAsync [copy::memcpy_from_symbol_async::<false>];
            both cudaMemcpyFromSymbolAsync_ptsz as cudaMemcpyFromSymbolAsync_ptsz [copy::memcpy_from_symbol_async::<true>];
            both cudaMemcpyFromSymbol_ptds as cudaMemcpyFromSymbol_ptds [copy::memcpy_from_symbol::<true>];
            both cudaMemcpyPeer as cudaMemcpyPeer [copy::memcpy_peer];
            both cudaMemcpyPeerAsync as cudaMemcpyPeerAsync [copy::memcpy_peer_async];
            both cudaMemcpyToArray as cudaMemcpyToArray [array::to_array::<false>];
            both cudaMemcpyToArrayAsync as cudaMemcpyToArrayAsync [array::to_array_async::<false>];
            both cudaMemcpyToArrayAsync_ptsz as cudaMemcpyToArrayAsync_ptsz [array::to_array_async::<true>];
            both cudaMemcpyToArray_ptds as cudaMemcpyToArray_ptds [array::to_array::<true>];
            both cudaMemcpyToSymbol as cudaMemcpyToSymbol [copy::memcpy_to_symbol::<false>];
            both cudaMemcpyToSymbolAsync as cudaMemcpyToSymbolAsync [copy::memcpy_to_symbol_async::<false>];
            both cudaMemcpyToSymbolAsync_ptsz as cudaMemcpyToSymbolAsync_ptsz [copy::memcpy_to_symbol_async::<true>];
            both cudaMemcpyToSymbol_ptds as cudaMemcpyToSymbol_ptds [copy::memcpy_to_symbol::<true>];
            both cudaMemcpy_ptds as cudaMemcpy_ptds [copy::memcpy::<true>];
            both cudaMemset as cudaMemset [copy::memset::<false>];
            both cudaMemset2D as cudaMemset2D [copy::memset_2d::<false>];
            both cudaMemset2DAsync as cudaMemset2DAsync [copy::memset_2d_async::<false>];
            both cudaMemset2DAsync_ptsz as cudaMemset2DAsync_ptsz [copy::memset_2d_async::<true>];
            both cudaMemset2D_ptds as cudaMemset2D_ptds [copy::memset_2d::<true>];
            both cudaMemset3D as cudaMemset3D [copy::memset_3d::<false>];
            both cudaMemset3DAsync as cudaMemset3DAsync [copy::memset_3d_async::<false>];
            both cudaMemset3DAsync_ptsz as cudaMemset3DAsync_ptsz [copy::memset_3d_async::<true>];
            both cudaMemset3D_ptds as cudaMemset3D_ptds [copy::memset_3d::<true>];
            both cudaMemsetAsync as cudaMemsetAsync [copy::memset_async::<false>];
            both cudaMemsetAsync_ptsz as cudaMemsetAsync_ptsz [copy::memset_async::<true>];
            both cudaMemset_ptds as cudaMemset_ptds [copy::memset::<true>];
            both cudaMipmappedArrayGetMemoryRequirements as cudaMipmappedArrayGetMemoryRequirements [unsupported::cudaMipmappedArrayGetMemoryRequirements];
            both cudaMipmappedArrayGetSparseProperties as cudaMipmappedArrayGetSparseProperties [unsupported::cudaMipmappedArrayGetSparseProperties];
            both cudaOccupancyAvailableDynamicSMemPerBlock as cudaOccupancyAvailableDynamicSMemPerBlock [function::occupancy_shared];
            both cudaOccupancyMaxActiveBlocksPerMultiprocessor as cudaOccupancyMaxActiveBlocksPerMultiprocessor [function::occupancy_blocks];
            both cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags as cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags [function::occupancy_blocks_with_flags];
            both cudaOccupancyMaxActiveClusters as cudaOccupancyMaxActiveClusters [unsupported::cudaOccupancyMaxActiveClusters];
            both cudaOccupancyMaxPotentialClusterSize as cudaOccupancyMaxPotentialClusterSize [unsupported::cudaOccupancyMaxPotentialClusterSize];
            both cudaPeekAtLastError as cudaPeekAtLastError [device::peek_at_last_error];
            v12 cudaPointerGetAttributes as cudaPointerGetAttributes_v12 [memory::pointer_get_attributes_12];
            v13 cudaPointerGetAttributes as cudaPointerGetAttributes [memory::pointer_get_attributes_13];
            both cudaProfilerStart as cudaProfilerStart [device::profiler];
            both cudaProfilerStop as cudaProfilerStop [device::profiler];
            v12 cudaRuntimeGetVersion as cudaRuntimeGetVersion_v12 [device::runtime_get_version_12];
            v13 cudaRuntimeGetVersion as cudaRuntimeGetVersion [device::runtime_get_version];
            both cudaSetDevice as cudaSetDevice [device::set_device];
            both cudaSetDeviceFlags as cudaSetDeviceFlags [device::set_device_flags];
            v12 cudaSetDoubleForDevice as cudaSetDoubleForDevice [unsupported::cudaSetDoubleForDevice];
            v12 cudaSetDoubleForHost as cudaSetDoubleForHost [unsupported::cudaSetDoubleForHost];
            both cudaSetValidDevices as cudaSetValidDevices [device::set_valid_devices];
            both cudaSignalExternalSemaphoresAsync as cudaSignalExternalSemaphoresAsync [unsupported::cudaSignalExternalSemaphoresAsync];
            both cudaSignalExternalSemaphoresAsync_ptsz as cudaSignalExternalSemaphoresAsync_ptsz [unsupported::cudaSignalExternalSemaphoresAsync_ptsz];
            v12 cudaSignalExternalSemaphoresAsync_v2 as cudaSignalExternalSemaphoresAsync_v2 [unsupported::cudaSignalExternalSemaphoresAsync_v2];
            v12 cudaSignalExternalSemaphoresAsync_v2_ptsz as cudaSignalExternalSemaphoresAsync_v2_ptsz [unsupported::cudaSignalExternalSemaphoresAsync_v2_ptsz];
            both cudaStreamAddCallback as cudaStreamAddCallback [stream::add_callback::<false>];
            both cudaStreamAddCallback_ptsz as cudaStreamAddCallback_ptsz [stream::add_callback::<true>];
            both cudaStreamAttachMemAsync as cudaStreamAttachMemAsync [memory::stream_attach_mem::<false>];
            both cudaStreamAttachMemAsync_ptsz as cudaStreamAttachMemAsync_ptsz [memory::stream_attach_mem::<true>];
            both cudaStreamBeginCapture as cudaStreamBeginCapture [capture::begin::<false>];
            both cudaStreamBeginCaptureToGraph as cudaStreamBeginCaptureToGraph [capture::begin_to_graph::<false>];
            both cudaStreamBeginCaptureToGraph_ptsz as cudaStreamBeginCaptureToGraph_ptsz [capture::begin_to_graph::<true>];
            both cudaStreamBeginCapture_ptsz as cudaStreamBeginCapture_ptsz [capture::begin::<true>];
            both cudaStreamCopyAttributes as cudaStreamCopyAttributes [stream::copy_attributes::<false>];
            both cudaStreamCopyAttributes_ptsz as cudaStreamCopyAttributes_ptsz [stream::copy_attributes::<true>];
            both cudaStreamCreate as cudaStreamCreate [stream::create];
            both cudaStreamCreateWithFlags as cudaStreamCreateWithFlags [stream::create_with_flags];
            both cudaStreamCreateWithPriority as cudaStreamCreateWithPriority [stream::create_with_priority];
            both cudaStreamDestroy as cudaStreamDestroy [stream::destroy];
            both cudaStreamEndCapture as cudaStreamEndCapture [capture::end::<false>];
            both cudaStreamEndCapture_ptsz as cudaStreamEndCapture_ptsz [capture::end::<true>];
            both cudaStreamGetAttribute as cudaStreamGetAttribute [stream::get_attribute::<false>];
            both cudaStreamGetAttribute_ptsz as cudaStreamGetAttribute_ptsz [stream::get_attribute::<true>];
            v12 cudaStreamGetCaptureInfo as cudaStreamGetCaptureInfo_v12 [capture::info_12::<false>];
            v13 cudaStreamGetCaptureInfo as cudaStreamGetCaptureInfo [capture::info::<false>];
            v12 cudaStreamGetCaptureInfo_ptsz as cudaStreamGetCaptureInfo_ptsz_v12 [capture::info_12::<true>];
            v13 cudaStreamGetCaptureInfo_ptsz as cudaStreamGetCaptureInfo_ptsz [capture::info::<true>];
            v12 cudaStreamGetCaptureInfo_v2 as cudaStreamGetCaptureInfo_v2 [capture::info_v2::<false>];
            v12 cudaStreamGetCaptureInfo_v2_ptsz as cudaStreamGetCaptureInfo_v2_ptsz [capture::info_v2::<true>];
            v12 cudaStreamGetCaptureInfo_v3 as cudaStreamGetCaptureInfo_v3 [capture::info::<false>];
            v12 cudaStreamGetCaptureInfo_v3_ptsz as cudaStreamGetCaptureInfo_v3_ptsz [capture::info::<true>];
            both cudaStreamGetDevice as cudaStreamGetDevice [stream::get_device::<false>];
            both cudaStreamGetDevice_ptsz as cudaStreamGetDevice_ptsz [stream::get_device::<true>];
            both cudaStreamGetFlags as cudaStreamGetFlags [stream::get_flags::<false>];
            both cudaStreamGetFlags_ptsz as cudaStreamGetFlags_ptsz [stream::get_flags::<true>];
            both cudaStreamGetId as cudaStreamGetId [stream::get_id::<false>];
            both cudaStreamGetId_ptsz as cudaStreamGetId_ptsz [stream::get_id::<true>];
            both cudaStreamGetPriority as cudaStreamGetPriority [stream::get_priority::<false>];
            both cudaStreamGetPriority_ptsz as cudaStreamGetPriority_ptsz [stream::get_priority::<true>];
            both cudaStreamIsCapturing as cudaStreamIsCapturing [capture::is_capturing::<false>];
            both cudaStreamIsCapturing_ptsz as cudaStreamIsCapturing_ptsz [capture::is_capturing::<true>];
            both cudaStreamQuery as cudaStreamQuery [stream::query::<false>];
            both cudaStreamQuery_ptsz as cudaStreamQuery_ptsz [stream::query::<true>];
            both cudaStreamSetAttribute as cudaStreamSetAttribute [stream::set_attribute::<false>];
            both cudaStreamSetAttribute_ptsz as cudaStreamSetAttribute_ptsz [stream::set_attribute::<true>];
            both cudaStreamSynchronize as cudaStreamSynchronize [stream::synchronize::<false>];
            both cudaStreamSynchronize_ptsz as cudaStreamSynchronize_ptsz [stream::synchronize::<true>];
            v12 cudaStreamUpdateCaptureDependencies as cudaStreamUpdateCaptureDependencies_v12 [capture::update_12::<false>];
            v13 cudaStreamUpdateCaptureDependencies as cudaStreamUpdateCaptureDependencies [capture::update_dependencies::<false>];
            v12 cudaStreamUpdateCaptureDependencies_ptsz as cudaStreamUpdateCaptureDependencies_ptsz_v12 [capture::update_12::<true>];
            v13 cudaStreamUpdateCaptureDependencies_ptsz as cudaStreamUpdateCaptureDependencies_ptsz [capture::update_dependencies::<true>];
            v12 cudaStreamUpdateCaptureDependencies_v2 as cudaStreamUpdateCaptureDependencies_v2 [capture::update_dependencies::<false>];
            v12 cudaStreamUpdateCaptureDependencies_v2_ptsz as cudaStreamUpdateCaptureDependencies_v2_ptsz [capture::update_dependencies::<true>];
            both cudaStreamWaitEvent as cudaStreamWaitEvent [stream::wait_event::<false>];
            both cudaStreamWaitEvent_ptsz as cudaStreamWaitEvent_ptsz [stream::wait_event::<true>];
            both cudaThreadExchangeStreamCaptureMode as cudaThreadExchangeStreamCaptureMode [capture::exchange_mode];
            v12 cudaThreadExit as cudaThreadExit [device::reset];
            v12 cudaThreadGetCacheConfig as cudaThreadGetCacheConfig [device::get_cache_config];
            v12 cudaThreadGetLimit as cudaThreadGetLimit [device::get_limit];
            v12 cudaThreadSetCacheConfig as cudaThreadSetCacheConfig [device::set_cache_config];
            v12 cudaThreadSetLimit as cudaThreadSetLimit [device::set_limit];
            v12 cudaThreadSynchronize as cudaThreadSynchronize [device::synchronize];
            both cudaUserObjectCreate as cudaUserObjectCreate [graph::object_create];
            both cudaUserObjectRelease as cudaUserObjectRelease [graph::object_release];
            both cudaUserObjectRetain as cudaUserObjectRetain [graph::object_retain];
            both cudaVDPAUGetDevice as cudaVDPAUGetDevice [unsupported::cudaVDPAUGetDevice];
            both cudaVDPAUSetVDPAUDevice as cudaVDPAUSetVDPAUDevice [unsupported::cudaVDPAUSetVDPAUDevice];
            both cudaWaitExternalSemaphoresAsync as cudaWaitExternalSemaphoresAsync [unsupported::cudaWaitExternalSemaphoresAsync];
            both cudaWaitExternalSemaphoresAsync_ptsz as cudaWaitExternalSemaphoresAsync_ptsz [unsupported::cudaWaitExternalSemaphoresAsync_ptsz];
            v12 cudaWaitExternalSemaphoresAsync_v2 as cudaWaitExternalSemaphoresAsync_v2 [unsupported::cudaWaitExternalSemaphoresAsync_v2];
            v12 cudaWaitExternalSemaphoresAsync_v2_ptsz as cudaWaitExternalSemaphoresAsync_v2_ptsz [unsupported::cudaWaitExternalSemaphoresAsync_v2_ptsz];            // END entries
        }
    };
}
pub(crate) use for_each_runtime_entry_point;

/// Which runtimes an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// 12.x and 13.x alike.
    Both,
    /// 12.x only.
    V12,
    /// 13.x only.
    V13,
}

/// An entry point.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name that programs call.
    pub name: &'static str,
    /// The runtimes it belongs to.
    pub node: Node,
    /// The function behind it.
    pub address: *const (),
    /// Whether there is more behind it than a refusal.
    #[cfg(test)]
    pub implemented: bool,
}

// SAFETY: the address is that of a function, which never changes.
unsafe impl Sync for Entry {}

macro_rules! node {
    (both) => {
        Node::Both
    };
    (v12) => {
        Node::V12
    };
    (v13) => {
        Node::V13
    };
}

#[cfg(test)]
macro_rules! is_implemented {
    (unsupported $($rest:tt)*) => {
        false
    };
    ($($path:tt)*) => {
        true
    };
}

macro_rules! make_table {
    ($($node:ident $name:ident as $symbol:ident [$($path:tt)+];)*) => {
        static TABLE: &[Entry] = &[$(Entry {
            name: stringify!($name),
            node: node!($node),
            address: crate::runtime::$($path)+ as *const (),
            #[cfg(test)]
            implemented: is_implemented!($($path)+),
        },)*];
    };
}
for_each_runtime_entry_point!(make_table);

/// All entries, ascending by name.
pub fn entries() -> &'static [Entry] {
    TABLE
}

/// Name and function of every entry point of a runtime of the version given (12090 is 12.9).
#[cfg(test)]
pub fn entry_points(runtime_version: u32) -> impl Iterator<Item = (&'static str, *const ())> {
    let node = if runtime_version < 13000 { Node::V12 } else { Node::V13 };
    TABLE.iter().filter(move |e| e.node == Node::Both || e.node == node).map(|e| (e.name, e.address))
}

/// Name, runtimes, and whether it is implemented, of every entry point.
#[cfg(test)]
pub fn status() -> impl Iterator<Item = (&'static str, Node, bool)> {
    TABLE.iter().map(|e| (e.name, e.node, e.implemented))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runtime_has_each_name_once() {
        for (version, count) in [(12090, 435), (13000, 422)] {
            let names: Vec<_> = entry_points(version).map(|e| e.0).collect();
            assert_eq!(names.len(), count);
            assert!(names.windows(2).all(|w| w[0] < w[1]));
            assert!(entry_points(version).all(|e| !e.1.is_null()));
        }
    }

    #[test]
    fn per_thread_names_have_functions_of_their_own() {
        for version in [12090, 13000] {
            let table: std::collections::HashMap<_, _> = entry_points(version).collect();
            for e in entries().iter().filter(|e| e.implemented) {
                let plain = e.name.strip_suffix("_ptds").or_else(|| e.name.strip_suffix("_ptsz"));
                if let Some(plain) = plain.and_then(|n| table.get(n))
                    && let Some(own) = table.get(e.name)
                {
                    assert_ne!(plain, own, "{}", e.name);
                }
            }
        }
    }
}
