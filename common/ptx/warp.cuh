// Exchange and agreement within a warp.
#pragma once
#include <cstdint>
#include "common/architecture.cuh"

inline namespace ptx {

// Every lane receives the value of lane `from`, which may be another one for each. All 32 lanes take part.
// Source: PTX ISA, "shfl.sync", mode .idx.
__device__ __forceinline__ uint32_t shfl(uint32_t value, int from) {
  return __shfl_sync(0xffffffffu, value, from);
}

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

// True for one of the 32 lanes, false for the others: the hardware chooses, and chooses the same lane every time. The
// compiler knows that one lane alone goes on, which it does not of lane == 0. sm_90 and newer.
// Source: PTX ISA, "elect.sync".
__device__ __forceinline__ bool elect_sync() {
  needs_sm<90>();
  uint32_t elected;
  asm volatile(
      "{\n"
      "  .reg .pred one;\n"
      "  elect.sync _|one, 0xffffffff;\n"
      "  selp.u32 %0, 1, 0, one;\n"
      "}"
      : "=r"(elected)::"memory");
  return elected != 0;
}

}  // namespace ptx
