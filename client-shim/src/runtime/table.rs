//! Every entry point of the CUDA runtime's library, and the function behind it.
//!
//! One list serves all: the loader redirects a statically linked runtime by it, the exported symbols are
//! made from it, and the documentation's table of supported calls is written from it. `both` entries have
//! one function for the 12.x and the 13.x runtime; where the two disagree about a call's arguments, or
//! where only one has it, there is an entry for each (`v12`, `v13`). Names that end in `_ptds` and `_ptsz`
//! are what programs call that were compiled for per-thread default streams.
//!
//! Functions of [`super::unsupported`] say their name and return cudaErrorNotSupported.

/// Calls the macro named with all entries: `node name [path in crate::runtime];`.
macro_rules! for_each_runtime_entry_point {
    ($callback:ident) => {
        $callback! {
            // BEGIN entries
            both __cudaGetKernel [unsupported::__cudaGetKernel];
            v13 __cudaGetProcAddress [unsupported::__cudaGetProcAddress];
            both __cudaInitModule [unsupported::__cudaInitModule];
            both __cudaLaunchKernel [unsupported::__cudaLaunchKernel];
            both __cudaLaunchKernel_ptsz [unsupported::__cudaLaunchKernel_ptsz];
            both __cudaPopCallConfiguration [unsupported::__cudaPopCallConfiguration];
            both __cudaPushCallConfiguration [unsupported::__cudaPushCallConfiguration];
            both __cudaRegisterFatBinary [unsupported::__cudaRegisterFatBinary];
            both __cudaRegisterFatBinaryEnd [unsupported::__cudaRegisterFatBinaryEnd];
            both __cudaRegisterFunction [unsupported::__cudaRegisterFunction];
            both __cudaRegisterHostVar [unsupported::__cudaRegisterHostVar];
            both __cudaRegisterManagedVar [unsupported::__cudaRegisterManagedVar];
            both __cudaRegisterUnifiedTable [unsupported::__cudaRegisterUnifiedTable];
            both __cudaRegisterVar [unsupported::__cudaRegisterVar];
            both __cudaUnregisterFatBinary [unsupported::__cudaUnregisterFatBinary];
            both cudaArrayGetInfo [unsupported::cudaArrayGetInfo];
            both cudaArrayGetMemoryRequirements [unsupported::cudaArrayGetMemoryRequirements];
            both cudaArrayGetPlane [unsupported::cudaArrayGetPlane];
            both cudaArrayGetSparseProperties [unsupported::cudaArrayGetSparseProperties];
            both cudaChooseDevice [unsupported::cudaChooseDevice];
            both cudaCreateChannelDesc [unsupported::cudaCreateChannelDesc];
            both cudaCreateSurfaceObject [unsupported::cudaCreateSurfaceObject];
            both cudaCreateTextureObject [unsupported::cudaCreateTextureObject];
            both cudaCtxResetPersistingL2Cache [unsupported::cudaCtxResetPersistingL2Cache];
            both cudaDestroyExternalMemory [unsupported::cudaDestroyExternalMemory];
            both cudaDestroyExternalSemaphore [unsupported::cudaDestroyExternalSemaphore];
            both cudaDestroySurfaceObject [unsupported::cudaDestroySurfaceObject];
            both cudaDestroyTextureObject [unsupported::cudaDestroyTextureObject];
            both cudaDeviceCanAccessPeer [unsupported::cudaDeviceCanAccessPeer];
            both cudaDeviceDisablePeerAccess [unsupported::cudaDeviceDisablePeerAccess];
            both cudaDeviceEnablePeerAccess [unsupported::cudaDeviceEnablePeerAccess];
            both cudaDeviceFlushGPUDirectRDMAWrites [unsupported::cudaDeviceFlushGPUDirectRDMAWrites];
            both cudaDeviceGetAttribute [unsupported::cudaDeviceGetAttribute];
            both cudaDeviceGetByPCIBusId [unsupported::cudaDeviceGetByPCIBusId];
            both cudaDeviceGetCacheConfig [unsupported::cudaDeviceGetCacheConfig];
            both cudaDeviceGetDefaultMemPool [unsupported::cudaDeviceGetDefaultMemPool];
            both cudaDeviceGetGraphMemAttribute [unsupported::cudaDeviceGetGraphMemAttribute];
            v13 cudaDeviceGetHostAtomicCapabilities [unsupported::cudaDeviceGetHostAtomicCapabilities];
            both cudaDeviceGetLimit [unsupported::cudaDeviceGetLimit];
            both cudaDeviceGetMemPool [unsupported::cudaDeviceGetMemPool];
            both cudaDeviceGetNvSciSyncAttributes [unsupported::cudaDeviceGetNvSciSyncAttributes];
            v13 cudaDeviceGetP2PAtomicCapabilities [unsupported::cudaDeviceGetP2PAtomicCapabilities];
            both cudaDeviceGetP2PAttribute [unsupported::cudaDeviceGetP2PAttribute];
            both cudaDeviceGetPCIBusId [unsupported::cudaDeviceGetPCIBusId];
            both cudaDeviceGetSharedMemConfig [unsupported::cudaDeviceGetSharedMemConfig];
            both cudaDeviceGetStreamPriorityRange [unsupported::cudaDeviceGetStreamPriorityRange];
            both cudaDeviceGetTexture1DLinearMaxWidth [unsupported::cudaDeviceGetTexture1DLinearMaxWidth];
            both cudaDeviceGraphMemTrim [unsupported::cudaDeviceGraphMemTrim];
            both cudaDeviceRegisterAsyncNotification [unsupported::cudaDeviceRegisterAsyncNotification];
            both cudaDeviceReset [unsupported::cudaDeviceReset];
            both cudaDeviceSetCacheConfig [unsupported::cudaDeviceSetCacheConfig];
            both cudaDeviceSetGraphMemAttribute [unsupported::cudaDeviceSetGraphMemAttribute];
            both cudaDeviceSetLimit [unsupported::cudaDeviceSetLimit];
            both cudaDeviceSetMemPool [unsupported::cudaDeviceSetMemPool];
            both cudaDeviceSetSharedMemConfig [unsupported::cudaDeviceSetSharedMemConfig];
            both cudaDeviceSynchronize [unsupported::cudaDeviceSynchronize];
            both cudaDeviceUnregisterAsyncNotification [unsupported::cudaDeviceUnregisterAsyncNotification];
            both cudaDriverGetVersion [unsupported::cudaDriverGetVersion];
            both cudaEGLStreamConsumerAcquireFrame [unsupported::cudaEGLStreamConsumerAcquireFrame];
            both cudaEGLStreamConsumerConnect [unsupported::cudaEGLStreamConsumerConnect];
            both cudaEGLStreamConsumerConnectWithFlags [unsupported::cudaEGLStreamConsumerConnectWithFlags];
            both cudaEGLStreamConsumerDisconnect [unsupported::cudaEGLStreamConsumerDisconnect];
            both cudaEGLStreamConsumerReleaseFrame [unsupported::cudaEGLStreamConsumerReleaseFrame];
            both cudaEGLStreamProducerConnect [unsupported::cudaEGLStreamProducerConnect];
            both cudaEGLStreamProducerDisconnect [unsupported::cudaEGLStreamProducerDisconnect];
            both cudaEGLStreamProducerPresentFrame [unsupported::cudaEGLStreamProducerPresentFrame];
            both cudaEGLStreamProducerReturnFrame [unsupported::cudaEGLStreamProducerReturnFrame];
            both cudaEventCreate [unsupported::cudaEventCreate];
            both cudaEventCreateFromEGLSync [unsupported::cudaEventCreateFromEGLSync];
            both cudaEventCreateWithFlags [unsupported::cudaEventCreateWithFlags];
            both cudaEventDestroy [unsupported::cudaEventDestroy];
            both cudaEventElapsedTime [unsupported::cudaEventElapsedTime];
            v12 cudaEventElapsedTime_v2 [unsupported::cudaEventElapsedTime_v2];
            both cudaEventQuery [unsupported::cudaEventQuery];
            both cudaEventRecord [unsupported::cudaEventRecord];
            both cudaEventRecordWithFlags [unsupported::cudaEventRecordWithFlags];
            both cudaEventRecordWithFlags_ptsz [unsupported::cudaEventRecordWithFlags_ptsz];
            both cudaEventRecord_ptsz [unsupported::cudaEventRecord_ptsz];
            both cudaEventSynchronize [unsupported::cudaEventSynchronize];
            both cudaExternalMemoryGetMappedBuffer [unsupported::cudaExternalMemoryGetMappedBuffer];
            both cudaExternalMemoryGetMappedMipmappedArray [unsupported::cudaExternalMemoryGetMappedMipmappedArray];
            both cudaFree [unsupported::cudaFree];
            both cudaFreeArray [unsupported::cudaFreeArray];
            both cudaFreeAsync [unsupported::cudaFreeAsync];
            both cudaFreeAsync_ptsz [unsupported::cudaFreeAsync_ptsz];
            both cudaFreeHost [unsupported::cudaFreeHost];
            both cudaFreeMipmappedArray [unsupported::cudaFreeMipmappedArray];
            both cudaFuncGetAttributes [unsupported::cudaFuncGetAttributes];
            both cudaFuncGetName [unsupported::cudaFuncGetName];
            both cudaFuncGetParamInfo [unsupported::cudaFuncGetParamInfo];
            both cudaFuncSetAttribute [unsupported::cudaFuncSetAttribute];
            both cudaFuncSetCacheConfig [unsupported::cudaFuncSetCacheConfig];
            both cudaFuncSetSharedMemConfig [unsupported::cudaFuncSetSharedMemConfig];
            both cudaGLGetDevices [unsupported::cudaGLGetDevices];
            both cudaGLMapBufferObject [unsupported::cudaGLMapBufferObject];
            both cudaGLMapBufferObjectAsync [unsupported::cudaGLMapBufferObjectAsync];
            both cudaGLRegisterBufferObject [unsupported::cudaGLRegisterBufferObject];
            both cudaGLSetBufferObjectMapFlags [unsupported::cudaGLSetBufferObjectMapFlags];
            both cudaGLSetGLDevice [unsupported::cudaGLSetGLDevice];
            both cudaGLUnmapBufferObject [unsupported::cudaGLUnmapBufferObject];
            both cudaGLUnmapBufferObjectAsync [unsupported::cudaGLUnmapBufferObjectAsync];
            both cudaGLUnregisterBufferObject [unsupported::cudaGLUnregisterBufferObject];
            both cudaGetChannelDesc [unsupported::cudaGetChannelDesc];
            both cudaGetDevice [unsupported::cudaGetDevice];
            both cudaGetDeviceCount [unsupported::cudaGetDeviceCount];
            both cudaGetDeviceFlags [unsupported::cudaGetDeviceFlags];
            both cudaGetDeviceProperties [unsupported::cudaGetDeviceProperties];
            v12 cudaGetDeviceProperties_v2 [unsupported::cudaGetDeviceProperties_v2];
            both cudaGetDriverEntryPoint [unsupported::cudaGetDriverEntryPoint];
            both cudaGetDriverEntryPointByVersion [unsupported::cudaGetDriverEntryPointByVersion];
            both cudaGetDriverEntryPointByVersion_ptsz [unsupported::cudaGetDriverEntryPointByVersion_ptsz];
            both cudaGetDriverEntryPoint_ptsz [unsupported::cudaGetDriverEntryPoint_ptsz];
            both cudaGetErrorName [unsupported::cudaGetErrorName];
            both cudaGetErrorString [unsupported::cudaGetErrorString];
            both cudaGetExportTable [unsupported::cudaGetExportTable];
            both cudaGetFuncBySymbol [unsupported::cudaGetFuncBySymbol];
            both cudaGetKernel [unsupported::cudaGetKernel];
            both cudaGetLastError [unsupported::cudaGetLastError];
            both cudaGetMipmappedArrayLevel [unsupported::cudaGetMipmappedArrayLevel];
            both cudaGetSurfaceObjectResourceDesc [unsupported::cudaGetSurfaceObjectResourceDesc];
            both cudaGetSymbolAddress [unsupported::cudaGetSymbolAddress];
            both cudaGetSymbolSize [unsupported::cudaGetSymbolSize];
            both cudaGetTextureObjectResourceDesc [unsupported::cudaGetTextureObjectResourceDesc];
            both cudaGetTextureObjectResourceViewDesc [unsupported::cudaGetTextureObjectResourceViewDesc];
            both cudaGetTextureObjectTextureDesc [unsupported::cudaGetTextureObjectTextureDesc];
            both cudaGraphAddChildGraphNode [unsupported::cudaGraphAddChildGraphNode];
            both cudaGraphAddDependencies [unsupported::cudaGraphAddDependencies];
            v12 cudaGraphAddDependencies_v2 [unsupported::cudaGraphAddDependencies_v2];
            both cudaGraphAddEmptyNode [unsupported::cudaGraphAddEmptyNode];
            both cudaGraphAddEventRecordNode [unsupported::cudaGraphAddEventRecordNode];
            both cudaGraphAddEventWaitNode [unsupported::cudaGraphAddEventWaitNode];
            both cudaGraphAddExternalSemaphoresSignalNode [unsupported::cudaGraphAddExternalSemaphoresSignalNode];
            both cudaGraphAddExternalSemaphoresWaitNode [unsupported::cudaGraphAddExternalSemaphoresWaitNode];
            both cudaGraphAddHostNode [unsupported::cudaGraphAddHostNode];
            both cudaGraphAddKernelNode [unsupported::cudaGraphAddKernelNode];
            both cudaGraphAddMemAllocNode [unsupported::cudaGraphAddMemAllocNode];
            both cudaGraphAddMemFreeNode [unsupported::cudaGraphAddMemFreeNode];
            both cudaGraphAddMemcpyNode [unsupported::cudaGraphAddMemcpyNode];
            both cudaGraphAddMemcpyNode1D [unsupported::cudaGraphAddMemcpyNode1D];
            both cudaGraphAddMemcpyNodeFromSymbol [unsupported::cudaGraphAddMemcpyNodeFromSymbol];
            both cudaGraphAddMemcpyNodeToSymbol [unsupported::cudaGraphAddMemcpyNodeToSymbol];
            both cudaGraphAddMemsetNode [unsupported::cudaGraphAddMemsetNode];
            both cudaGraphAddNode [unsupported::cudaGraphAddNode];
            v12 cudaGraphAddNode_v2 [unsupported::cudaGraphAddNode_v2];
            both cudaGraphChildGraphNodeGetGraph [unsupported::cudaGraphChildGraphNodeGetGraph];
            both cudaGraphClone [unsupported::cudaGraphClone];
            both cudaGraphConditionalHandleCreate [unsupported::cudaGraphConditionalHandleCreate];
            both cudaGraphCreate [unsupported::cudaGraphCreate];
            both cudaGraphDebugDotPrint [unsupported::cudaGraphDebugDotPrint];
            both cudaGraphDestroy [unsupported::cudaGraphDestroy];
            both cudaGraphDestroyNode [unsupported::cudaGraphDestroyNode];
            both cudaGraphEventRecordNodeGetEvent [unsupported::cudaGraphEventRecordNodeGetEvent];
            both cudaGraphEventRecordNodeSetEvent [unsupported::cudaGraphEventRecordNodeSetEvent];
            both cudaGraphEventWaitNodeGetEvent [unsupported::cudaGraphEventWaitNodeGetEvent];
            both cudaGraphEventWaitNodeSetEvent [unsupported::cudaGraphEventWaitNodeSetEvent];
            both cudaGraphExecChildGraphNodeSetParams [unsupported::cudaGraphExecChildGraphNodeSetParams];
            both cudaGraphExecDestroy [unsupported::cudaGraphExecDestroy];
            both cudaGraphExecEventRecordNodeSetEvent [unsupported::cudaGraphExecEventRecordNodeSetEvent];
            both cudaGraphExecEventWaitNodeSetEvent [unsupported::cudaGraphExecEventWaitNodeSetEvent];
            both cudaGraphExecExternalSemaphoresSignalNodeSetParams [unsupported::cudaGraphExecExternalSemaphoresSignalNodeSetParams];
            both cudaGraphExecExternalSemaphoresWaitNodeSetParams [unsupported::cudaGraphExecExternalSemaphoresWaitNodeSetParams];
            both cudaGraphExecGetFlags [unsupported::cudaGraphExecGetFlags];
            both cudaGraphExecHostNodeSetParams [unsupported::cudaGraphExecHostNodeSetParams];
            both cudaGraphExecKernelNodeSetParams [unsupported::cudaGraphExecKernelNodeSetParams];
            both cudaGraphExecMemcpyNodeSetParams [unsupported::cudaGraphExecMemcpyNodeSetParams];
            both cudaGraphExecMemcpyNodeSetParams1D [unsupported::cudaGraphExecMemcpyNodeSetParams1D];
            both cudaGraphExecMemcpyNodeSetParamsFromSymbol [unsupported::cudaGraphExecMemcpyNodeSetParamsFromSymbol];
            both cudaGraphExecMemcpyNodeSetParamsToSymbol [unsupported::cudaGraphExecMemcpyNodeSetParamsToSymbol];
            both cudaGraphExecMemsetNodeSetParams [unsupported::cudaGraphExecMemsetNodeSetParams];
            both cudaGraphExecNodeSetParams [unsupported::cudaGraphExecNodeSetParams];
            both cudaGraphExecUpdate [unsupported::cudaGraphExecUpdate];
            both cudaGraphExternalSemaphoresSignalNodeGetParams [unsupported::cudaGraphExternalSemaphoresSignalNodeGetParams];
            both cudaGraphExternalSemaphoresSignalNodeSetParams [unsupported::cudaGraphExternalSemaphoresSignalNodeSetParams];
            both cudaGraphExternalSemaphoresWaitNodeGetParams [unsupported::cudaGraphExternalSemaphoresWaitNodeGetParams];
            both cudaGraphExternalSemaphoresWaitNodeSetParams [unsupported::cudaGraphExternalSemaphoresWaitNodeSetParams];
            both cudaGraphGetEdges [unsupported::cudaGraphGetEdges];
            v12 cudaGraphGetEdges_v2 [unsupported::cudaGraphGetEdges_v2];
            both cudaGraphGetNodes [unsupported::cudaGraphGetNodes];
            both cudaGraphGetRootNodes [unsupported::cudaGraphGetRootNodes];
            both cudaGraphHostNodeGetParams [unsupported::cudaGraphHostNodeGetParams];
            both cudaGraphHostNodeSetParams [unsupported::cudaGraphHostNodeSetParams];
            both cudaGraphInstantiate [unsupported::cudaGraphInstantiate];
            both cudaGraphInstantiateWithFlags [unsupported::cudaGraphInstantiateWithFlags];
            both cudaGraphInstantiateWithParams [unsupported::cudaGraphInstantiateWithParams];
            both cudaGraphInstantiateWithParams_ptsz [unsupported::cudaGraphInstantiateWithParams_ptsz];
            both cudaGraphKernelNodeCopyAttributes [unsupported::cudaGraphKernelNodeCopyAttributes];
            both cudaGraphKernelNodeGetAttribute [unsupported::cudaGraphKernelNodeGetAttribute];
            both cudaGraphKernelNodeGetParams [unsupported::cudaGraphKernelNodeGetParams];
            both cudaGraphKernelNodeSetAttribute [unsupported::cudaGraphKernelNodeSetAttribute];
            both cudaGraphKernelNodeSetParams [unsupported::cudaGraphKernelNodeSetParams];
            both cudaGraphLaunch [unsupported::cudaGraphLaunch];
            both cudaGraphLaunch_ptsz [unsupported::cudaGraphLaunch_ptsz];
            both cudaGraphMemAllocNodeGetParams [unsupported::cudaGraphMemAllocNodeGetParams];
            both cudaGraphMemFreeNodeGetParams [unsupported::cudaGraphMemFreeNodeGetParams];
            both cudaGraphMemcpyNodeGetParams [unsupported::cudaGraphMemcpyNodeGetParams];
            both cudaGraphMemcpyNodeSetParams [unsupported::cudaGraphMemcpyNodeSetParams];
            both cudaGraphMemcpyNodeSetParams1D [unsupported::cudaGraphMemcpyNodeSetParams1D];
            both cudaGraphMemcpyNodeSetParamsFromSymbol [unsupported::cudaGraphMemcpyNodeSetParamsFromSymbol];
            both cudaGraphMemcpyNodeSetParamsToSymbol [unsupported::cudaGraphMemcpyNodeSetParamsToSymbol];
            both cudaGraphMemsetNodeGetParams [unsupported::cudaGraphMemsetNodeGetParams];
            both cudaGraphMemsetNodeSetParams [unsupported::cudaGraphMemsetNodeSetParams];
            both cudaGraphNodeFindInClone [unsupported::cudaGraphNodeFindInClone];
            both cudaGraphNodeGetDependencies [unsupported::cudaGraphNodeGetDependencies];
            v12 cudaGraphNodeGetDependencies_v2 [unsupported::cudaGraphNodeGetDependencies_v2];
            both cudaGraphNodeGetDependentNodes [unsupported::cudaGraphNodeGetDependentNodes];
            v12 cudaGraphNodeGetDependentNodes_v2 [unsupported::cudaGraphNodeGetDependentNodes_v2];
            both cudaGraphNodeGetEnabled [unsupported::cudaGraphNodeGetEnabled];
            both cudaGraphNodeGetType [unsupported::cudaGraphNodeGetType];
            both cudaGraphNodeSetEnabled [unsupported::cudaGraphNodeSetEnabled];
            both cudaGraphNodeSetParams [unsupported::cudaGraphNodeSetParams];
            both cudaGraphReleaseUserObject [unsupported::cudaGraphReleaseUserObject];
            both cudaGraphRemoveDependencies [unsupported::cudaGraphRemoveDependencies];
            v12 cudaGraphRemoveDependencies_v2 [unsupported::cudaGraphRemoveDependencies_v2];
            both cudaGraphRetainUserObject [unsupported::cudaGraphRetainUserObject];
            both cudaGraphUpload [unsupported::cudaGraphUpload];
            both cudaGraphUpload_ptsz [unsupported::cudaGraphUpload_ptsz];
            both cudaGraphicsEGLRegisterImage [unsupported::cudaGraphicsEGLRegisterImage];
            both cudaGraphicsGLRegisterBuffer [unsupported::cudaGraphicsGLRegisterBuffer];
            both cudaGraphicsGLRegisterImage [unsupported::cudaGraphicsGLRegisterImage];
            both cudaGraphicsMapResources [unsupported::cudaGraphicsMapResources];
            both cudaGraphicsResourceGetMappedEglFrame [unsupported::cudaGraphicsResourceGetMappedEglFrame];
            both cudaGraphicsResourceGetMappedMipmappedArray [unsupported::cudaGraphicsResourceGetMappedMipmappedArray];
            both cudaGraphicsResourceGetMappedPointer [unsupported::cudaGraphicsResourceGetMappedPointer];
            both cudaGraphicsResourceSetMapFlags [unsupported::cudaGraphicsResourceSetMapFlags];
            both cudaGraphicsSubResourceGetMappedArray [unsupported::cudaGraphicsSubResourceGetMappedArray];
            both cudaGraphicsUnmapResources [unsupported::cudaGraphicsUnmapResources];
            both cudaGraphicsUnregisterResource [unsupported::cudaGraphicsUnregisterResource];
            both cudaGraphicsVDPAURegisterOutputSurface [unsupported::cudaGraphicsVDPAURegisterOutputSurface];
            both cudaGraphicsVDPAURegisterVideoSurface [unsupported::cudaGraphicsVDPAURegisterVideoSurface];
            both cudaHostAlloc [unsupported::cudaHostAlloc];
            both cudaHostGetDevicePointer [unsupported::cudaHostGetDevicePointer];
            both cudaHostGetFlags [unsupported::cudaHostGetFlags];
            both cudaHostRegister [unsupported::cudaHostRegister];
            both cudaHostUnregister [unsupported::cudaHostUnregister];
            both cudaImportExternalMemory [unsupported::cudaImportExternalMemory];
            both cudaImportExternalSemaphore [unsupported::cudaImportExternalSemaphore];
            both cudaInitDevice [unsupported::cudaInitDevice];
            both cudaIpcCloseMemHandle [unsupported::cudaIpcCloseMemHandle];
            both cudaIpcGetEventHandle [unsupported::cudaIpcGetEventHandle];
            both cudaIpcGetMemHandle [unsupported::cudaIpcGetMemHandle];
            both cudaIpcOpenEventHandle [unsupported::cudaIpcOpenEventHandle];
            both cudaIpcOpenMemHandle [unsupported::cudaIpcOpenMemHandle];
            both cudaKernelSetAttributeForDevice [unsupported::cudaKernelSetAttributeForDevice];
            both cudaLaunchCooperativeKernel [unsupported::cudaLaunchCooperativeKernel];
            v12 cudaLaunchCooperativeKernelMultiDevice [unsupported::cudaLaunchCooperativeKernelMultiDevice];
            both cudaLaunchCooperativeKernel_ptsz [unsupported::cudaLaunchCooperativeKernel_ptsz];
            both cudaLaunchHostFunc [unsupported::cudaLaunchHostFunc];
            both cudaLaunchHostFunc_ptsz [unsupported::cudaLaunchHostFunc_ptsz];
            both cudaLaunchKernel [unsupported::cudaLaunchKernel];
            both cudaLaunchKernelExC [unsupported::cudaLaunchKernelExC];
            both cudaLaunchKernelExC_ptsz [unsupported::cudaLaunchKernelExC_ptsz];
            both cudaLaunchKernel_ptsz [unsupported::cudaLaunchKernel_ptsz];
            both cudaLibraryEnumerateKernels [unsupported::cudaLibraryEnumerateKernels];
            both cudaLibraryGetGlobal [unsupported::cudaLibraryGetGlobal];
            both cudaLibraryGetKernel [unsupported::cudaLibraryGetKernel];
            both cudaLibraryGetKernelCount [unsupported::cudaLibraryGetKernelCount];
            both cudaLibraryGetManaged [unsupported::cudaLibraryGetManaged];
            both cudaLibraryGetUnifiedFunction [unsupported::cudaLibraryGetUnifiedFunction];
            both cudaLibraryLoadData [unsupported::cudaLibraryLoadData];
            both cudaLibraryLoadFromFile [unsupported::cudaLibraryLoadFromFile];
            both cudaLibraryUnload [unsupported::cudaLibraryUnload];
            v13 cudaLogsCurrent [unsupported::cudaLogsCurrent];
            v13 cudaLogsDumpToFile [unsupported::cudaLogsDumpToFile];
            v13 cudaLogsDumpToMemory [unsupported::cudaLogsDumpToMemory];
            v13 cudaLogsRegisterCallback [unsupported::cudaLogsRegisterCallback];
            v13 cudaLogsUnregisterCallback [unsupported::cudaLogsUnregisterCallback];
            both cudaMalloc [unsupported::cudaMalloc];
            both cudaMalloc3D [unsupported::cudaMalloc3D];
            both cudaMalloc3DArray [unsupported::cudaMalloc3DArray];
            both cudaMallocArray [unsupported::cudaMallocArray];
            both cudaMallocAsync [unsupported::cudaMallocAsync];
            both cudaMallocAsync_ptsz [unsupported::cudaMallocAsync_ptsz];
            both cudaMallocFromPoolAsync [unsupported::cudaMallocFromPoolAsync];
            both cudaMallocFromPoolAsync_ptsz [unsupported::cudaMallocFromPoolAsync_ptsz];
            both cudaMallocHost [unsupported::cudaMallocHost];
            both cudaMallocManaged [unsupported::cudaMallocManaged];
            both cudaMallocMipmappedArray [unsupported::cudaMallocMipmappedArray];
            both cudaMallocPitch [unsupported::cudaMallocPitch];
            both cudaMemAdvise [unsupported::cudaMemAdvise];
            v12 cudaMemAdvise_v2 [unsupported::cudaMemAdvise_v2];
            v13 cudaMemDiscardAndPrefetchBatchAsync [unsupported::cudaMemDiscardAndPrefetchBatchAsync];
            v13 cudaMemDiscardAndPrefetchBatchAsync_ptsz [unsupported::cudaMemDiscardAndPrefetchBatchAsync_ptsz];
            v13 cudaMemDiscardBatchAsync [unsupported::cudaMemDiscardBatchAsync];
            v13 cudaMemDiscardBatchAsync_ptsz [unsupported::cudaMemDiscardBatchAsync_ptsz];
            v13 cudaMemGetDefaultMemPool [unsupported::cudaMemGetDefaultMemPool];
            both cudaMemGetInfo [unsupported::cudaMemGetInfo];
            v13 cudaMemGetMemPool [unsupported::cudaMemGetMemPool];
            both cudaMemPoolCreate [unsupported::cudaMemPoolCreate];
            both cudaMemPoolDestroy [unsupported::cudaMemPoolDestroy];
            both cudaMemPoolExportPointer [unsupported::cudaMemPoolExportPointer];
            both cudaMemPoolExportToShareableHandle [unsupported::cudaMemPoolExportToShareableHandle];
            both cudaMemPoolGetAccess [unsupported::cudaMemPoolGetAccess];
            both cudaMemPoolGetAttribute [unsupported::cudaMemPoolGetAttribute];
            both cudaMemPoolImportFromShareableHandle [unsupported::cudaMemPoolImportFromShareableHandle];
            both cudaMemPoolImportPointer [unsupported::cudaMemPoolImportPointer];
            both cudaMemPoolSetAccess [unsupported::cudaMemPoolSetAccess];
            both cudaMemPoolSetAttribute [unsupported::cudaMemPoolSetAttribute];
            both cudaMemPoolTrimTo [unsupported::cudaMemPoolTrimTo];
            both cudaMemPrefetchAsync [unsupported::cudaMemPrefetchAsync];
            both cudaMemPrefetchAsync_ptsz [unsupported::cudaMemPrefetchAsync_ptsz];
            v12 cudaMemPrefetchAsync_v2 [unsupported::cudaMemPrefetchAsync_v2];
            v12 cudaMemPrefetchAsync_v2_ptsz [unsupported::cudaMemPrefetchAsync_v2_ptsz];
            v13 cudaMemPrefetchBatchAsync [unsupported::cudaMemPrefetchBatchAsync];
            v13 cudaMemPrefetchBatchAsync_ptsz [unsupported::cudaMemPrefetchBatchAsync_ptsz];
            both cudaMemRangeGetAttribute [unsupported::cudaMemRangeGetAttribute];
            both cudaMemRangeGetAttributes [unsupported::cudaMemRangeGetAttributes];
            v13 cudaMemSetMemPool [unsupported::cudaMemSetMemPool];
            both cudaMemcpy [unsupported::cudaMemcpy];
            both cudaMemcpy2D [unsupported::cudaMemcpy2D];
            both cudaMemcpy2DArrayToArray [unsupported::cudaMemcpy2DArrayToArray];
            both cudaMemcpy2DArrayToArray_ptds [unsupported::cudaMemcpy2DArrayToArray_ptds];
            both cudaMemcpy2DAsync [unsupported::cudaMemcpy2DAsync];
            both cudaMemcpy2DAsync_ptsz [unsupported::cudaMemcpy2DAsync_ptsz];
            both cudaMemcpy2DFromArray [unsupported::cudaMemcpy2DFromArray];
            both cudaMemcpy2DFromArrayAsync [unsupported::cudaMemcpy2DFromArrayAsync];
            both cudaMemcpy2DFromArrayAsync_ptsz [unsupported::cudaMemcpy2DFromArrayAsync_ptsz];
            both cudaMemcpy2DFromArray_ptds [unsupported::cudaMemcpy2DFromArray_ptds];
            both cudaMemcpy2DToArray [unsupported::cudaMemcpy2DToArray];
            both cudaMemcpy2DToArrayAsync [unsupported::cudaMemcpy2DToArrayAsync];
            both cudaMemcpy2DToArrayAsync_ptsz [unsupported::cudaMemcpy2DToArrayAsync_ptsz];
            both cudaMemcpy2DToArray_ptds [unsupported::cudaMemcpy2DToArray_ptds];
            both cudaMemcpy2D_ptds [unsupported::cudaMemcpy2D_ptds];
            both cudaMemcpy3D [unsupported::cudaMemcpy3D];
            both cudaMemcpy3DAsync [unsupported::cudaMemcpy3DAsync];
            both cudaMemcpy3DAsync_ptsz [unsupported::cudaMemcpy3DAsync_ptsz];
            both cudaMemcpy3DBatchAsync [unsupported::cudaMemcpy3DBatchAsync];
            both cudaMemcpy3DBatchAsync_ptsz [unsupported::cudaMemcpy3DBatchAsync_ptsz];
            both cudaMemcpy3DPeer [unsupported::cudaMemcpy3DPeer];
            both cudaMemcpy3DPeerAsync [unsupported::cudaMemcpy3DPeerAsync];
            both cudaMemcpy3DPeerAsync_ptsz [unsupported::cudaMemcpy3DPeerAsync_ptsz];
            both cudaMemcpy3DPeer_ptds [unsupported::cudaMemcpy3DPeer_ptds];
            both cudaMemcpy3D_ptds [unsupported::cudaMemcpy3D_ptds];
            both cudaMemcpyArrayToArray [unsupported::cudaMemcpyArrayToArray];
            both cudaMemcpyArrayToArray_ptds [unsupported::cudaMemcpyArrayToArray_ptds];
            both cudaMemcpyAsync [unsupported::cudaMemcpyAsync];
            both cudaMemcpyAsync_ptsz [unsupported::cudaMemcpyAsync_ptsz];
            both cudaMemcpyBatchAsync [unsupported::cudaMemcpyBatchAsync];
            both cudaMemcpyBatchAsync_ptsz [unsupported::cudaMemcpyBatchAsync_ptsz];
            both cudaMemcpyFromArray [unsupported::cudaMemcpyFromArray];
            both cudaMemcpyFromArrayAsync [unsupported::cudaMemcpyFromArrayAsync];
            both cudaMemcpyFromArrayAsync_ptsz [unsupported::cudaMemcpyFromArrayAsync_ptsz];
            both cudaMemcpyFromArray_ptds [unsupported::cudaMemcpyFromArray_ptds];
            both cudaMemcpyFromSymbol [unsupported::cudaMemcpyFromSymbol];
            both cudaMemcpyFromSymbolAsync [unsupported::cudaMemcpyFromSymbolAsync];
            both cudaMemcpyFromSymbolAsync_ptsz [unsupported::cudaMemcpyFromSymbolAsync_ptsz];
            both cudaMemcpyFromSymbol_ptds [unsupported::cudaMemcpyFromSymbol_ptds];
            both cudaMemcpyPeer [unsupported::cudaMemcpyPeer];
            both cudaMemcpyPeerAsync [unsupported::cudaMemcpyPeerAsync];
            both cudaMemcpyToArray [unsupported::cudaMemcpyToArray];
            both cudaMemcpyToArrayAsync [unsupported::cudaMemcpyToArrayAsync];
            both cudaMemcpyToArrayAsync_ptsz [unsupported::cudaMemcpyToArrayAsync_ptsz];
            both cudaMemcpyToArray_ptds [unsupported::cudaMemcpyToArray_ptds];
            both cudaMemcpyToSymbol [unsupported::cudaMemcpyToSymbol];
            both cudaMemcpyToSymbolAsync [unsupported::cudaMemcpyToSymbolAsync];
            both cudaMemcpyToSymbolAsync_ptsz [unsupported::cudaMemcpyToSymbolAsync_ptsz];
            both cudaMemcpyToSymbol_ptds [unsupported::cudaMemcpyToSymbol_ptds];
            both cudaMemcpy_ptds [unsupported::cudaMemcpy_ptds];
            both cudaMemset [unsupported::cudaMemset];
            both cudaMemset2D [unsupported::cudaMemset2D];
            both cudaMemset2DAsync [unsupported::cudaMemset2DAsync];
            both cudaMemset2DAsync_ptsz [unsupported::cudaMemset2DAsync_ptsz];
            both cudaMemset2D_ptds [unsupported::cudaMemset2D_ptds];
            both cudaMemset3D [unsupported::cudaMemset3D];
            both cudaMemset3DAsync [unsupported::cudaMemset3DAsync];
            both cudaMemset3DAsync_ptsz [unsupported::cudaMemset3DAsync_ptsz];
            both cudaMemset3D_ptds [unsupported::cudaMemset3D_ptds];
            both cudaMemsetAsync [unsupported::cudaMemsetAsync];
            both cudaMemsetAsync_ptsz [unsupported::cudaMemsetAsync_ptsz];
            both cudaMemset_ptds [unsupported::cudaMemset_ptds];
            both cudaMipmappedArrayGetMemoryRequirements [unsupported::cudaMipmappedArrayGetMemoryRequirements];
            both cudaMipmappedArrayGetSparseProperties [unsupported::cudaMipmappedArrayGetSparseProperties];
            both cudaOccupancyAvailableDynamicSMemPerBlock [unsupported::cudaOccupancyAvailableDynamicSMemPerBlock];
            both cudaOccupancyMaxActiveBlocksPerMultiprocessor [unsupported::cudaOccupancyMaxActiveBlocksPerMultiprocessor];
            both cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags [unsupported::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags];
            both cudaOccupancyMaxActiveClusters [unsupported::cudaOccupancyMaxActiveClusters];
            both cudaOccupancyMaxPotentialClusterSize [unsupported::cudaOccupancyMaxPotentialClusterSize];
            both cudaPeekAtLastError [unsupported::cudaPeekAtLastError];
            both cudaPointerGetAttributes [unsupported::cudaPointerGetAttributes];
            both cudaProfilerStart [unsupported::cudaProfilerStart];
            both cudaProfilerStop [unsupported::cudaProfilerStop];
            both cudaRuntimeGetVersion [unsupported::cudaRuntimeGetVersion];
            both cudaSetDevice [unsupported::cudaSetDevice];
            both cudaSetDeviceFlags [unsupported::cudaSetDeviceFlags];
            v12 cudaSetDoubleForDevice [unsupported::cudaSetDoubleForDevice];
            v12 cudaSetDoubleForHost [unsupported::cudaSetDoubleForHost];
            both cudaSetValidDevices [unsupported::cudaSetValidDevices];
            both cudaSignalExternalSemaphoresAsync [unsupported::cudaSignalExternalSemaphoresAsync];
            both cudaSignalExternalSemaphoresAsync_ptsz [unsupported::cudaSignalExternalSemaphoresAsync_ptsz];
            v12 cudaSignalExternalSemaphoresAsync_v2 [unsupported::cudaSignalExternalSemaphoresAsync_v2];
            v12 cudaSignalExternalSemaphoresAsync_v2_ptsz [unsupported::cudaSignalExternalSemaphoresAsync_v2_ptsz];
            both cudaStreamAddCallback [unsupported::cudaStreamAddCallback];
            both cudaStreamAddCallback_ptsz [unsupported::cudaStreamAddCallback_ptsz];
            both cudaStreamAttachMemAsync [unsupported::cudaStreamAttachMemAsync];
            both cudaStreamAttachMemAsync_ptsz [unsupported::cudaStreamAttachMemAsync_ptsz];
            both cudaStreamBeginCapture [unsupported::cudaStreamBeginCapture];
            both cudaStreamBeginCaptureToGraph [unsupported::cudaStreamBeginCaptureToGraph];
            both cudaStreamBeginCaptureToGraph_ptsz [unsupported::cudaStreamBeginCaptureToGraph_ptsz];
            both cudaStreamBeginCapture_ptsz [unsupported::cudaStreamBeginCapture_ptsz];
            both cudaStreamCopyAttributes [unsupported::cudaStreamCopyAttributes];
            both cudaStreamCopyAttributes_ptsz [unsupported::cudaStreamCopyAttributes_ptsz];
            both cudaStreamCreate [unsupported::cudaStreamCreate];
            both cudaStreamCreateWithFlags [unsupported::cudaStreamCreateWithFlags];
            both cudaStreamCreateWithPriority [unsupported::cudaStreamCreateWithPriority];
            both cudaStreamDestroy [unsupported::cudaStreamDestroy];
            both cudaStreamEndCapture [unsupported::cudaStreamEndCapture];
            both cudaStreamEndCapture_ptsz [unsupported::cudaStreamEndCapture_ptsz];
            both cudaStreamGetAttribute [unsupported::cudaStreamGetAttribute];
            both cudaStreamGetAttribute_ptsz [unsupported::cudaStreamGetAttribute_ptsz];
            both cudaStreamGetCaptureInfo [unsupported::cudaStreamGetCaptureInfo];
            both cudaStreamGetCaptureInfo_ptsz [unsupported::cudaStreamGetCaptureInfo_ptsz];
            v12 cudaStreamGetCaptureInfo_v2 [unsupported::cudaStreamGetCaptureInfo_v2];
            v12 cudaStreamGetCaptureInfo_v2_ptsz [unsupported::cudaStreamGetCaptureInfo_v2_ptsz];
            v12 cudaStreamGetCaptureInfo_v3 [unsupported::cudaStreamGetCaptureInfo_v3];
            v12 cudaStreamGetCaptureInfo_v3_ptsz [unsupported::cudaStreamGetCaptureInfo_v3_ptsz];
            both cudaStreamGetDevice [unsupported::cudaStreamGetDevice];
            both cudaStreamGetDevice_ptsz [unsupported::cudaStreamGetDevice_ptsz];
            both cudaStreamGetFlags [unsupported::cudaStreamGetFlags];
            both cudaStreamGetFlags_ptsz [unsupported::cudaStreamGetFlags_ptsz];
            both cudaStreamGetId [unsupported::cudaStreamGetId];
            both cudaStreamGetId_ptsz [unsupported::cudaStreamGetId_ptsz];
            both cudaStreamGetPriority [unsupported::cudaStreamGetPriority];
            both cudaStreamGetPriority_ptsz [unsupported::cudaStreamGetPriority_ptsz];
            both cudaStreamIsCapturing [unsupported::cudaStreamIsCapturing];
            both cudaStreamIsCapturing_ptsz [unsupported::cudaStreamIsCapturing_ptsz];
            both cudaStreamQuery [unsupported::cudaStreamQuery];
            both cudaStreamQuery_ptsz [unsupported::cudaStreamQuery_ptsz];
            both cudaStreamSetAttribute [unsupported::cudaStreamSetAttribute];
            both cudaStreamSetAttribute_ptsz [unsupported::cudaStreamSetAttribute_ptsz];
            both cudaStreamSynchronize [unsupported::cudaStreamSynchronize];
            both cudaStreamSynchronize_ptsz [unsupported::cudaStreamSynchronize_ptsz];
            both cudaStreamUpdateCaptureDependencies [unsupported::cudaStreamUpdateCaptureDependencies];
            both cudaStreamUpdateCaptureDependencies_ptsz [unsupported::cudaStreamUpdateCaptureDependencies_ptsz];
            v12 cudaStreamUpdateCaptureDependencies_v2 [unsupported::cudaStreamUpdateCaptureDependencies_v2];
            v12 cudaStreamUpdateCaptureDependencies_v2_ptsz [unsupported::cudaStreamUpdateCaptureDependencies_v2_ptsz];
            both cudaStreamWaitEvent [unsupported::cudaStreamWaitEvent];
            both cudaStreamWaitEvent_ptsz [unsupported::cudaStreamWaitEvent_ptsz];
            both cudaThreadExchangeStreamCaptureMode [unsupported::cudaThreadExchangeStreamCaptureMode];
            v12 cudaThreadExit [unsupported::cudaThreadExit];
            v12 cudaThreadGetCacheConfig [unsupported::cudaThreadGetCacheConfig];
            v12 cudaThreadGetLimit [unsupported::cudaThreadGetLimit];
            v12 cudaThreadSetCacheConfig [unsupported::cudaThreadSetCacheConfig];
            v12 cudaThreadSetLimit [unsupported::cudaThreadSetLimit];
            v12 cudaThreadSynchronize [unsupported::cudaThreadSynchronize];
            both cudaUserObjectCreate [unsupported::cudaUserObjectCreate];
            both cudaUserObjectRelease [unsupported::cudaUserObjectRelease];
            both cudaUserObjectRetain [unsupported::cudaUserObjectRetain];
            both cudaVDPAUGetDevice [unsupported::cudaVDPAUGetDevice];
            both cudaVDPAUSetVDPAUDevice [unsupported::cudaVDPAUSetVDPAUDevice];
            both cudaWaitExternalSemaphoresAsync [unsupported::cudaWaitExternalSemaphoresAsync];
            both cudaWaitExternalSemaphoresAsync_ptsz [unsupported::cudaWaitExternalSemaphoresAsync_ptsz];
            v12 cudaWaitExternalSemaphoresAsync_v2 [unsupported::cudaWaitExternalSemaphoresAsync_v2];
            v12 cudaWaitExternalSemaphoresAsync_v2_ptsz [unsupported::cudaWaitExternalSemaphoresAsync_v2_ptsz];            // END entries
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

macro_rules! is_implemented {
    (unsupported $($rest:tt)*) => {
        false
    };
    ($($path:tt)*) => {
        true
    };
}

macro_rules! make_table {
    ($($node:ident $name:ident [$($path:tt)+];)*) => {
        static TABLE: &[Entry] = &[$(Entry {
            name: stringify!($name),
            node: node!($node),
            address: crate::runtime::$($path)+ as *const (),
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
pub fn entry_points(runtime_version: u32) -> impl Iterator<Item = (&'static str, *const ())> {
    let node = if runtime_version < 13000 { Node::V12 } else { Node::V13 };
    TABLE.iter().filter(move |e| e.node == Node::Both || e.node == node).map(|e| (e.name, e.address))
}

/// Name, runtimes, and whether it is implemented, of every entry point.
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
