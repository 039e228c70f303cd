// Loads and stores. Global pointers are aligned to the access; shared addresses are bytes in the .shared window.
// Source: PTX ISA, "Data Movement and Conversion Instructions: ld, st".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"
#include "common/attention.hpp"

inline namespace ptx {

// Address of the block's dynamic shared memory. Aligned to 1024 B, so that low address bits are a tile's own.
__device__ __forceinline__ uint32_t smem_base() {
  extern __shared__ __align__(1024) uint8_t dynamic_shared_memory[];
  return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared_memory));
}

// Names a region of shared memory for the emulator's reports ("K+512"). With the bytes of a row they give row and
// 16-byte chunk too ("K row 2, chunk 0 (K+512)"), as they lie in memory, swizzled if the kernel swizzles. Does nothing
// on the GPU.
__device__ __forceinline__ void smem_name(uint32_t, uint32_t, const char*, uint32_t = 0) {}

__device__ __forceinline__ f16 ld_global_f16(const f16* address) {
  f16 value;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(value.bits) : "l"(address));
  return value;
}

__device__ __forceinline__ bf16 ld_global_bf16(const bf16* address) {
  bf16 value;
  asm volatile("ld.global.b16 %0, [%1];" : "=h"(value.bits) : "l"(address));
  return value;
}

__device__ __forceinline__ float ld_global_f32(const float* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

// An index.
__device__ __forceinline__ int32_t ld_global_s32(const int32_t* address) {
  int32_t value;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}

__device__ __forceinline__ uint32_t ld_global_b32(const void* address) {
  uint32_t value;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}

// 16 bytes, 16-byte aligned: eight elements of 16 bits.
__device__ __forceinline__ uint4 ld_global_v4(const void* address) {
  uint4 value;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

__device__ __forceinline__ void st_global_f16(f16* address, f16 value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
}

__device__ __forceinline__ void st_global_bf16(bf16* address, bf16 value) {
  asm volatile("st.global.b16 [%0], %1;" ::"l"(address), "h"(value.bits) : "memory");
}

__device__ __forceinline__ void st_global_f32(float* address, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void st_global_b32(void* address, uint32_t value) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_global_v4(void* address, uint4 value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// What the L2 cache should do with lines that a load or a copy touches: give them up first, or last. Advice, which changes no result. A load
// and copies take one as their last argument. sm_80 and newer. Source: PTX ISA, "createpolicy", "Cache Eviction Priority Hints".
struct CachePolicy {
  uint64_t bits;
};
__device__ __forceinline__ CachePolicy createpolicy_evict_first() {
  needs_sm<80>();
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}
__device__ __forceinline__ CachePolicy createpolicy_evict_last() {
  needs_sm<80>();
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}

__device__ __forceinline__ uint4 ld_global_v4(const void* address, CachePolicy policy) {
  needs_sm<80>();
  uint4 value;
  asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address), "l"(policy.bits));
  return value;
}

// Adds to what is there, as atomicAdd does where nobody asks what was. Threads and blocks may add to the same word in
// any order, and in another one the next time: the last bits of the sum differ then. Plain reads and writes of the word
// come before or after, by a barrier or a launch. Subnormals count as zeros. Source: PTX ISA, "red".
__device__ __forceinline__ void red_global_add_f32(float* address, float value) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

// ---- words that blocks wait for. A plain write of one comes before or after, by a barrier or a launch.

// Adds, and says what was there. It orders nothing else (.relaxed). Source: PTX ISA, "atom".
__device__ __forceinline__ uint32_t atom_global_add_u32(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  return before;
}

// Adds 1, or begins again with 0 where `limit` was, and says what was there: of limit + 1 blocks the one that finds `limit` is the
// last, and the word is 0 for the next launch. It orders nothing else (.relaxed). Source: PTX ISA, "atom", .inc.
__device__ __forceinline__ uint32_t atom_global_inc_u32(uint32_t* address, uint32_t limit) {
  uint32_t before;
  asm volatile("atom.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(limit) : "memory");
  return before;
}

// Gives an order to relaxed additions of this thread. By one behind it the thread hands on what it has done and knows to be done, as by
// red_release_add_u32; of what an addition before it has found, it knows from now on what was handed on there, as by an acquire. Of
// other threads it knows by a barrier before, and they of it by one behind: a fence of their own says nothing about an addition of
// this one. __threadfence() is this and more (fence.sc). Source: PTX ISA, "membar/fence", "Release and Acquire Patterns".
__device__ __forceinline__ void fence_acq_rel_gpu() {
  needs_sm<70>();
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// Adds, and hands on what this thread has done and knows to be done: whoever acquires the word knows it too. Of a bulk copy or
// reduction this thread knows by cp_async_bulk_wait, not by that for the reading. Source: PTX ISA, "red", "Memory
// Consistency Model".
__device__ __forceinline__ void red_release_add_u32(uint32_t* address, uint32_t value) {
  needs_sm<70>();
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Looks at the word until it holds the value, and knows then what has been released there. A loop, as mbarrier_wait_parity: nothing
// wakes the thread. Blocks begin in no promised order, so wait only for one that must have begun. Source: PTX ISA, "ld.acquire".
__device__ __forceinline__ void ld_acquire_wait_u32(const uint32_t* address, uint32_t value) {
  needs_sm<70>();
  uint32_t seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(address) : "memory");
  } while (seen != value);
}

__device__ __forceinline__ uint32_t ld_shared_b32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint2 ld_shared_v2(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint4 ld_shared_v4(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void st_shared_b32(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_shared_v2(uint32_t address, uint2 value) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

}  // namespace ptx
