// Words: what kernels say so often that it has a name. Each is several instructions of a warp or a warpgroup, and
// nothing but instructions of gpu.cuh. One text for both machines, and for both elements, f16 and bf16; on the emulator
// every word takes along the line of the kernel that says it, for its reports.
#pragma once
#include <cstdint>
#include <type_traits>
#include "common/words/site.cuh"

inline namespace LADDER_OF_BUILD {

// Of a number in each of the four lanes that share a row of a C fragment the largest, or the sum, for all four.
__device__ __forceinline__ float quad_max(float value LADDER_SITE_PARAMETER) {
  value = fmaxf(value, shfl_xor(value, 1 LADDER_SITE));
  return fmaxf(value, shfl_xor(value, 2 LADDER_SITE));
}
__device__ __forceinline__ float quad_sum(float value LADDER_SITE_PARAMETER) {
  value += shfl_xor(value, 1 LADDER_SITE);
  return value + shfl_xor(value, 2 LADDER_SITE);
}

// Two numbers rounded to T, the low one in the lower half of the register.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>)
    return pack_bf16x2(low, high);
  else
    return pack_f16x2(low, high);
}

// A number rounded to an element of global memory.
__device__ __forceinline__ void st_global_rounded(f16* address, float value LADDER_SITE_PARAMETER) {
  st_global_f16(address, to_f16(value) LADDER_SITE);
}
__device__ __forceinline__ void st_global_rounded(bf16* address, float value LADDER_SITE_PARAMETER) {
  st_global_bf16(address, to_bf16(value) LADDER_SITE);
}

// D += A B of a warp, one instruction: FragmentA, two registers of FragmentB, FragmentC.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1 LADDER_SITE_PARAMETER) {
  if constexpr (std::is_same_v<T, bf16>)
    mma_m16n8k16_bf16(d, a, b0, b1 LADDER_SITE);
  else
    mma_m16n8k16(d, a, b0, b1 LADDER_SITE);
}

// What a warp has of scores, weights and outputs, and what it does with them: 16 rows, of which `float S[TILES][4]` is
// a lane's share, a FragmentC for every eight columns. That is two rows, lane_row 0 and 1, and number i of a fragment
// belongs to lane_row i / 2. Rungs up to 34 spell out all of it.

// The largest of a lane's numbers of one of its two rows.
template <int TILES>
__device__ __forceinline__ float lane_max(const float (&S)[TILES][4], int lane_row) {
  float largest = -INFINITY;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    largest = fmaxf(largest, fmaxf(S[tile][2 * lane_row], S[tile][2 * lane_row + 1]));
  return largest;
}

// No query sees a later key, in a tile on the diagonal: there column 0 is the key of number 0, and row 0 of this warp
// is the query of number `first_query`.
template <int TILES>
__device__ __forceinline__ void mask_diagonal(float (&S)[TILES][4], int first_query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    for (int i = 0; i < 4; ++i) {
      const int key = tile * 8 + FragmentC::col(lane, i), query = first_query + FragmentC::row(lane, i);
      if (key > query) S[tile][i] = -INFINITY;
    }
  }
}

// Each row times a number of its own.
template <int TILES>
__device__ __forceinline__ void scale_rows(float (&O)[TILES][4], const float (&by)[2]) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    for (int i = 0; i < 4; ++i) O[tile][i] *= by[i / 2];
  }
}

// S becomes S * scale - base, in log2 units.
template <int TILES>
__device__ __forceinline__ void scale_scores(float (&S)[TILES][4], float scale, const float (&base)[2]) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    for (int i = 0; i < 4; ++i) S[tile][i] = S[tile][i] * scale - base[i / 2];
  }
}

// P = 2^exponent(score, lane_row), as T; `sum` is the lane's share of the weights of each row. Two C fragments side by
// side hold exactly the elements of one A fragment, and wgmma takes A from registers: P needs no exchange, only
// rounding.
template <class T, int TILES, class Exponent>
__device__ __forceinline__ void exp2_weights_by(const float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4],
                                                float (&sum)[2], Exponent exponent) {
  sum[0] = sum[1] = 0;
#pragma unroll
  for (int slice = 0; slice < TILES / 2; ++slice) {
    for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: columns 0-7 of the two rows; 2 and 3: columns 8-15
      const int tile = 2 * slice + reg / 2, lane_row = reg % 2;
      const float low = ex2_approx(exponent(S[tile][2 * lane_row], lane_row));
      const float high = ex2_approx(exponent(S[tile][2 * lane_row + 1], lane_row));
      sum[lane_row] += low + high;
      P[slice][reg] = pack<T>(low, high);
    }
  }
}
// P = 2^S, and with `scale` and `base` S is scaled first.
template <class T, int TILES>
__device__ __forceinline__ void exp2_weights(const float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4], float (&sum)[2]) {
  exp2_weights_by<T>(S, P, sum, [](float score, int) { return score; });
}
template <class T, int TILES>
__device__ __forceinline__ void exp2_weights(float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4], float scale,
                                             const float (&base)[2], float (&sum)[2]) {
  scale_scores(S, scale, base);
  exp2_weights<T>(S, P, sum);
}

// O[16 x 8 TILES], each row times a number of its own, as T to shared memory, where `row` is the address of row l % 16
// for lane l. A tile lies in panels of 64 columns, ROWS rows of 128 B each, swizzled as the copy engine does: chunk c
// of 16 B of row r stands at c ^ r % 8. Lane l addresses chunk l / 16 of its row in four 8x8 matrices: rows 0-7 and
// 8-15, then the next 8 columns, two C fragments side by side. MAY_BE_NONE: a row times 0 is 0, whatever it holds.
// Of O's tiles the COUNT from `first` on, and all of them.
template <class T, int ROWS, bool MAY_BE_NONE, int COUNT, int TILES>
__device__ __forceinline__ void store_scaled_part(uint32_t row, const float (&O)[TILES][4], int first,
                                                  const float (&by)[2] LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < COUNT; tile += 2) {
    uint32_t matrices[4];
    for (int i = 0; i < 4; ++i) {
      const float* const two = &O[first + tile + i / 2][2 * (i % 2)];
      const bool is_some = !MAY_BE_NONE || by[i % 2] != 0;  // or else O is 0 times V, which may be NaN
      matrices[i] = is_some ? pack<T>(two[0] * by[i % 2], two[1] * by[i % 2]) : 0;
    }
    const uint32_t panel = tile / 8, chunk = tile % 8 + lane / 16;
    stmatrix_x4(row + panel * ROWS * 128 + (chunk ^ (lane % 8)) * 16, matrices LADDER_SITE);
  }
}
template <class T, int ROWS, bool MAY_BE_NONE = false, int TILES = 0>
__device__ __forceinline__ void store_scaled(uint32_t row, const float (&O)[TILES][4],
                                             const float (&by)[2] LADDER_SITE_PARAMETER) {
  store_scaled_part<T, ROWS, MAY_BE_NONE, TILES>(row, O, 0, by LADDER_SITE);
}

// A warpgroup's instruction wgmma_ss, or wgmma_rs, in the element T.
template <class T, bool TRANS_B = false, int TILES>
__device__ __forceinline__ void multiply_ss(float (&D)[TILES][4], uint64_t A, uint64_t B,
                                            bool accumulate LADDER_SITE_PARAMETER) {
  if constexpr (std::is_same_v<T, bf16>)
    wgmma_ss_bf16<TRANS_B>(D, A, B, accumulate LADDER_SITE);
  else
    wgmma_ss<TRANS_B>(D, A, B, accumulate LADDER_SITE);
}
template <class T, bool TRANS_B = false, int TILES>
__device__ __forceinline__ void multiply_rs(float (&D)[TILES][4], const uint32_t (&A)[4], uint64_t B,
                                            bool accumulate LADDER_SITE_PARAMETER) {
  if constexpr (std::is_same_v<T, bf16>)
    wgmma_rs_bf16<TRANS_B>(D, A, B, accumulate LADDER_SITE);
  else
    wgmma_rs<TRANS_B>(D, A, B, accumulate LADDER_SITE);
}

// The products of a tile, of a warpgroup, one for every 16 of the dimension that they sum over. They stand between a
// wgmma_fence and a wgmma_commit, and run on by themselves. Tiles in shared memory lie in panels as above. S[64 x 8
// TILES] = Q[64 x D] K^T[D x 8 TILES], or with `accumulate` +=. Q and K have ROWS rows in a panel, and 16 columns are
// 32 B of a row.
template <class T, int D, int ROWS_Q, int ROWS_K, int TILES>
__device__ __forceinline__ void issue_QK(float (&S)[TILES][4], uint64_t Q, uint64_t K,
                                         bool accumulate = false LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < D / 16; ++slice) {
    const uint32_t column = (slice % 4) * 32, panel = slice / 4;
    const uint64_t Q_on = wgmma_advance(Q, column + panel * ROWS_Q * 128);
    const uint64_t K_on = wgmma_advance(K, column + panel * ROWS_K * 128);
    multiply_ss<T>(S, Q_on, K_on, slice > 0 || accumulate LADDER_SITE);
  }
}
// O[64 x 8 TILES] += P[64 x 16 SLICES] V[16 SLICES x 8 TILES], or without `accumulate` =. 16 keys are 16 rows of V.
template <class T, int TILES, int SLICES>
__device__ __forceinline__ void issue_PV(float (&O)[TILES][4], const uint32_t (&P)[SLICES][4], uint64_t V,
                                         bool accumulate = true LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    const uint64_t V_on = wgmma_advance(V, slice * 16 * 128);
    multiply_rs<T, true>(O, P[slice], V_on, slice > 0 || accumulate LADDER_SITE);
  }
}

// STAGES tiles of BYTES in shared memory, each with an mbarrier for when it is full and one for when it is empty: first
// all of the one kind, then all of the other. Tile number t lies in stage t % STAGES; each use of a stage is one phase
// of its barriers, and a wait names the parity of its phase. What 21_ring and all rungs up to 30 spell out.
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

}  // namespace LADDER_OF_BUILD
