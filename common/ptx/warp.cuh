// Exchange within a warp.
#pragma once

inline namespace ptx {

// Every lane receives the value of lane (own lane XOR lane_mask). All 32 lanes take part.
// Source: PTX ISA, "shfl.sync", mode .bfly.
__device__ __forceinline__ float shfl_xor(float value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

}  // namespace ptx
