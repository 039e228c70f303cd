// What common/gpu.cuh includes for a compiler other than nvcc: CUDA's keywords and built-in variables, and the emulated
// instructions.
#pragma once
#include "common/emulator/bulk.hpp"
#include "common/emulator/instructions.hpp"
#include "common/emulator/tensor_map.hpp"
#include "common/emulator/wgmma.hpp"
#include "common/emulator/wmma.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::emulated::thread_index())
#define blockIdx (::emulated::block_index())
#define blockDim (::emulated::block_shape())
#define gridDim (::emulated::grid_shape())
