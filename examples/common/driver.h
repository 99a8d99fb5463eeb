// What examples of the driver API share, besides what all examples do.
#pragma once
#include "check.h"

#include <cuda.h>

// A call of the driver API that has to succeed.
#define CU(call)                                                                                 \
    do {                                                                                         \
        CUresult cu_result_ = (call);                                                            \
        const char* cu_name_ = "?";                                                              \
        if (cu_result_ != CUDA_SUCCESS) {                                                        \
            cuGetErrorName(cu_result_, &cu_name_);                                               \
            fail("%s:%d: %s: %s", __FILE__, __LINE__, #call, cu_name_);                          \
        }                                                                                        \
    } while (0)
