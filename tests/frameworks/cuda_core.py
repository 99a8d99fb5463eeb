# packages: cuda-core[cu13] nvidia-cuda-nvrtc nvidia-cuda-cccl numpy
"""NVIDIA's own Python interface: a kernel that NVRTC makes machine code of, launched by the driver API."""

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

from check import close, finish, part

SOURCE = """
extern "C" __global__ void scale(float* x, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
"""


@part
def machine_code():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("scale")
    x = np.arange(1000, dtype=np.float32)
    from cuda.bindings import driver

    def checked(result):
        assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0]
        return result[1] if len(result) > 1 else None

    memory = checked(driver.cuMemAlloc(x.nbytes))
    checked(driver.cuMemcpyHtoD(memory, x.ctypes.data, x.nbytes))
    launch(stream, LaunchConfig(grid=8, block=128), kernel, int(memory), np.float32(3), np.int32(x.size))
    stream.sync()
    got = np.empty_like(x)
    checked(driver.cuMemcpyDtoH(got.ctypes.data, memory, x.nbytes))
    close(got, 3 * x, 0)


finish()
