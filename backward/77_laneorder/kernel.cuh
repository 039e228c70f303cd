// 77_laneorder: the sum of dQ lies in memory as the lanes of a warp hold it. A reduction of 32 lanes adds to 128 bytes
//          side by side, four whole sectors, where it touched eight of them half before.
// Before:  63_onewalk adds to the sum as a matrix: a reduction of 32 lanes adds to every second column of eight rows.
// Tile:    64x64, 4 warps.  Shared: 72.5 KiB (K, V, Q, dO 16 each; dS 8; LSE, D).  Needs d = 128, n % BR == 0.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, [n / 16, 64, 32] f32, element i of lane j of the fragments
//          of 16 queries at [i][j]; and D, [n] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_mma.cuh"

namespace {

using namespace backward::mma;

// A block's rows, and those of a step of its walk: BR queries and BC keys, or the other way round.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t TILE_BYTES = BR * ROW_BYTES;
  static constexpr uint32_t dS_BYTES = BC * BR * 2;
  static constexpr uint32_t SMEM_BYTES = 4 * TILE_BYTES + dS_BYTES + 2 * BR * 4;  // and LSE and D of a tile of queries
  static constexpr bool KEEPS_LSE = false;                                        // in the workspace
  static_assert(BR == BC && BR == 16 * WARPS, "a warp has 16 rows of either kind, and the diagonal crosses one tile");
};

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 2) gradients(GradientParams p) {
  constexpr int BR = C::BR, BC = C::BC, THREADS = C::THREADS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n_q, block_rows = (head + blockIdx.x * BC) * HEAD_DIM;
  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::TILE_BYTES, smem_Q = smem_V + C::TILE_BYTES,
                 smem_dO = smem_Q + C::TILE_BYTES, smem_dS = smem_dO + C::TILE_BYTES, smem_LSE = smem_dS + C::dS_BYTES,
                 smem_D = smem_LSE + BR * 4;
  smem_name(smem_K, C::TILE_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::TILE_BYTES, "V", ROW_BYTES);
  smem_name(smem_Q, C::TILE_BYTES, "Q", ROW_BYTES);
  smem_name(smem_dO, C::TILE_BYTES, "dO", ROW_BYTES);
  smem_name(smem_dS, C::dS_BYTES, "dS", BR * 2);
  smem_name(smem_LSE, BR * 4, "LSE");
  smem_name(smem_D, BR * 4, "D");
  const uint32_t warp_K = smem_K + warp * 16 * ROW_BYTES, warp_V = smem_V + warp * 16 * ROW_BYTES;
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};

  load_tile<BC, THREADS>(smem_K, p.K + block_rows);
  load_tile<BC, THREADS>(smem_V, p.V + block_rows);

  const int first_tile = p.causal ? blockIdx.x : 0;  // queries before these see none of the block's keys
  for (int tile = first_tile; tile < p.n_q / BR; ++tile) {
    // LOAD
    const size_t tile_queries = head + tile * BR;
    __syncthreads();  // safe to overwrite the tile: every warp has read the one before
    load_tile<BR, THREADS>(smem_Q, p.Q + tile_queries * HEAD_DIM);
    load_tile<BR, THREADS>(smem_dO, p.dO + tile_queries * HEAD_DIM);
    if (threadIdx.x < BR) {
      const float LSE_log2 = ld_global_f32(p.LSE + tile_queries + threadIdx.x) * LOG2E;
      const float D = ld_global_f32(D_of<C>(p) + tile * BR + threadIdx.x);
      st_shared_b32(smem_LSE + threadIdx.x * 4, __float_as_uint(LSE_log2));
      st_shared_b32(smem_D + threadIdx.x * 4, __float_as_uint(D));
    }
    __syncthreads();  // safe to read all of it: every thread has stored its part

    // QK  S^T[16 keys x BR queries] = K Q^T, and dP^T = V dO^T
    float S_frag[BR / 8][4] = {}, dP_frag[BR / 8][4] = {};
    multiply_rows(S_frag, warp_K, smem_Q);
    multiply_rows(dP_frag, warp_V, smem_dO);
    if (p.causal && tile == first_tile) {
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        for (int i = 0; i < 4; ++i) {
          const int key = warp * 16 + FragmentC::row(lane, i), query = query_tile * 8 + FragmentC::col(lane, i);
          if (key > query) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

#pragma unroll
    for (int query_slice = 0; query_slice < BR / 16; ++query_slice) {
      // SOFTMAX  A lane's elements belong to two keys and, in a slice, to four queries: registers 0 and 1 of a C
      //          fragment to two that are neighbours, 2 and 3 to the same. Two C fragments side by side hold exactly
      //          the elements of one A fragment.
      uint32_t P_frag[4], dS_frag[4];
      for (int half = 0; half < 2; ++half) {
        const int query_tile = 2 * query_slice + half;
        const uint2 LSE = ld_shared_v2(smem_LSE + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        const uint2 D = ld_shared_v2(smem_D + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        for (int lane_row = 0; lane_row < 2; ++lane_row) {
          const float low = ex2_approx(S_frag[query_tile][2 * lane_row] * scale_log2 - __uint_as_float(LSE.x));
          const float high = ex2_approx(S_frag[query_tile][2 * lane_row + 1] * scale_log2 - __uint_as_float(LSE.y));
          P_frag[2 * half + lane_row] = pack_f16x2(low, high);
          dS_frag[2 * half + lane_row] =
              pack_f16x2(low * (dP_frag[query_tile][2 * lane_row] - __uint_as_float(D.x)),
                         high * (dP_frag[query_tile][2 * lane_row + 1] - __uint_as_float(D.y)));
        }
      }
      // PV  dV += P^T dO, dK += dS^T Q
      add_rows(dV_frag, P_frag, smem_dO + query_slice * 16 * ROW_BYTES);
      add_rows(dK_frag, dS_frag, smem_Q + query_slice * 16 * ROW_BYTES);
      for (int reg = 0; reg < 4; ++reg) {  // two neighbouring queries of a key: 4 lanes together 16 B of its row
        const int key = warp * 16 + reg % 2 * 8 + lane / 4, chunk = 2 * query_slice + reg / 2;
        st_shared_b32(smem_dS + dS_offset(key, chunk) + lane % 4 * 4, dS_frag[reg]);
      }
    }
    __syncthreads();  // safe to read dS: every warp has stored that of its keys

    // PV  dQ += dS K: a warp has 16 queries now, and all keys of the tile. dS^T lies with keys as rows, so ldmatrix
    //     transposes it; in which order blocks add to the sum, nobody knows.
    float dQ_frag[COLUMN_TILES][4] = {};
    for (int key_slice = 0; key_slice < BC / 16; ++key_slice) {
      uint32_t dS_frag[4];
      ldmatrix_x4_trans(dS_frag,
                        smem_dS + dS_offset(key_slice * 16 + lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2));
      add_rows(dQ_frag, dS_frag, smem_K + key_slice * 16 * ROW_BYTES);
    }
    float* lane_sum = dQ_sum_of<C>(p) + (size_t(tile) * BR + warp * 16) * HEAD_DIM + lane;
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile)
      for (int i = 0; i < 4; ++i) red_global_add_f32(lane_sum + (column_tile * 4 + i) * 32, dQ_frag[column_tile][i]);
  }

  // STORE
  const size_t warp_rows = block_rows + warp * 16 * HEAD_DIM;
  store_rows(p.dK + warp_rows, dK_frag, p.softmax_scale);
  store_rows(p.dV + warp_rows, dV_frag, 1.0f);
}

// dQ, from the sum, when all blocks have added to it. A warp has 16 queries again.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) query_gradients(GradientParams p) {
  const size_t warp_queries = blockIdx.x * C::BR + threadIdx.x / 32 * 16;
  const float* lane_sum = dQ_sum_of<C>(p) + warp_queries * HEAD_DIM + threadIdx.x % 32;
  float dQ_frag[COLUMN_TILES][4];
  for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile)
    for (int i = 0; i < 4; ++i) dQ_frag[column_tile][i] = ld_global_f32(lane_sum + (column_tile * 4 + i) * 32);
  store_rows(p.dQ + (size_t(blockIdx.y) * p.n_q + warp_queries) * HEAD_DIM, dQ_frag, p.softmax_scale);
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BR.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, grid, dim3(C::THREADS), 0, p);
  launch(device, gradients<C>, grid, dim3(C::THREADS), C::SMEM_BYTES, p);
  launch(device, query_gradients<C>, grid, dim3(C::THREADS), 0, p);
}

}  // namespace
