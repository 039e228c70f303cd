// The parts of a gradient kernel: what 64_warpgroups, 65_bulkreduce, 70_store and 74_initial spell out of a walk over
// tiles of queries, and all rungs behind them say. The head line of each part names the rung that spells it out.
//
// A block has BC = 128 keys, and two warpgroups of 64; a warp has 16. It walks over tiles of BR queries, and computes S
// transposed: S^T[64 keys x BR queries] is a warpgroup's, and a lane has a FragmentC for every eight queries, of two
// keys, lane_row 0 and 1. Tiles of shared memory lie as panels of 64 columns, one after the other, whose rows of 128 B
// are swizzled as the copy engine does.
//
// A rung says `using namespace backward::heads` (one length, heads one behind the other: 65 to 81) or
// `backward::models` (backward_models.cuh: 76, 82 and all behind). What it spells out itself stands in its own
// namespace, where it is found first. On the emulator every word takes along the line of the kernel that says it, for
// its reports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/gpu.cuh"
#include "common/words/site.cuh"

namespace backward {
inline namespace LADDER_OF_BUILD {

constexpr int PANEL_COLS = 64, PANEL_ROW_BYTES = PANEL_COLS * 2;  // 128 B, the most that the engine swizzles
constexpr int ROW_THREADS = 256;  // of a block of the kernels that go through rows or sequences, before and after
constexpr size_t TOGETHER_BYTES = 32 << 20;  // of 50 MiB of L2 that an H100 has, and an H200
constexpr float LOG2E = 1.44269504088896341f;
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// Tile, and the shared memory that it takes (65_bulkreduce): BC keys of a block, BR queries at a time, rows of D
// numbers of type T,
// WARPS warps that compute and four that copy and add. STAGES tiles of queries are on their way.
template <class T_, int D, int BR_, int BC_, int WARPS_, int STAGES_, int MORE_BARRIERS_ = 0, int ADDERS_ = 1,
          int MORE_BYTES = 0>
struct Walk {
  using T = T_;
  static constexpr int MORE_BARRIERS = MORE_BARRIERS_;  // at which each warp arrives, from 86_later on
  static constexpr int ADDERS = ADDERS_;  // threads that take turns at adding to a half of dQ, from 81_relay on
  static constexpr int HEAD_DIM = D, BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32 + 128;
  using Head = uint32_t;                  // what numbers heads
  static constexpr bool BEGUN = false;    // do S and dP begin with -LSE and -D?
  static constexpr bool IN_TURN = false;  // do blocks of keys that begin together wait for each other, from 87 on?
  static constexpr bool KEEPS_V = false;  // does V stay in registers, as in g02_kept?
  // Where products but those of dQ end, and what is added to dQ's sum (g01_narrow). Who says other COLUMNS says what
  // follows of them, too: COLUMN_TILES, D_SLICES.
  static constexpr int COLUMNS = D, SUM_COLUMNS = D;
  static constexpr int PANELS = D / PANEL_COLS, COLUMN_TILES = D / 8, D_SLICES = D / 16;
  static constexpr int QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  static constexpr uint32_t ROW_BYTES = D * 2, K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  static constexpr uint32_t ROWS_BYTES = 2 * BR * 4;                 // a number for each query, two times: LSE and D
  static constexpr uint32_t STAGE_BYTES = 2 * Q_BYTES + ROWS_BYTES;  // Q, dO
  static constexpr uint32_t dS_BYTES = BR * BC * 2, dQ_BYTES = BR * D * 2;            // dQ in f32, a warpgroup's half
  static constexpr int BARRIERS = 1 + 2 * STAGES + MORE_BARRIERS + 2 * (ADDERS + 1);  // of K and V; of the ring; of dQ
  static constexpr uint32_t SMEM_BYTES =
      2 * K_BYTES + STAGES * STAGE_BYTES + 2 * dS_BYTES + 2 * dQ_BYTES + BARRIERS * 8 + MORE_BYTES;
  static_assert(BC == 16 * WARPS && WARPS == 8, "two warpgroups have 64 keys each");
};

// Where all of it lies in shared memory, as addresses (64_warpgroups; dQ and its barriers are 65_bulkreduce's).
template <class C>
struct Smem {
  uint32_t K = smem_base(), V = K + C::K_BYTES, Q = V + C::K_BYTES, dO = Q + C::STAGES * C::Q_BYTES,
           dS = dO + C::STAGES * C::Q_BYTES, dQ = dS + 2 * C::dS_BYTES, rows = dQ + 2 * C::dQ_BYTES,
           full_K = rows + C::STAGES * C::ROWS_BYTES;
  Ring<C::STAGES, C::STAGE_BYTES> ring{full_K + 8};
  uint32_t more_barriers = full_K + (2 * C::STAGES + 1) * 8;
  uint32_t dQ_barriers = more_barriers + C::MORE_BARRIERS * 8;  // of each warpgroup: full, for each adder; empty

  __device__ __forceinline__ void name() const {
    smem_name(K, C::K_BYTES, "K", PANEL_ROW_BYTES);
    smem_name(V, C::K_BYTES, "V", PANEL_ROW_BYTES);
    smem_name(Q, C::STAGES * C::Q_BYTES, "Q", PANEL_ROW_BYTES);
    smem_name(dO, C::STAGES * C::Q_BYTES, "dO", PANEL_ROW_BYTES);
    smem_name(dS, 2 * C::dS_BYTES, "dS", PANEL_ROW_BYTES);
    smem_name(rows, C::STAGES * C::ROWS_BYTES, "LSE, D");
    smem_name(dQ, 2 * C::dQ_BYTES, "dQ");
    smem_name(full_K, C::BARRIERS * 8, "barriers");
  }
  // One thread's, before all use them. `readers` warpgroups release a stage, those of a cluster's other blocks, too.
  __device__ __forceinline__ void init(int readers = C::WARPS / 4 LADDER_SITE_PARAMETER) const {
    mbarrier_init(full_K, 1 LADDER_SITE);
    ring.init(readers LADDER_SITE);
    for (int more = 0; more < C::MORE_BARRIERS; ++more) mbarrier_init(more_barriers + more * 8, C::WARPS LADDER_SITE);
    for (const uint32_t full : {dQ_barriers, dQ_barriers + (C::ADDERS + 1) * 8}) {
      for (int adder = 0; adder < C::ADDERS; ++adder)
        mbarrier_init(full + adder * 8, 4 LADDER_SITE);  // the warps of a warpgroup have stored dQ, for this one to add
      mbarrier_init(full + C::ADDERS * 8, 1 LADDER_SITE);  // it has been read
    }
    fence_mbarrier_init(LADDER_SITE_ALONE);  // safe to name them to the copy engine, which knows them now
  }
};

// wgmma's descriptors of it, for a warpgroup (64_warpgroups). Rows of Q and dO are columns of S^T and dP^T (K-major),
// and the k dimension of dK and dV (MN-major), for which the distance from one panel to the next is told. Rows of K are
// those of S^T, and the k dimension of dQ, of which a warpgroup has the columns of a panel.
template <class C>
struct Operands {
  uint64_t K_rows, V_rows, K_panel, Q_tiles, dO_tiles, dS_tiles;

  __device__ __forceinline__ Operands(const Smem<C>& smem, uint32_t warpgroup)
      : K_rows(wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES)),
        V_rows(wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES)),
        K_panel(wgmma_descriptor(smem.K + warpgroup * C::BC * PANEL_ROW_BYTES)),
        Q_tiles(wgmma_descriptor(smem.Q, C::BR * PANEL_ROW_BYTES)),
        dO_tiles(wgmma_descriptor(smem.dO, C::BR * PANEL_ROW_BYTES)),
        dS_tiles(wgmma_descriptor(smem.dS)) {}
};

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel
// (64_warpgroups).
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

// The products of a warpgroup, of which each stands between a wgmma_fence and a wgmma_commit (64_warpgroups).
// dV += P^T dO and dK += dS^T Q are issue_PV, of words.cuh.
// S^T[64 keys x 8 TILES queries] += K Q^T, and dP^T += V dO^T, of rows of D numbers: K and V have ROWS_K rows in a
// panel, Q and dO ROWS_Q. Without what they add to it is issue_QK, of words.cuh.
template <class T, int D, int ROWS_K, int ROWS_Q, int TILES>
__device__ __forceinline__ void issue_scores(float (&S)[TILES][4], uint64_t K, uint64_t Q LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < D / 16; ++slice) {
    multiply_ss<T>(S, wgmma_advance(K, slices_on<ROWS_K>(slice)), wgmma_advance(Q, slices_on<ROWS_Q>(slice)),
                   true LADDER_SITE);
  }
}
// dQ[64 queries x 8 TILES columns] = dS K, of KEYS keys: dS, `buffer` bytes from `dS_tiles` on, has ROWS queries as
// rows and keys as columns, 64 in a panel; rows of K are the k dimension.
template <class T, int KEYS, int ROWS, int TILES>
__device__ __forceinline__ void issue_dQ(float (&dQ)[TILES][4], uint64_t dS_tiles, uint32_t buffer,
                                         uint64_t K LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < KEYS / 16; ++slice) {
    multiply_ss<T, true>(dQ, wgmma_advance(dS_tiles, buffer + slices_on<ROWS>(slice)),
                         wgmma_advance(K, slice * 16 * PANEL_ROW_BYTES), slice > 0 LADDER_SITE);
  }
}

// No query sees a later key: row 0 of the warp is key `first_key`, column 0 query `first_query` (64_warpgroups).
template <int TILES>
__device__ __forceinline__ void hide_later_keys(float (&S)[TILES][4], int first_key, int first_query) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + FragmentC::row(lane, i),
                query = first_query + query_tile * 8 + FragmentC::col(lane, i);
      if (key > query) S[query_tile][i] = -INFINITY;
    }
  }
}

// S becomes 2^(S scale_log2 - LSE), and P is that, rounded. `LSE_of(query_tile)` gives LSE, in log2 units, of a lane's
// two neighbouring queries of an eight. Two C fragments side by side hold exactly the elements of one A fragment, and
// wgmma takes A from registers (64_warpgroups).
template <class T, int TILES, class Of>
__device__ __forceinline__ void weigh_less(float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4], float scale_log2,
                                           Of LSE_of) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    const uint2 LSE = LSE_of(query_tile);
    for (int i = 0; i < 4; ++i)
      S[query_tile][i] = ex2_approx(S[query_tile][i] * scale_log2 - __uint_as_float(i % 2 == 0 ? LSE.x : LSE.y));
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[query_tile / 2][query_tile % 2 * 2 + lane_row] =
          pack<T>(S[query_tile][2 * lane_row], S[query_tile][2 * lane_row + 1]);
  }
}
// dS = P (dP - D), rounded (64_warpgroups).
template <class T, int TILES, class Of>
__device__ __forceinline__ void multiply_less(uint32_t (&dS)[TILES / 2][4], const float (&P)[TILES][4],
                                              const float (&dP)[TILES][4], Of D_of) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    const uint2 D = D_of(query_tile);
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      dS[query_tile / 2][query_tile % 2 * 2 + lane_row] =
          pack<T>(P[query_tile][2 * lane_row] * (dP[query_tile][2 * lane_row] - __uint_as_float(D.x)),
                  P[query_tile][2 * lane_row + 1] * (dP[query_tile][2 * lane_row + 1] - __uint_as_float(D.y)));
  }
}

// The same where S and dP have begun with -LSE and -D (74_initial). The accumulators of 16 queries by 16 keys begin
// with a number of each query: two C fragments, of whose columns a lane has two each.
__device__ __forceinline__ void begin_with(float (&left)[4], float (&right)[4], uint4 of_queries) {
  for (int i = 0; i < 4; ++i) {
    left[i] = __uint_as_float(i % 2 == 0 ? of_queries.x : of_queries.y);
    right[i] = __uint_as_float(i % 2 == 0 ? of_queries.z : of_queries.w);
  }
}
// S becomes 2^(S scale_log2), and P is that, rounded (74_initial).
template <class T, int TILES>
__device__ __forceinline__ void weigh(float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4], float scale_log2) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    for (int i = 0; i < 4; ++i) S[query_tile][i] = ex2_approx(S[query_tile][i] * scale_log2);
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[query_tile / 2][query_tile % 2 * 2 + lane_row] =
          pack<T>(S[query_tile][2 * lane_row], S[query_tile][2 * lane_row + 1]);
  }
}
// P is S, rounded (74_initial).
template <class T, int TILES>
__device__ __forceinline__ void pack_weights(uint32_t (&P)[TILES / 2][4], const float (&S)[TILES][4]) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[query_tile / 2][query_tile % 2 * 2 + lane_row] =
          pack<T>(S[query_tile][2 * lane_row], S[query_tile][2 * lane_row + 1]);
  }
}
// dS = P dP, rounded (74_initial).
template <class T, int TILES>
__device__ __forceinline__ void multiply(uint32_t (&dS)[TILES / 2][4], const float (&P)[TILES][4],
                                         const float (&dP)[TILES][4]) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      dS[query_tile / 2][query_tile % 2 * 2 + lane_row] =
          pack<T>(P[query_tile][2 * lane_row] * dP[query_tile][2 * lane_row],
                  P[query_tile][2 * lane_row + 1] * dP[query_tile][2 * lane_row + 1]);
  }
}
// Of the sixteen queries a lane's four lie side by side in memory: columns c, c + 1, c + 8 and c + 9 of a fragment.
// Where a row's number stands among them (74_initial).
__device__ __forceinline__ int in_lane_order(int row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
}

// dS to shared memory, queries as rows: stmatrix transposes it (64_warpgroups). Lane l addresses query l % 8, of the
// second eight from lane 16 on; the chunk is one of the warp's two eights of keys, and a warpgroup's 64 keys are a
// panel of BR rows.
template <int BR, int SLICES>
__device__ __forceinline__ void store_transposed(uint32_t smem_dS,
                                                 const uint32_t (&dS)[SLICES][4] LADDER_SITE_PARAMETER) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t lane_query = lane / 16 * 8 + lane % 8, chunk = warp % 4 * 2 + lane / 8 % 2;
  const uint32_t lane_dS =
      smem_dS + warp / 4 * BR * PANEL_ROW_BYTES + lane_query * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16;
  for (int query_slice = 0; query_slice < SLICES; ++query_slice)
    stmatrix_x4_trans(lane_dS + query_slice * 16 * PANEL_ROW_BYTES, dS[query_slice] LADDER_SITE);
}

// dQ to shared memory as a warpgroup's lanes hold it: registers side by side, lane beside lane, from `lane_dQ` on; no
// bank conflicts, and the sum has the same order (65_bulkreduce).
template <int TILES>
__device__ __forceinline__ void store_lanes(uint32_t lane_dQ, const float (&dQ)[TILES][4] LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int column_tile = 0; column_tile < TILES; ++column_tile)
    st_shared_v4(lane_dQ + column_tile * 128 * 16,
                 {__float_as_uint(dQ[column_tile][0]), __float_as_uint(dQ[column_tile][1]),
                  __float_as_uint(dQ[column_tile][2]), __float_as_uint(dQ[column_tile][3])} LADDER_SITE);
}
// All lanes of a warp have stored to shared memory what the other side, the copy engine or wgmma, will read
// (65_bulkreduce).
__device__ __forceinline__ void hand_over(uint32_t barrier LADDER_SITE_PARAMETER) {
  fence_proxy_async_shared(LADDER_SITE_ALONE);  // it will find what this lane has stored
  __syncwarp(LADDER_SITE_ALONE);                // safe to hand over: all lanes have stored
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier LADDER_SITE);
  __syncwarp(LADDER_SITE_ALONE);  // products take whole warps
}

// 16 rows of a warp, each number times `factor`, to shared memory, as panels of 16 rows that are swizzled as the engine
// swizzles. Lane l addresses row l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns,
// which are two C fragments side by side (70_store).
template <class T, int TILES>
__device__ __forceinline__ void stage_rows(uint32_t smem_rows, const float (&rows)[TILES][4],
                                           float factor LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_row = smem_rows + lane % 16 * PANEL_ROW_BYTES;
#pragma unroll
  for (int column_tile = 0; column_tile < TILES; column_tile += 2) {
    uint32_t matrices[4];
    for (int i = 0; i < 4; ++i) {
      const float* const two = &rows[column_tile + i / 2][2 * (i % 2)];
      matrices[i] = pack<T>(two[0] * factor, two[1] * factor);
    }
    const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
    stmatrix_x4(lane_row + panel * 16 * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices LADDER_SITE);
  }
}
// dV and dK, 16 rows a warp, to where V and K were (70_store). Then one lane of the warp may have them copied.
template <class Params, class C>
__device__ __forceinline__ void stage_gradients(const Params& p, const Smem<C>& smem,
                                                const float (&dV)[C::COLUMN_TILES][4],
                                                const float (&dK)[C::COLUMN_TILES][4] LADDER_SITE_PARAMETER) {
  named_barrier_sync(1, C::WARPS * 32 LADDER_SITE);  // safe to overwrite K and V: all warps' products have read them
  const uint32_t warp_rows = threadIdx.x / 32 * 16 * C::ROW_BYTES;
  stage_rows<typename C::T>(smem.V + warp_rows, dV, 1.0f LADDER_SITE);
  stage_rows<typename C::T>(smem.K + warp_rows, dK, p.softmax_scale LADDER_SITE);
  fence_proxy_async_shared(LADDER_SITE_ALONE);  // the copy engine will find what this lane has stored
  __syncwarp(LADDER_SITE_ALONE);                // safe to copy: all lanes have stored
}

// dot(a, b) of two rows of D numbers, or the first `columns` of them, `at` times STRIDE numbers on, by eight lanes,
// which all get it (63_onewalk).
template <int D, int STRIDE, class T, class Offset>
__device__ __forceinline__ float row_dot(const void* a, const void* b, Offset at, int columns LADDER_SITE_PARAMETER) {
  float sum = 0.0f;
  for (int chunk = threadIdx.x % 8; chunk < D / 8 && chunk < columns / 8; chunk += 8) {  // 16 B
    const uint4 a_chunk = ld_global_v4(static_cast<const T*>(a) + at * STRIDE + chunk * 8 LADDER_SITE),
                b_chunk = ld_global_v4(static_cast<const T*>(b) + at * STRIDE + chunk * 8 LADDER_SITE);
    const uint32_t a_pairs[4] = {a_chunk.x, a_chunk.y, a_chunk.z, a_chunk.w},
                   b_pairs[4] = {b_chunk.x, b_chunk.y, b_chunk.z, b_chunk.w};
    for (int i = 0; i < 8; ++i)
      sum += to_float(T{static_cast<uint16_t>(a_pairs[i / 2] >> (i % 2 * 16))}) *
             to_float(T{static_cast<uint16_t>(b_pairs[i / 2] >> (i % 2 * 16))});
  }
  sum += shfl_xor(sum, 1 LADDER_SITE);
  sum += shfl_xor(sum, 2 LADDER_SITE);
  return sum + shfl_xor(sum, 4 LADDER_SITE);
}
template <int D, int STRIDE = 1, class T = f16, class Offset = size_t>
__device__ __forceinline__ float row_dot(const void* a, const void* b, Offset at LADDER_SITE_PARAMETER) {
  return row_dot<D, STRIDE, T, Offset>(a, b, at, D LADDER_SITE);
}
// Of the 16 numbers of four lanes, side by side, eight columns of two rows, [lane_row], each times `factor`
// (65_bulkreduce).
template <class T>
__device__ __forceinline__ void load_lanes(uint32_t (&pairs)[2][4], const float* from,
                                           float factor LADDER_SITE_PARAMETER) {
  for (int lane = 0; lane < 4; ++lane) {
    const uint4 four = ld_global_v4(from + lane * 4 LADDER_SITE);
    pairs[0][lane] = pack<T>(__uint_as_float(four.x) * factor, __uint_as_float(four.y) * factor);
    pairs[1][lane] = pack<T>(__uint_as_float(four.z) * factor, __uint_as_float(four.w) * factor);
  }
}

// All sequences of one length, a multiple of a block's keys, and heads one behind the other: 65 to 81. f16; where a
// rung takes bf16, too, GradientParams points to that.
namespace heads {

using namespace backward;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;

// Which keys a block has, and of which head: in a grid (keys / BC, batch * heads), read where it is asked for
// (65_bulkreduce); or as somebody has said (71_longest).
template <class C>
struct BlockInGrid {
  __device__ __forceinline__ uint32_t head() const { return blockIdx.y; }
  __device__ __forceinline__ uint32_t first_key() const { return blockIdx.x * C::BC; }
};
struct BlockAt {
  int its_head, its_first_key;
  __device__ __forceinline__ int head() const { return its_head; }
  __device__ __forceinline__ int first_key() const { return its_first_key; }
};

// Of a head in the workspace: the sum of dQ, n * d f32 as lanes hold them, and LSE and D by tiles, [n / BR, 2, BR]
// (65_bulkreduce).
template <class Head>
__device__ __forceinline__ float* dQ_sum_of(const GradientParams& p, Head head) {
  return static_cast<float*>(p.workspace) + size_t(head) * p.n_q * (HEAD_DIM + 2);
}
template <class Head>
__device__ __forceinline__ float* rows_of(const GradientParams& p, Head head) {
  return dQ_sum_of(p, head) + size_t(p.n_q) * HEAD_DIM;
}

// Of a tile of queries LSE in log2 units, D[query] = dot(dO[query], O[query]), and zeros for the sum of dQ
// (64_warpgroups). With C::BEGUN -LSE in units of Q K^T and -D, in the order in which lanes take them (74_initial).
template <class C>
__device__ __forceinline__ void prepare_tile(const GradientParams& p LADDER_SITE_PARAMETER) {
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int row = blockIdx.x * C::BR + tile_row;
    const size_t query = size_t(blockIdx.y) * p.n_q + row;
    const float D = row_dot<HEAD_DIM, HEAD_DIM, typename C::T>(p.O, p.dO, query LADDER_SITE);
    if (threadIdx.x % 8 == 0) {
      float* const tile_rows = rows_of<typename C::Head>(p, blockIdx.y) + blockIdx.x * 2 * C::BR;
      const int at = C::BEGUN ? in_lane_order(tile_row) : tile_row;
      const float LSE = ld_global_f32(p.LSE + query LADDER_SITE);
      st_global_f32(tile_rows + at, C::BEGUN ? -LSE / p.softmax_scale : LSE * LOG2E LADDER_SITE);
      st_global_f32(tile_rows + C::BR + at, C::BEGUN ? -D : D LADDER_SITE);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of<typename C::Head>(p, blockIdx.y) + size_t(row) * HEAD_DIM + column,
                   {0, 0, 0, 0} LADDER_SITE);
  }
}
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(GradientParams p) {
  prepare_tile<C>(p);
}

// dQ, from the sum, when all blocks have added to it (65_bulkreduce). Eight columns of a tile's rows r and r + 8 are 16
// numbers of four lanes, side by side: a thread has these, and eight threads have 64 columns.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(GradientParams p) {
  using T = typename C::T;
  T* const tile_rows = reinterpret_cast<T*>(p.dQ) + (size_t(blockIdx.y) * p.n_q + blockIdx.x * C::BR) * HEAD_DIM;
  for (int i = threadIdx.x; i < C::BR * ROW_CHUNKS / 2; i += ROW_THREADS) {
    const int column_tile = i % 8, four_lanes = i / 8 % 32, panel = i / 256;  // of a warpgroup: its 32 times four lanes
    uint32_t pairs[2][4];
    load_lanes<T>(pairs,
                  dQ_sum_of<typename C::Head>(p, blockIdx.y) + size_t(blockIdx.x) * C::BR * HEAD_DIM +
                      panel * C::BR * PANEL_COLS + column_tile * 512 + four_lanes * 16,
                  p.softmax_scale);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8;
      st_global_v4(tile_rows + row * HEAD_DIM + panel * PANEL_COLS + column_tile * 8,
                   {pairs[lane_row][0], pairs[lane_row][1], pairs[lane_row][2], pairs[lane_row][3]});
    }
  }
}

// LOAD  K and V once; then a tile of queries, from `first_tile` on, whenever a stage is empty (64_warpgroups); or with
//       LAST_FIRST down to it (72_inorder). One thread's.
template <bool LAST_FIRST = false, class C = void, class Block = void>
__device__ __forceinline__ void load(const GradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     const Block& block, int first_tile, int tiles LADDER_SITE_PARAMETER) {
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES LADDER_SITE);
  cp_async_bulk_tensor_4d(smem.K, K_map, 0, block.first_key(), 0, block.head(), smem.full_K LADDER_SITE);
  cp_async_bulk_tensor_4d(smem.V, V_map, 0, block.first_key(), 0, block.head(), smem.full_K LADDER_SITE);
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % C::STAGES, full = smem.ring.full_of(tile);
    const int q_tile = LAST_FIRST ? first_tile + tiles - 1 - tile : first_tile + tile;
    smem.ring.claim(tile LADDER_SITE);
    cp_async_bulk_tensor_4d(smem.Q + stage * C::Q_BYTES, Q_map, 0, q_tile * C::BR, 0, block.head(), full LADDER_SITE);
    cp_async_bulk_tensor_4d(smem.dO + stage * C::Q_BYTES, dO_map, 0, q_tile * C::BR, 0, block.head(), full LADDER_SITE);
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of(p, block.head()) + q_tile * 2 * C::BR, C::ROWS_BYTES,
                  full LADDER_SITE);
  }
}
// STORE  A warpgroup's half of dQ, 16 KiB in the order of its registers, here and there, whenever it has stored it
//        (65_bulkreduce). One thread's for each half.
template <class C, class Block>
__device__ __forceinline__ void add_dQ(const GradientParams& p, const Smem<C>& smem, uint32_t half, const Block& block,
                                       int first_tile, int tiles LADDER_SITE_PARAMETER) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  float* const sum = dQ_sum_of(p, block.head()) + half * C::BR * PANEL_COLS;
  for (int tile = 0; tile < tiles; ++tile) {
    mbarrier_wait_parity(full, tile % 2 LADDER_SITE);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(sum + size_t(first_tile + tile) * C::BR * HEAD_DIM, smem.dQ + half * C::dQ_BYTES,
                                 C::dQ_BYTES LADDER_SITE);
    cp_async_bulk_commit(LADDER_SITE_ALONE);
    cp_async_bulk_wait_read<0>(
        LADDER_SITE_ALONE);  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty LADDER_SITE);
  }
}

// Rows to global memory: each lane writes two numbers per fragment and row, and four lanes together 16 B of a row
// (62_transposed).
template <int TILES>
__device__ __forceinline__ void store_rows(f16* rows, const float (&frag)[TILES][4],
                                           float factor LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    f16* row = rows + FragmentC::row(lane, 2 * lane_row) * HEAD_DIM + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < TILES; ++column_tile) {
      const float low = frag[column_tile][2 * lane_row] * factor, high = frag[column_tile][2 * lane_row + 1] * factor;
      st_global_b32(row + column_tile * 8, pack_f16x2(low, high) LADDER_SITE);
    }
  }
}

// Of how many heads the blocks begin together: of so many that what they walk over, Q, dO and the sum of dQ, 8 B an
// element, stays in the L2 cache; 1 unless their order matters (71_longest).
inline int heads_together(const GradientParams& p, bool matters) {
  int together = 1;
  while (matters && p.batch_heads % (2 * together) == 0 &&
         2 * together * size_t(p.n_q) * HEAD_DIM * 8 <= TOGETHER_BYTES)
    together *= 2;
  return together;
}

// The map of a tensor, whose boxes have `rows` rows: [head][panel][row][column of the panel] (64_warpgroups).
template <class T = f16, class Device>
auto tile_map(Device& device, const GradientParams& p, const f16* tensor, int n, uint32_t rows,
              uint32_t panels = PANELS) {
  return tensor_map_4d(device, reinterpret_cast<const T*>(tensor),
                       {PANEL_COLS, uint32_t(n), PANELS, uint32_t(p.batch_heads)},
                       {ROW_BYTES, PANEL_ROW_BYTES, uint64_t(n) * ROW_BYTES}, {PANEL_COLS, rows, panels, 1});
}

}  // namespace heads
}  // namespace LADDER_OF_BUILD
}  // namespace backward
