// Starting a kernel from the host.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

#include "common/ptx/device.cuh"

inline namespace ptx {

using gpu::Device;

// SMs of the GPU: so many blocks run at the same time, if one takes an SM for itself and nobody else uses the GPU. Only
// the length of a launch depends on that, for no block waits for one that has not started.
inline uint32_t multiprocessors(Device& device) {
  int id = 0, count = 1;
  if (device.error == cudaSuccess) device.error = cudaGetDevice(&id);
  if (device.error == cudaSuccess) device.error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, id);
  return static_cast<uint32_t>(count);
}

// Raises the kernel's limit of dynamic shared memory (48 KiB by default) if needed, launches, and records any error.
// Blocks are in clusters of `cluster` along x, which divides the grid's x; with more than 1 the GPU is sm_90 or newer.
template <class... Params, class... Args>
void launch_clusters(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t cluster,
                     uint32_t smem_bytes, Args... args) {
  if (device.error != cudaSuccess) return;
  constexpr uint32_t DEFAULT_LIMIT = 48 * 1024;
  if (smem_bytes > DEFAULT_LIMIT) {
    device.error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes));
    if (device.error != cudaSuccess) return;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = device.stream;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  device.error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (device.error == cudaSuccess) device.error = cudaGetLastError();
}

template <class... Params, class... Args>
void launch(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes, Args... args) {
  launch_clusters(device, kernel, grid, block, 1, smem_bytes, args...);
}

}  // namespace ptx
