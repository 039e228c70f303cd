// mbarriers: barriers that are objects in shared memory, sm_80 and newer. One is 8 bytes, 8-byte aligned, and touched
// by these functions only. It counts arrivals; when as many have come as it was initialised for, its phase completes,
// the count starts again and the next phase begins. Phases are numbered from 0; of a number only the parity is seen.
// Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"

inline namespace ptx {

// One thread does this once, with 1 <= count < 2^20; a __syncthreads must follow before others use the barrier.
__device__ __forceinline__ void mbarrier_init(uint32_t address, uint32_t count) {
  needs_sm<80>();
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}

// Ends the barrier: its 8 bytes are ordinary memory again, and may become another one by mbarrier_init. Nobody waits at
// it or will arrive, which takes a barrier of another kind before.
__device__ __forceinline__ void mbarrier_inval(uint32_t address) {
  needs_sm<80>();
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address) : "memory");
}

// One arrival, without waiting. Whoever waits for the phase, in this block, sees what this thread has written before,
// and may overwrite what it has read.
__device__ __forceinline__ void mbarrier_arrive(uint32_t address) {
  needs_sm<80>();
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
}

// One arrival, made when all cp.async that this thread has started before have landed; the thread goes on at once.
// Needs neither commit nor wait. Whoever waits for the phase sees what was copied, and of this thread's doings that
// only. .noinc: the arrival is one of the barrier's count.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32_t address) {
  needs_sm<80>();
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address) : "memory");
}

// Waits until the phase with this parity (0 or 1) has completed, that is while it is the current one: with parity 1 a
// new barrier lets through, with 0 it waits for its first phase. A thread must not fall two phases behind, for it would
// wait for the one after.
// A loop of an instruction: try_wait suspends the thread for a while, and may give up.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t address, uint32_t parity) {
  needs_sm<80>();
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      "  .reg .pred complete;\n"
      "again:\n"
      "  mbarrier.try_wait.parity.shared.b64 complete, [%0], %1;\n"
      "  @!complete bra again;\n"
      "}" ::"r"(address),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{\n"
      "  .reg .pred complete;\n"
      "again:\n"
      "  mbarrier.test_wait.parity.shared.b64 complete, [%0], %1;\n"
      "  @!complete bra again;\n"
      "}" ::"r"(address),
      "r"(parity)
      : "memory");
#endif
}

}  // namespace ptx
