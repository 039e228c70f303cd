// Exchange and agreement within a warp.
#pragma once

inline namespace ptx {

// Every lane receives the value of lane (own lane XOR lane_mask). All 32 lanes take part.
// Source: PTX ISA, "shfl.sync", mode .bfly.
__device__ __forceinline__ float shfl_xor(float value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// True for all 32 lanes as soon as it is for one of them, so that a branch on it is taken by the whole warp or by none.
// Source: PTX ISA, "vote.sync", mode .any.
__device__ __forceinline__ bool vote_any(bool predicate) {
  return __any_sync(0xffffffffu, predicate);
}

}  // namespace ptx
