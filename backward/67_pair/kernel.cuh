// 67_pair: two blocks with neighbouring keys walk over the same queries, and each brings half of a tile to both.
// Before:  in 66_ahead every block copies all queries for itself: 32 KiB a tile, while as much goes back to L2 as dQ.
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
struct Config : Walk<f16, HEAD_DIM, BR, BC, WARPS, STAGES> {
  static constexpr int BLOCKS = 2;  // of a cluster: they share Q and dO
};

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const GradientParams& p, const Smem<C>& smem, int passed, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  const Operands<C> operands(smem, warpgroup);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4], dV_frag[COLUMN_TILES][4], S_frag[BR / 8][4];

  // QK  S^T[64 keys x BR queries] = K Q^T
  const auto start_S = [&](int tile) {
    const uint64_t Q_here = wgmma_advance(operands.Q_tiles, tile % STAGES * C::Q_BYTES);
    smem.ring.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<f16, HEAD_DIM, BC, BR>(S_frag, operands.K_rows, Q_here);
    wgmma_commit();
  };
  const auto release = [&](int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < C::BLOCKS) mbarrier_arrive_remote(smem.ring.empty_of(tile), threadIdx.x % 128);
  };
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  for (int tile = 0; tile < passed; ++tile) {
    smem.ring.wait_full(tile);               // safe to release: it is not on its way any more
    named_barrier_sync(2 + warpgroup, 128);  // and none of the four warps comes too late for this phase
    release(tile);
  }
  __syncwarp();  // products take whole warps
  const auto step = [&](int tile, bool is_last) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(operands.Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(operands.dO_tiles, stage * C::Q_BYTES);
    float dP_frag[BR / 8][4];

    // QK  dP^T = V dO^T
    wgmma_fence(dP_frag);
    issue_QK<f16, HEAD_DIM, BC, BR>(dP_frag, operands.V_rows, dO_here);
    wgmma_commit();
    if (p.causal && tile < passed + BC / BR) hide_later_keys(S_frag, warp * 16, (tile - passed) * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh_less<f16>(S_frag, P_frag, scale_log2, [&](int query_tile) {
      return ld_shared_v2(rows + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<f16>(dV_frag, P_frag, dO_here, tile > passed);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply_less<f16>(dS_frag, S_frag, dP_frag, [&](int query_tile) {
      return ld_shared_v2(rows + (BR + query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dK += dS^T Q. And dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<f16>(dK_frag, dS_frag, Q_here, tile > passed);
    wgmma_commit();
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<f16, BC, BR>(dQ_frag, operands.dS_tiles, buffer, operands.K_panel);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    release(tile);
    if (is_last) {
      wgmma_wait<0>(dQ_frag);  // safe to read dQ
    } else {
      start_S(tile + 1);
      wgmma_wait<1>(dQ_frag);  // safe to read dQ: its products are done, those of S may go on
    }
    mbarrier_wait_parity(full_dQ + 8, ((tile - passed) % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    hand_over(full_dQ);
    wgmma_wait<0>(S_frag);  // safe to read the next S. ptxas would not let it be in flight where the loop comes around
  };
  if (passed < tiles) {
    start_S(passed);
    wgmma_wait<0>(S_frag);  // safe to read S
    for (int tile = passed; tile + 1 < tiles; ++tile) step(tile, false);
    step(tiles - 1, true);

    // STORE
    const size_t warp_rows = (size_t(blockIdx.y) * p.n_k + blockIdx.x * BC + warp * 16) * HEAD_DIM;
    store_rows(p.dK + warp_rows, dK_frag, p.softmax_scale);
    store_rows(p.dV + warp_rows, dV_frag, 1.0f);
  }
}

// LOAD  K and V once; then, whenever a stage is empty in both blocks, a panel of a tile of queries for both. The
//       other block brings its own here. One thread's.
template <class C>
__device__ __forceinline__ void load(const GradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     int first_tile, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  cp_async_bulk_tensor_4d(smem.K, K_map, 0, blockIdx.x * BC, 0, blockIdx.y, smem.full_K);
  cp_async_bulk_tensor_4d(smem.V, V_map, 0, blockIdx.x * BC, 0, blockIdx.y, smem.full_K);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, full = smem.ring.full_of(tile);
    const int q_tile = first_tile + tile;
    smem.ring.claim(tile);
    const uint32_t panel = cluster_rank(), target = stage * C::Q_BYTES + panel * BR * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d_multicast(smem.Q + target, Q_map, 0, q_tile * BR, panel, blockIdx.y, full, 0b11);
    cp_async_bulk_tensor_4d_multicast(smem.dO + target, dO_map, 0, q_tile * BR, panel, blockIdx.y, full, 0b11);
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of(p, blockIdx.y) + q_tile * 2 * BR, C::ROWS_BYTES, full);
  }
}

// STORE  dQ of a tile whenever a warpgroup has stored its half: 16 KiB in the order of its registers, here and
//        there. One thread's for each half.
template <class C>
__device__ __forceinline__ void add_dQ(const GradientParams& p, const Smem<C>& smem, uint32_t group, int first_tile,
                                       int passed, int tiles) {
  constexpr int BR = C::BR;
  const uint32_t full = smem.dQ_barriers + group * 16, empty = full + 8;
  float* const sum = dQ_sum_of(p, blockIdx.y) + group * BR * PANEL_COLS;
  for (int tile = passed; tile < tiles; ++tile) {
    mbarrier_wait_parity(full, (tile - passed) % 2);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(sum + size_t(first_tile + tile) * BR * HEAD_DIM, smem.dQ + group * C::dQ_BYTES,
                                 C::dQ_BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty);
  }
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(GradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init(C::BLOCKS * WARPS / 4);
  cluster_sync();  // safe to use the barriers, those of the other block, too

  // Queries before the pair's first tile see none of its keys. Those that see none of a block's pass it by; so do all,
  // where the pair's second block lies outside.
  const int pair_keys = (blockIdx.x - cluster_rank()) * BC, own_keys = blockIdx.x * BC;
  const int first_tile = p.causal ? pair_keys / BR : 0, tiles = p.n_q / BR - first_tile;
  const int passed = own_keys >= p.n_k ? tiles : p.causal ? (own_keys - pair_keys) / BR : 0;

  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load(p, smem, Q_map, K_map, V_map, dO_map, first_tile, tiles);
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0) add_dQ<C>(p, smem, warp - WARPS - 1, first_tile, passed, tiles);
    __syncwarp();    // the cluster's barrier takes whole warps
    cluster_sync();  // safe to end: as below
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<C>(p, smem, passed, tiles);
  __syncwarp();    // the cluster's barrier takes whole warps
  cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 rows_grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  const uint32_t pairs = (p.n_k / C::BC + 1) / C::BLOCKS;
  launch_clusters(device, gradients<C>, dim3(pairs * C::BLOCKS, p.batch_heads), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, tile_map(device, p, p.Q, p.n_q, C::BR, 1),
                  tile_map(device, p, p.K, p.n_k, C::BC, PANELS), tile_map(device, p, p.V, p.n_k, C::BC, PANELS),
                  tile_map(device, p, p.dO, p.n_q, C::BR, 1));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
