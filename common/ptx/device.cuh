// Where kernels are started.
#pragma once
#include <cuda_runtime.h>

namespace gpu {

// Where kernels run: a stream, and the first error seen. A launch after an error does nothing, so the first one is
// kept.
struct Device {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSuccess;
};

}  // namespace gpu
