// 70_store: dK and dV leave through shared memory, and the copy engine writes them.
// Before:  at a block's end 69_behind writes 4 B a lane, eight half sectors an instruction, and nothing multiplies
//          meanwhile.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d = 128, n % BC == 0, sm_90a.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, n * d f32 as lanes hold them, and LSE and D by tiles,
//          [n / BR, 2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward.cuh"

namespace {

using namespace backward::heads;

template <int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<f16, HEAD_DIM, BR, BC, WARPS, STAGES> {};

// Stores 16 rows of a warp in shared memory, as two panels that are swizzled as the engine swizzles. Lane l addresses
// row l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, which are two C fragments
// side by side.
__device__ __forceinline__ void stage_rows(uint32_t smem_rows, const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32, lane_row = smem_rows + lane % 16 * PANEL_ROW_BYTES;
#pragma unroll
  for (int column_tile = 0; column_tile < COLUMN_TILES; column_tile += 2) {
    uint32_t matrices[4];
    for (int i = 0; i < 4; ++i) {
      const float* const two = &C_frag[column_tile + i / 2][2 * (i % 2)];
      matrices[i] = pack_f16x2(two[0] * factor, two[1] * factor);
    }
    const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
    stmatrix_x4(lane_row + panel * 16 * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices);
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const GradientParams& p, const Smem<C>& smem, int tiles,
                                              const TensorMap& dK_map, const TensorMap& dV_map) {
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

    // QK  S^T[64 keys x BR queries] = K Q^T, and dP^T = V dO^T
    smem.ring.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<f16, HEAD_DIM, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    wgmma_fence(dP_frag);
    issue_QK<f16, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    wgmma_wait<1>(S_frag);  // safe to read S: its products are done, those of dP may go on
    if (p.causal && tile < BC / BR) hide_later_keys(S_frag, warp * 16, tile * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh_less<f16>(S_frag, P_frag, scale_log2, [&](int query_tile) {
      return ld_shared_v2(rows + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<f16>(dV_frag, P_frag, dO_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply_less<f16>(dS_frag, S_frag, dP_frag, [&](int query_tile) {
      return ld_shared_v2(rows + (BR + query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

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
  named_barrier_sync(1, WARPS * 32);  // safe to overwrite K and V: all warps' products have read them
  const uint32_t warp_rows = warp * 16 * ROW_BYTES;
  stage_rows(smem.V + warp_rows, dV_frag, 1.0f);
  stage_rows(smem.K + warp_rows, dK_frag, p.softmax_scale);
  fence_proxy_async_shared();  // the copy engine will find what this lane has stored
  __syncwarp();                // safe to copy: all lanes have stored
  if (lane == 0) {
    const int key = blockIdx.x * BC + warp * 16;
    cp_async_bulk_tensor_store_4d(dV_map, 0, key, 0, blockIdx.y, smem.V + warp_rows);
    cp_async_bulk_tensor_store_4d(dK_map, 0, key, 0, blockIdx.y, smem.K + warp_rows);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  }
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(GradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  const int first_tile = p.causal ? blockIdx.x * (BC / BR) : 0;  // queries before these see none of the block's keys
  const int tiles = p.n_q / BR - first_tile;

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load(p, smem, Q_map, K_map, V_map, dO_map, BlockInGrid<C>{}, first_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ(p, smem, warp - WARPS - 1, BlockInGrid<C>{}, first_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<C>(p, smem, tiles, dK_map, dV_map);
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 rows_grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  launch(device, gradients<C>, dim3(p.n_k / C::BC, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p,
         tile_map(device, p, p.Q, p.n_q, C::BR), tile_map(device, p, p.K, p.n_k, C::BC),
         tile_map(device, p, p.V, p.n_k, C::BC), tile_map(device, p, p.dO, p.n_q, C::BR),
         tile_map(device, p, p.dK, p.n_k, 16), tile_map(device, p, p.dV, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
