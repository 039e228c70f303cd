// What kernels say so often that it has a name: each is several instructions, and nothing but instructions of gpu.cuh. One
// text for both machines; on the emulator every word takes along the line of the kernel that says it, for its reports.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define LADDER_SITE_PARAMETER
#define LADDER_SITE
#else
#define LADDER_SITE_PARAMETER , CallSite site = CallSite::current()
#define LADDER_SITE , site
#endif

// Of a number in each of the four lanes that share a row of a C fragment the largest, or the sum, for all four.
__device__ __forceinline__ float quad_max(float value LADDER_SITE_PARAMETER) {
  value = fmaxf(value, shfl_xor(value, 1 LADDER_SITE));
  return fmaxf(value, shfl_xor(value, 2 LADDER_SITE));
}
__device__ __forceinline__ float quad_sum(float value LADDER_SITE_PARAMETER) {
  value += shfl_xor(value, 1 LADDER_SITE);
  return value + shfl_xor(value, 2 LADDER_SITE);
}

// STAGES tiles of BYTES in shared memory, each with an mbarrier for when it is full and one for when it is empty: first all
// of the one kind, then all of the other. Tile number t lies in stage t % STAGES; each use of a stage is one phase of its
// barriers, and a wait names the parity of its phase. What 21_ring and all rungs up to 30 spell out.
template <int STAGES, uint32_t BYTES>
struct Ring {
  uint32_t full, tiles = 0;  // shared addresses of the first barrier, and of the first tile where tiles lie so
  uint32_t empty = full + STAGES * 8, end = empty + STAGES * 8;

  __device__ __forceinline__ static uint32_t at(int tile) { return tile % STAGES * BYTES; }
  __device__ __forceinline__ uint32_t full_of(int tile) const { return full + tile % STAGES * 8; }
  __device__ __forceinline__ uint32_t empty_of(int tile) const { return empty + tile % STAGES * 8; }
  __device__ __forceinline__ void init(int readers LADDER_SITE_PARAMETER) const {
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(full_of(stage), 1 LADDER_SITE);  // landed: the producer says how much
      mbarrier_init(empty_of(stage), readers LADDER_SITE);
    }
  }
  __device__ __forceinline__ void wait_full(int tile LADDER_SITE_PARAMETER) const {
    mbarrier_wait_parity(full_of(tile), tile / STAGES % 2 LADDER_SITE);  // safe to read: it has landed
  }
  // The producer's: when it has waited, and said what it expects, it asks for what fills the stage.
  __device__ __forceinline__ void wait_empty(int tile LADDER_SITE_PARAMETER) const {
    // Before the first use a new barrier lets parity 1 through.
    mbarrier_wait_parity(empty_of(tile), (tile / STAGES % 2) ^ 1 LADDER_SITE);  // safe to overwrite: all have read it
  }
  __device__ __forceinline__ void expect(int tile LADDER_SITE_PARAMETER) const {
    mbarrier_arrive_expect_tx(full_of(tile), BYTES LADDER_SITE);  // from all blocks that send parts of it
  }
  __device__ __forceinline__ void claim(int tile LADDER_SITE_PARAMETER) const {
    wait_empty(tile LADDER_SITE);
    expect(tile LADDER_SITE);
  }
};

#undef LADDER_SITE_PARAMETER
#undef LADDER_SITE
