// 74_initial: what is subtracted from S and dP is where their sums begin: no lane waits for LSE or D any more.
// Before:  in 71_longest every lane fetches LSE while its exponentials wait for it, and D while dS does.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d = 128, n % BC == 0, sm_90a.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, n * d f32 as lanes hold them, and -LSE and -D by tiles,
//          [n / BR, 2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward.cuh"

namespace {

using namespace backward::heads;

template <int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<f16, HEAD_DIM, BR, BC, WARPS, STAGES> {
  using Head = int;
};

// -LSE in units of Q K^T, -D[query] = -dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(GradientParams p) {
  const int head = blockIdx.y;
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int row = blockIdx.x * C::BR + tile_row;
    const size_t query = size_t(blockIdx.y) * p.n_q + row;
    float sum = 0.0f;
    for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
      const uint4 O = ld_global_v4(p.O + query * HEAD_DIM + chunk * 8);
      const uint4 dO = ld_global_v4(p.dO + query * HEAD_DIM + chunk * 8);
      const uint32_t O_pairs[4] = {O.x, O.y, O.z, O.w}, dO_pairs[4] = {dO.x, dO.y, dO.z, dO.w};
      for (int i = 0; i < 8; ++i)
        sum += to_float(f16{static_cast<uint16_t>(O_pairs[i / 2] >> (i % 2 * 16))}) *
               to_float(f16{static_cast<uint16_t>(dO_pairs[i / 2] >> (i % 2 * 16))});
    }
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    sum += shfl_xor(sum, 4);
    if (threadIdx.x % 8 == 0) {
      float* const tile_rows = rows_of(p, head) + blockIdx.x * 2 * C::BR;
      // Of 16 queries a lane of a fragment has the columns c, c + 1, c + 8 and c + 9: they lie side by side.
      const int index = tile_row / 16 * 16 + tile_row % 8 / 2 * 4 + tile_row % 16 / 8 * 2 + tile_row % 2;
      st_global_f32(tile_rows + index, -ld_global_f32(p.LSE + query) / p.softmax_scale);
      st_global_f32(tile_rows + C::BR + index, -sum);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of(p, head) + size_t(row) * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// The accumulators of 16 queries by 16 keys begin with a number of each query: two C fragments, of whose columns a lane
// has two each.
__device__ __forceinline__ void begin_with(float (&left)[4], float (&right)[4], uint4 of_queries) {
  for (int i = 0; i < 4; ++i) {
    left[i] = __uint_as_float(i % 2 == 0 ? of_queries.x : of_queries.y);
    right[i] = __uint_as_float(i % 2 == 0 ? of_queries.z : of_queries.w);
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const GradientParams& p, const Smem<C>& smem, int head, int first_key,
                                              int tiles, const TensorMap& dK_map, const TensorMap& dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4], dV_frag[COLUMN_TILES][4];

  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE, and dP^T = V dO^T - D
    smem.ring.wait_full(tile);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice) {
      const uint32_t four = rows + (query_slice * 16 + lane % 4 * 4) * 4;
      begin_with(S_frag[2 * query_slice], S_frag[2 * query_slice + 1], ld_shared_v4(four));
      begin_with(dP_frag[2 * query_slice], dP_frag[2 * query_slice + 1], ld_shared_v4(four + BR * 4));
    }
    wgmma_fence(S_frag, dP_frag);
    issue_scores<f16, HEAD_DIM, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    issue_scores<f16, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    wgmma_wait<1>(S_frag);  // safe to read S: its products are done, those of dP may go on
    if (p.causal && tile < BC / BR) hide_later_keys(S_frag, warp * 16, tile * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      for (int i = 0; i < 4; ++i) S_frag[query_tile][i] = ex2_approx(S_frag[query_tile][i] * scale_log2);
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        P_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] =
            pack_f16x2(S_frag[query_tile][2 * lane_row], S_frag[query_tile][2 * lane_row + 1]);
    }

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<f16>(dV_frag, P_frag, dO_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        dS_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] =
            pack_f16x2(S_frag[query_tile][2 * lane_row] * dP_frag[query_tile][2 * lane_row],
                       S_frag[query_tile][2 * lane_row + 1] * dP_frag[query_tile][2 * lane_row + 1]);
    }

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<f16, BC, BR>(dQ_frag, dS_tiles, buffer, K_panel);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<f16>(dK_frag, dS_frag, Q_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);            // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    hand_over(full_dQ);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
  }

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  const uint32_t warp_rows = warp * 16 * ROW_BYTES;
  if (lane == 0) {
    const int key = first_key + warp * 16;
    cp_async_bulk_tensor_store_4d(dV_map, 0, key, 0, head, smem.V + warp_rows);
    cp_async_bulk_tensor_store_4d(dK_map, 0, key, 0, head, smem.K + warp_rows);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  }
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.
// Grid (heads together, keys / BC, groups of them).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(GradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = blockIdx.z * gridDim.x + blockIdx.x, first_key = blockIdx.y * BC;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  const int first_tile = p.causal ? first_key / BR : 0;  // queries before these see none of the block's keys
  const int tiles = p.n_q / BR - first_tile;

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load(p, smem, Q_map, K_map, V_map, dO_map, BlockAt{head, first_key}, first_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ(p, smem, warp - WARPS - 1, BlockAt{head, first_key}, first_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<C>(p, smem, head, first_key, tiles, dK_map, dV_map);
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 rows_grid(p.n_q / C::BR, p.batch_heads);
  // Blocks start in the order of x, then y, then z: under a mask the longest walks first, those of several heads at a
  // time.
  const int together = heads_together(p, p.causal);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  launch(device, gradients<C>, dim3(together, p.n_k / C::BC, p.batch_heads / together), dim3(C::THREADS), C::SMEM_BYTES,
         p, tile_map(device, p, p.Q, p.n_q, C::BR), tile_map(device, p, p.K, p.n_k, C::BC),
         tile_map(device, p, p.V, p.n_k, C::BC), tile_map(device, p, p.dO, p.n_q, C::BR),
         tile_map(device, p, p.dK, p.n_k, 16), tile_map(device, p, p.dV, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
