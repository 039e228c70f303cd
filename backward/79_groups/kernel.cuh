// 79_groups: four warps have P and dV, four have dS and dK. So a warp's sums are of 32 keys instead of 16, each operand
//          from shared memory serves twice as many products, and P passes from one warp to another through it.
// Before:  78_copies has 16 keys a warp, dK and dV both, and shared memory is what its tensor cores wait for.
// Tile:    64 queries, 128 keys, 8 warps.  Shared: 193 KiB (K, V 32 each; P 32; two of dS, 16 each; two of Q, dO, D,
//          LSE, 32.5 each).
//          Needs d = 128, n % BC == 0.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, [n / BR, WARPS, 32, 32] f32, element i of lane j of a warp's
//          fragments at [i][j]; D, and LSE in units of log2, [n] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_mma.cuh"

namespace {

using namespace backward::mma;

// A block has BC keys, a step of its walk BR queries. Of the keys a warp has 32, and the warp four further has the
// same: one for P and dV, one for dS and dK. Of dQ a warp has 32 queries and 32 columns.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t KV_BYTES = BC * ROW_BYTES, TILE_BYTES = BR * ROW_BYTES, dS_BYTES = BC * BR * 2,
                            P_BYTES = BC * BR * 4;
  static constexpr uint32_t SLOT_BYTES =
      2 * TILE_BYTES + 2 * BR * 4;  // of the ring: Q, dO, D, LSE of a tile of queries
  static constexpr uint32_t SMEM_BYTES = 2 * KV_BYTES + P_BYTES + 2 * dS_BYTES + 2 * SLOT_BYTES;
  static constexpr bool KEEPS_LSE = true;  // in the workspace
  static_assert(BR == 64 && BC == 128 && WARPS == 8);
};

// C[32 x 8 TILES] = A[32 x d] B^T: scores, of a warp's 32 rows with a tile's. The rows of B are the columns of C. A
// slice's operands are loaded before the products of the slice before it.
template <int TILES>
__device__ __forceinline__ void multiply_rows(float (&C_frag)[2][TILES][4], uint32_t warp_A, uint32_t tile_B) {
  uint32_t A_frag[2][2][4], B_frag[2][TILES / 2][4];  // [d_slice % 2]
  const auto load_slice = [&](int d_slice) {
    const uint32_t lane = threadIdx.x % 32, offset = chunk_offset(lane % 16, d_slice * 2 + lane / 16);
    for (int group = 0; group < 2; ++group)
      ldmatrix_x4(A_frag[d_slice % 2][group], warp_A + group * 16 * ROW_BYTES + offset);
    for (int pair = 0; pair < TILES / 2; ++pair)
      ldmatrix_x4(B_frag[d_slice % 2][pair], tile_B + pair * 16 * ROW_BYTES + offset);
  };
  load_slice(0);
#pragma unroll
  for (int d_slice = 0; d_slice < D_SLICES; ++d_slice) {
    if (d_slice + 1 < D_SLICES) load_slice(d_slice + 1);
    for (int pair = 0; pair < TILES / 2; ++pair) {
      const auto& B = B_frag[d_slice % 2][pair];
      for (int group = 0; group < 2; ++group) {
        mma_m16n8k16(C_frag[group][2 * pair], A_frag[d_slice % 2][group], B[0], B[2]);
        mma_m16n8k16(C_frag[group][2 * pair + 1], A_frag[d_slice % 2][group], B[1], B[3]);
      }
    }
  }
}

// C[32 x 8 TILES] += A[32 x 16] B: a gradient, of a warp's 32 rows, from 16 rows of a tile and its columns from `chunk`
// on. They are the k dimension, so ldmatrix transposes them on their way into the registers.
template <int TILES>
__device__ __forceinline__ void add_rows(float (&C_frag)[2][TILES][4], const uint32_t (&A_frag)[2][4], uint32_t rows_B,
                                         uint32_t chunk) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int column_tile = 0; column_tile < TILES; column_tile += 2) {
    uint32_t B_frag[4];
    ldmatrix_x4_trans(B_frag, rows_B + chunk_offset(lane % 16, chunk + column_tile + lane / 16));
    for (int group = 0; group < 2; ++group) {
      mma_m16n8k16(C_frag[group][column_tile], A_frag[group], B_frag[0], B_frag[1]);
      mma_m16n8k16(C_frag[group][column_tile + 1], A_frag[group], B_frag[2], B_frag[3]);
    }
  }
}

// A warp's share of a tile's dQ = dS K, added to the sum. dS^T lies with keys as rows, so ldmatrix transposes it.
template <class C>
__device__ __forceinline__ void add_dQ(const GradientParams& p, int tile, uint32_t smem_dS, uint32_t smem_K) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float dQ_frag[2][4][4] = {};
#pragma unroll
  for (int key_slice = 0; key_slice < C::BC / 16; ++key_slice) {
    uint32_t dS_frag[2][4];
    for (int group = 0; group < 2; ++group)
      ldmatrix_x4_trans(dS_frag[group], smem_dS + dS_offset(key_slice * 16 + lane % 8 + lane / 16 * 8,
                                                            warp % 2 * 4 + group * 2 + lane / 8 % 2));
    add_rows(dQ_frag, dS_frag, smem_K + key_slice * 16 * ROW_BYTES, warp / 2 * 4);
  }
  float* lane_sum = dQ_sum_of<C>(p) + (size_t(tile) * C::WARPS + warp) * 32 * 32 + lane;
  for (int element = 0; element < 32; ++element)
    red_global_add_f32(lane_sum + element * 32, dQ_frag[element / 16][element / 4 % 4][element % 4]);
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1) gradients(GradientParams p) {
  constexpr int BR = C::BR, BC = C::BC, QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool has_weights = warp < 4;  // P and dV; the warp four further has dS and dK of the same keys
  const uint32_t first_key = warp % 4 * 32;
  const size_t block_rows = (size_t(blockIdx.y) * p.n_k + blockIdx.x * BC) * HEAD_DIM;
  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::KV_BYTES, smem_P = smem_V + C::KV_BYTES,
                 smem_ring_dS = smem_P + C::P_BYTES, smem_ring = smem_ring_dS + 2 * C::dS_BYTES;
  smem_name(smem_K, C::KV_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::KV_BYTES, "V", ROW_BYTES);
  smem_name(smem_ring_dS, 2 * C::dS_BYTES, "dS", BR * 2);
  smem_name(smem_P, C::P_BYTES, "P");
  for (uint32_t slot = smem_ring; slot < smem_ring + 2 * C::SLOT_BYTES; slot += C::SLOT_BYTES) {
    smem_name(slot, C::TILE_BYTES, "Q", ROW_BYTES);
    smem_name(slot + C::TILE_BYTES, C::TILE_BYTES, "dO", ROW_BYTES);
    smem_name(slot + 2 * C::TILE_BYTES, BR * 4, "D");
    smem_name(slot + 2 * C::TILE_BYTES + BR * 4, BR * 4, "LSE");
  }
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float sum_frag[2][COLUMN_TILES][4] = {};           // of dV, or of dK

  start_tile<BC, C::THREADS>(smem_K, p.K + block_rows);
  start_tile<BC, C::THREADS>(smem_V, p.V + block_rows);

  const int tiles = p.n_q / BR, first_tile = p.causal ? blockIdx.x * (BC / BR) : 0;
  load_queries<C>(smem_ring + first_tile % 2 * C::SLOT_BYTES, p, first_tile);
  for (int tile = first_tile; tile < tiles; ++tile) {
    // LOAD
    const uint32_t smem_Q = smem_ring + tile % 2 * C::SLOT_BYTES, smem_dO = smem_Q + C::TILE_BYTES,
                   smem_D = smem_dO + C::TILE_BYTES, smem_LSE = smem_D + BR * 4;
    const uint32_t smem_dS = smem_ring_dS + tile % 2 * C::dS_BYTES,
                   dS_before = smem_ring_dS + (tile + 1) % 2 * C::dS_BYTES;
    cp_async_wait<0>();  // this thread's part of the tile (and of K and V) has landed
    __syncthreads();     // safe to read it: everybody's part has, and dS of the tile before is complete;
                         // safe to overwrite what was read in that tile: its Q, dO, D, LSE, and dS of the one before it
    if (tile + 1 < tiles) load_queries<C>(smem_ring + (tile + 1) % 2 * C::SLOT_BYTES, p, tile + 1);

    const uint32_t lane_P =
        smem_P + warp % 4 * (32 * BR * 4) + lane * 16;  // a lane's four numbers, 512 B further the next four
    uint32_t A_frag[QUERY_SLICES][2][4];
    if (has_weights) {
      // QK  S^T[32 keys x BR queries] = K Q^T
      float S_frag[2][BR / 8][4] = {};
      multiply_rows(S_frag, smem_K + first_key * ROW_BYTES, smem_Q);
      if (p.causal && tile < first_tile + BC / BR) {
        for (int group = 0; group < 2; ++group)
          for (int query_tile = 0; query_tile < BR / 8; ++query_tile)
            for (int i = 0; i < 4; ++i) {
              const int key = first_key + group * 16 + FragmentC::row(lane, i),
                        query = (tile - first_tile) * BR + query_tile * 8 + FragmentC::col(lane, i);
              if (key > query) S_frag[group][query_tile][i] = -INFINITY;
            }
      }
      // SOFTMAX  P^T, which the other warp gets half by half, in f32. Registers 0 and 1 of an A fragment: queries 0-7
      //          of two keys; 2 and 3: queries 8-15.
#pragma unroll
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        const uint2 LSE = ld_shared_v2(smem_LSE + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        for (int group = 0; group < 2; ++group) {
          auto& P = S_frag[group][query_tile];
          for (int i = 0; i < 4; ++i) P[i] = ex2_approx(P[i] * scale_log2 - __uint_as_float(i % 2 ? LSE.y : LSE.x));
          st_shared_v4(lane_P + (query_tile * 2 + group) * 512,
                       {__float_as_uint(P[0]), __float_as_uint(P[1]), __float_as_uint(P[2]), __float_as_uint(P[3])});
          A_frag[query_tile / 2][group][query_tile % 2 * 2] = pack_f16x2(P[0], P[1]);
          A_frag[query_tile / 2][group][query_tile % 2 * 2 + 1] = pack_f16x2(P[2], P[3]);
        }
        if (query_tile % 4 == 3) named_barrier_arrive(1 + query_tile / 4 * 4 + warp % 4, 64);
      }
    } else {
      if (tile > first_tile) add_dQ<C>(p, tile - 1, dS_before, smem_K);
      // QK  dP^T[32 keys x BR queries] = V dO^T
      float dP_frag[2][BR / 8][4] = {};
      multiply_rows(dP_frag, smem_V + first_key * ROW_BYTES, smem_dO);
      // SOFTMAX  dS^T
#pragma unroll
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        if (query_tile % 4 == 0) named_barrier_sync(1 + query_tile / 4 * 4 + warp % 4, 64);
        const uint2 D = ld_shared_v2(smem_D + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        for (int group = 0; group < 2; ++group) {
          const uint4 P = ld_shared_v4(lane_P + (query_tile * 2 + group) * 512);
          const float* dP = dP_frag[group][query_tile];
          const uint32_t pairs[2] = {pack_f16x2(__uint_as_float(P.x) * (dP[0] - __uint_as_float(D.x)),
                                                __uint_as_float(P.y) * (dP[1] - __uint_as_float(D.y))),
                                     pack_f16x2(__uint_as_float(P.z) * (dP[2] - __uint_as_float(D.x)),
                                                __uint_as_float(P.w) * (dP[3] - __uint_as_float(D.y)))};
          for (int lane_row = 0; lane_row < 2;
               ++lane_row) {  // two neighbouring queries of a key: 4 lanes together 16 B of its row
            const uint32_t key = first_key + group * 16 + lane_row * 8 + lane / 4;
            st_shared_b32(smem_dS + dS_offset(key, query_tile) + lane % 4 * 4, pairs[lane_row]);
            A_frag[query_tile / 2][group][query_tile % 2 * 2 + lane_row] = pairs[lane_row];
          }
        }
      }
    }
    // PV  dV += P^T dO, or dK += dS^T Q
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      add_rows(sum_frag, A_frag[query_slice], (has_weights ? smem_dO : smem_Q) + query_slice * 16 * ROW_BYTES, 0);
    if (has_weights && tile > first_tile) add_dQ<C>(p, tile - 1, dS_before, smem_K);
  }
  __syncthreads();  // safe to read dS of the last tile
  add_dQ<C>(p, tiles - 1, smem_ring_dS + (tiles - 1) % 2 * C::dS_BYTES, smem_K);

  // STORE
  for (int group = 0; group < 2; ++group)
    store_rows((has_weights ? p.dV : p.dK) + block_rows + (first_key + group * 16) * HEAD_DIM, sum_frag[group],
               has_weights ? 1.0f : p.softmax_scale);
}

// dQ, from the sum, when all blocks have added to it. A warp has the same share again.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) query_gradients(GradientParams p) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t query = size_t(blockIdx.y) * p.n_q + blockIdx.x * C::BR + warp % 2 * 32;
  const float* lane_sum = dQ_sum_of<C>(p) + (size_t(blockIdx.x) * C::WARPS + warp) * 32 * 32 + lane;
  float dQ_frag[2][4][4];
  for (int element = 0; element < 32; ++element)
    dQ_frag[element / 16][element / 4 % 4][element % 4] = ld_global_f32(lane_sum + element * 32);
  for (int group = 0; group < 2; ++group)
    store_rows(p.dQ + (query + group * 16) * HEAD_DIM + warp / 2 * 32, dQ_frag[group], p.softmax_scale);
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, grid, dim3(C::THREADS), 0, p);
  launch(device, gradients<C>, dim3(p.n_k / C::BC, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
  launch(device, query_gradients<C>, grid, dim3(C::THREADS), 0, p);
}

}  // namespace
