// 78_copies: the next tile's Q, dO, LSE and D are on their way while this one is worked on: a ring of two, by cp.async.
// Before:  77_laneorder copies through registers and waits before it multiplies.
// Tile:    64x64, 4 warps.  Shared: 105 KiB (K, V 16 each; two of Q, dO, D, LSE, 32.5 each; dS 8).  Needs d = 128, n %
//          BR == 0.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, [n / 16, 64, 32] f32, element i of lane j of the fragments
//          of 16 queries at [i][j]; D, and LSE in units of log2, [n] f32.
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
  static constexpr uint32_t SLOT_BYTES =
      2 * TILE_BYTES + 2 * BR * 4;  // of the ring: Q, dO, D, LSE of a tile of queries
  static constexpr uint32_t SMEM_BYTES = 2 * TILE_BYTES + 2 * SLOT_BYTES + dS_BYTES;
  static constexpr bool KEEPS_LSE = true;  // in the workspace
  static_assert(BR == BC && BR == 16 * WARPS, "a warp has 16 rows of either kind, and the diagonal crosses one tile");
};

// Starts copies of a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, int THREADS>
__device__ __forceinline__ void start_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    cp_async_16(tile + chunk_offset(row + first_row, chunk), source + (row + first_row) * HEAD_DIM + chunk * 8);
  }
}

// Starts copies of Q, dO, D, LSE of a tile of queries of the block's head into a slot of the ring, as one group.
template <class C>
__device__ __forceinline__ void load_queries(uint32_t slot, const GradientParams& p, int tile) {
  const size_t query = size_t(blockIdx.y) * p.n_q + tile * C::BR;
  start_tile<C::BR, C::THREADS>(slot, p.Q + query * HEAD_DIM);
  start_tile<C::BR, C::THREADS>(slot + C::TILE_BYTES, p.dO + query * HEAD_DIM);
  if (threadIdx.x < C::BR / 2) {  // four numbers a thread
    const uint32_t of_LSE = threadIdx.x / (C::BR / 4), row = threadIdx.x % (C::BR / 4) * 4;
    cp_async_16(slot + 2 * C::TILE_BYTES + (of_LSE * C::BR + row) * 4,
                (of_LSE ? LSE_log2_of<C>(p) : D_of<C>(p)) + tile * C::BR + row);
  }
  cp_async_commit();
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 2) gradients(GradientParams p) {
  constexpr int BR = C::BR, BC = C::BC, THREADS = C::THREADS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n_q, block_rows = (head + blockIdx.x * BC) * HEAD_DIM;
  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::TILE_BYTES, smem_dS = smem_V + C::TILE_BYTES,
                 smem_ring = smem_dS + C::dS_BYTES;
  smem_name(smem_K, C::TILE_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::TILE_BYTES, "V", ROW_BYTES);
  smem_name(smem_dS, C::dS_BYTES, "dS", BR * 2);
  for (uint32_t slot = smem_ring; slot < smem_ring + 2 * C::SLOT_BYTES; slot += C::SLOT_BYTES) {
    smem_name(slot, C::TILE_BYTES, "Q", ROW_BYTES);
    smem_name(slot + C::TILE_BYTES, C::TILE_BYTES, "dO", ROW_BYTES);
    smem_name(slot + 2 * C::TILE_BYTES, BR * 4, "D");
    smem_name(slot + 2 * C::TILE_BYTES + BR * 4, BR * 4, "LSE");
  }
  const uint32_t warp_K = smem_K + warp * 16 * ROW_BYTES, warp_V = smem_V + warp * 16 * ROW_BYTES;
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};

  start_tile<BC, THREADS>(smem_K, p.K + block_rows);
  start_tile<BC, THREADS>(smem_V, p.V + block_rows);

  const int tiles = p.n_q / BR, first_tile = p.causal ? blockIdx.x : 0;  // queries before see none of the block's keys
  load_queries<C>(smem_ring + first_tile % 2 * C::SLOT_BYTES, p, first_tile);
  for (int tile = first_tile; tile < tiles; ++tile) {
    // LOAD
    const uint32_t smem_Q = smem_ring + tile % 2 * C::SLOT_BYTES, smem_dO = smem_Q + C::TILE_BYTES,
                   smem_D = smem_dO + C::TILE_BYTES, smem_LSE = smem_D + BR * 4;
    cp_async_wait<0>();  // this thread's part of the tile (and of K and V) has landed
    // Safe to read it: everybody has; safe to overwrite the tile before, and dS: all have read them.
    __syncthreads();
    if (tile + 1 < tiles) load_queries<C>(smem_ring + (tile + 1) % 2 * C::SLOT_BYTES, p, tile + 1);

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
