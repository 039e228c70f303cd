// Starting a kernel from the host.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

namespace gpu {

// Where kernels run: a stream, and the first error seen. A launch after an error does nothing, so the first one is
// kept.
struct Device {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSuccess;
};

}  // namespace gpu

inline namespace ptx {

using gpu::Device;

// Raises the kernel's limit of dynamic shared memory (48 KiB by default) if needed, launches, and records any error.
template <class... Params, class... Args>
void launch(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes, Args... args) {
  if (device.error != cudaSuccess) return;
  constexpr uint32_t DEFAULT_LIMIT = 48 * 1024;
  if (smem_bytes > DEFAULT_LIMIT) {
    device.error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes));
    if (device.error != cudaSuccess) return;
  }
  kernel<<<grid, block, smem_bytes, device.stream>>>(static_cast<Params>(args)...);
  device.error = cudaGetLastError();
}

}  // namespace ptx
