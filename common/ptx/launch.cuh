// Starting a kernel from the host, and before the one before it is over.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

#include "common/architecture.cuh"
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
template <class... Params, class... Args>
void start_kernel(Device& device, const cudaLaunchAttribute* attribute, void (*kernel)(Params...), dim3 grid,
                  dim3 block, uint32_t smem_bytes, Args... args) {
  if (device.error != cudaSuccess) return;
  constexpr uint32_t DEFAULT_LIMIT = 48 * 1024;
  if (smem_bytes > DEFAULT_LIMIT) {
    device.error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes));
    if (device.error != cudaSuccess) return;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = device.stream;
  config.attrs = const_cast<cudaLaunchAttribute*>(attribute);
  config.numAttrs = attribute == nullptr ? 0 : 1;
  device.error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (device.error == cudaSuccess) device.error = cudaGetLastError();
}

// Blocks are in clusters of `cluster` along x, which divides the grid's x; with more than 1 the GPU is sm_90 or newer.
template <class... Params, class... Args>
void launch_clusters(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t cluster,
                     uint32_t smem_bytes, Args... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  start_kernel(device, cluster > 1 ? &attribute : nullptr, kernel, grid, block, smem_bytes, args...);
}

template <class... Params, class... Args>
void launch(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes, Args... args) {
  launch_clusters(device, kernel, grid, block, 1, smem_bytes, args...);
}

// May begin before the launch before it is over, on sm_90 and newer: what that one writes is there behind griddepcontrol_wait.
// Source: CUDA Programming Guide, "Programmatic Dependent Launch".
template <class... Params, class... Args>
void launch_dependent(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, uint32_t smem_bytes,
                      Args... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  start_kernel(device, &attribute, kernel, grid, block, smem_bytes, args...);
}

// A dependent launch may begin when each block has said this, or has ended. It says nothing about what the block has written.
// Source: PTX ISA, "griddepcontrol".
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  needs_sm<90>();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the launch before is over and what it has written is there. At once where none runs.
__device__ __forceinline__ void griddepcontrol_wait() {
  needs_sm<90>();
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace ptx
