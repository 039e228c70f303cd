// Named barriers: 15 of them (ids 1..15) beside __syncthreads, each for some of a block's warps.
// Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
#pragma once
#include <cstdint>

inline namespace ptx {

// Waits until `threads` threads (a multiple of 32) have come to barrier `id` by sync or arrive. Whole warps take part.
__device__ __forceinline__ void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts this warp as come, and goes on without waiting.
__device__ __forceinline__ void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace ptx
