// 94_backwards: the launches before and after the walk go through all rows backwards.
// Before:  in 91_afterwards the walk begins, and so does the launch behind it, with what the L2 cache has long lost.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 226 KiB (K, V 32 each; Q, dO, LSE, D 3 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

constexpr int HEAD_DIM = 128, COLUMN_TILES = HEAD_DIM / 8;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 1> {};  // a barrier more: dS is there

// The accumulators begin with a number of each query, from shared memory.
template <int TILES>
__device__ __forceinline__ void begin_tile(float (&frag)[TILES][4], uint32_t numbers) {
#pragma unroll
  for (int slice = 0; slice < TILES / 2; ++slice)
    begin_with(frag[2 * slice], frag[2 * slice + 1],
               ld_shared_v4(numbers + (slice * 16 + threadIdx.x % 32 % 4 * 4) * 4));
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              const SeersNearby& seers, int first_tile, int end_tile, int tiles,
                                              const TensorMap& dK_map, const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warpgroup = threadIdx.x / 128, full_dS = smem.more_barriers;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  float S_frag[BR / 8][4];
  uint32_t dS_frag[QUERY_SLICES][4];
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed

  // Of a tile, during the next one: dQ[64 queries x 64 columns] = dS K, of all keys of the block.
  const auto start_dQ = [&](int tile, float(&dQ_frag)[PANEL_COLS / 8][4]) {
    mbarrier_wait_parity(full_dS, tile % 2);  // safe to read dS, the other warpgroup's too
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, tile % 2 * C::dS_BYTES, K_panel);
    wgmma_commit();
  };
  const auto start_dK = [&](int tile) {  // dK += dS^T Q
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<T>(dK_frag, dS_frag, wgmma_advance(Q_tiles, tile % STAGES * C::Q_BYTES));
    wgmma_commit();
  };
  const auto store_dQ = [&](int tile, const float(&dQ_frag)[PANEL_COLS / 8][4]) {
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
  };
  const auto weigh = [&](int from, int to) {  // P of some of the tile's eights of queries
#pragma unroll
    for (int query_tile = from; query_tile < to; ++query_tile) {
      for (int i = 0; i < 4; ++i) S_frag[query_tile][i] = ex2_approx(S_frag[query_tile][i] * scale_log2);
    }
  };

  const auto step = [&](int tile, int q_tile, bool is_first) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE
    smem.ring.wait_full(tile);
    begin_tile(S_frag, rows);
    wgmma_fence(S_frag);
    issue_scores<T, HEAD_DIM, BC, BR>(S_frag, K_rows, wgmma_advance(Q_tiles, stage * C::Q_BYTES));
    wgmma_commit();
    float dP_frag[BR / 8][4];
    const auto start_dP = [&] {  // dP^T = V dO^T - D
      begin_tile(dP_frag, rows + BR * 4);
      wgmma_fence(dP_frag);
      issue_scores<T, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
      wgmma_commit();
    };
    // SOFTMAX  beside dQ and dK of the tile before, and beside dP. dP takes dQ's registers.
    if (is_first) {
      wgmma_wait<0>(S_frag);  // safe to read S
      seers.hide<C>(S_frag, keys.first_key, q_tile * BR);
      start_dP();
      weigh(0, BR / 8);
    } else {
      float dQ_frag[PANEL_COLS / 8][4];
      start_dQ(tile - 1, dQ_frag);
      start_dK(tile - 1);
      wgmma_wait<2>(S_frag);  // safe to read S: its products are done, those of dQ and dK may go on
      seers.hide<C>(S_frag, keys.first_key, q_tile * BR);
      weigh(0, BR / 16);
      wgmma_wait<1>(dQ_frag);  // safe to read dQ
      store_dQ(tile - 1, dQ_frag);
      start_dP();
      hand_over(full_dQ);
      weigh(BR / 16, BR / 8);
      wgmma_wait<1>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
      if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile - 1));
    }

    uint32_t P_frag[QUERY_SLICES][4];
    pack_weights<T>(P_frag, S_frag);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows. What lay there the other warpgroup has read: it made
    //     that dQ before it handed over the dS that this one has waited for.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    hand_over(full_dS);
    wgmma_wait<0>(dV_frag, P_frag);  // for ptxas: where a loop comes around nothing may be in flight
  };

  if (tiles > 0) {
    step(0, first_tile, true);
    int q_tile = first_tile;
    for (int tile = 1; tile < tiles; ++tile) {
      if (++q_tile == end_tile) q_tile = first_tile;  // of the next head
      step(tile, q_tile, false);
    }
    float dQ_frag[PANEL_COLS / 8][4];
    start_dQ(tiles - 1, dQ_frag);
    start_dK(tiles - 1);
    wgmma_wait<0>(dQ_frag, dK_frag, dS_frag);  // safe to read all of them
    store_dQ(tiles - 1, dQ_frag);
    hand_over(full_dQ);
  }

  seers.clear_unseen<C>(dK_frag, dV_frag, keys.first_key);

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  copy_gradients<VARLEN>(smem, dV_map, dK_map, keys);
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  Keys<C> keys;
  if (!keys.find(p)) return;

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int first_tile = seers.first_tile<C>(keys.first_key), end_tile = seers.end_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (const uint32_t half = warp - WARPS - 1; half < 2 && lane == 0)
      add_dQ(p, smem, half, keys, group, first_tile, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<VARLEN>(p, smem, keys, seers, first_tile, end_tile, tiles, dK_map, dV_map);
}

// Who goes through all tiles of queries backwards, and all heads of one before the next: what was written last lies in
// the L2 cache, and is asked for first. Walks begin with the first tiles, and end with the last.
// Grid (tiles of queries * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas_backwards(ModelGradientParams p) {
  const int number = gridDim.x - 1 - blockIdx.x, tile = number / p.heads;
  prepare_tile(p, QueryTile<C>(p, tile), tile, number % p.heads);
}
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients_backwards(ModelGradientParams p) {
  const int number = gridDim.x - 1 - blockIdx.x;
  finish_tile<C>(p, number / p.heads, number % p.heads);
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q) * p.heads);
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas_backwards<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients_backwards<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
