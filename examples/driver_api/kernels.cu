// The kernels of driver_api, compiled to a fat binary and to PTX that the program loads at run time.
struct Params {
    const float* in;
    float* out;
    int n;
};

__constant__ float scale = 2.0f;
__device__ int launches = 0;

extern "C" __global__ void apply(Params p, double offset, char tag) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&launches, 1);
    if (i < p.n) p.out[i] = p.in[i] * scale + (float)offset + (float)tag;
}

extern "C" __global__ void shared_reverse(int* data) {
    extern __shared__ int memory[];
    memory[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}
