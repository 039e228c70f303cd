// Asynchronous copies from global to shared memory, sm_80 and newer.
// Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"

inline namespace ptx {

// Starts a copy of 16 bytes that bypasses the registers and L1. Both addresses are 16-byte aligned. The bytes may be
// read after this thread's cp_async_wait, and by other threads after a barrier that follows that wait.
__device__ __forceinline__ void cp_async_16(uint32_t shared_address, const void* global_address) {
  needs_sm<80>();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address), "l"(global_address) : "memory");
}

// The same of the first `bytes` of the 16, from 0 to 16; the others become zeros, and nobody reads them in global memory.
// Both addresses are 16-byte aligned all the same.
__device__ __forceinline__ void cp_async_16(uint32_t shared_address, const void* global_address, uint32_t bytes) {
  needs_sm<80>();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global_address), "r"(bytes)
               : "memory");
}

// The same of 4 bytes, through L1, aligned to 4; or with 0 as `bytes` of four bytes of zeros. Source: PTX ISA, "cp.async", .ca.
__device__ __forceinline__ void cp_async_4(uint32_t shared_address, const void* global_address, uint32_t bytes) {
  needs_sm<80>();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global_address), "r"(bytes)
               : "memory");
}

// Closes a group of all copies this thread has started since the last commit; the group may be empty.
__device__ __forceinline__ void cp_async_commit() {
  needs_sm<80>();
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most the PENDING youngest groups of this thread are still in flight.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
  needs_sm<80>();
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace ptx
