// Bulk copies and reductions of bytes in a row: one thread asks, and the copy engine brings them. sm_90 and newer. All
// addresses are 16-byte aligned, and `bytes` is a multiple of 16. Those of a tensor are in tensor_map.cuh, as are the
// waits for what leaves shared memory.
// Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk, cp.reduce.async.bulk".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"
#include "common/ptx/memory.cuh"

inline namespace ptx {

// Starts to copy from global to shared memory. The bytes count at the mbarrier, which must expect them.
__device__ __forceinline__ void cp_async_bulk(uint32_t shared_address, const void* global_address, uint32_t bytes,
                                              uint32_t mbarrier) {
  needs_sm<90>();
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address),
      "l"(global_address), "r"(bytes), "r"(mbarrier)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk(uint32_t shared_address, const void* global_address, uint32_t bytes,
                                              uint32_t mbarrier, CachePolicy policy) {
  needs_sm<90>();
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address),
      "l"(global_address), "r"(bytes), "r"(mbarrier), "l"(policy.bits)
      : "memory");
}

// The other way. Threads that have stored the bytes fence (fence_proxy_async_shared), then this thread waits for them,
// then asks; cp_async_bulk_commit makes a group of it.
__device__ __forceinline__ void cp_async_bulk_store(void* global_address, uint32_t shared_address, uint32_t bytes) {
  needs_sm<90>();
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global_address), "r"(shared_address),
               "r"(bytes)
               : "memory");
}

// Adds f32 from shared memory to those in global memory, element by element: red_global_add_f32 for a whole tile, but
// subnormals count. That shared memory has been read (cp_async_bulk_wait_read) says nothing about the sums;
// cp_async_bulk_wait does.
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(float* global_address, uint32_t shared_address,
                                                             uint32_t bytes) {
  needs_sm<90>();
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global_address),
               "r"(shared_address), "r"(bytes)
               : "memory");
}

}  // namespace ptx
