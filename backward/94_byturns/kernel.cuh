// 94_byturns: a tile's dQ is made by one warpgroup, the next one's by the other: each operand that an instruction reads
//             serves twice as many columns, and nobody waits for the other at every tile.
// Before:  in 76_joined each warpgroup makes half of dQ, 64 x 64, from as many bytes as shared memory can give meanwhile;
//          and both meet at every tile's dS.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
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

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;

// Products but those of dQ end at column COLUMNS: d is that at most, and what lies behind d is zeros.
template <class T, int BR, int BC, int WARPS, int STAGES, int COLUMNS_UP_TO = HEAD_DIM>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES> {
  static constexpr int COLUMNS = COLUMNS_UP_TO, COLUMN_TILES = COLUMNS / 8, D_SLICES = COLUMNS / 16;
};

// What a warpgroup does: dK and dV of its 64 keys, and of every second tile what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              int first_tile, int end_tile, int tiles, const TensorMap& dK_map,
                                              const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  const int later = keys.sequence.n_q - keys.sequence.n_k;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_tile = wgmma_descriptor(smem.K, BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t lane_dQ = smem.dQ + threadIdx.x % 128 * 16;
  const auto hand_over_dQ = [&] {  // both halves, of 64 columns each
    for (const uint32_t full : {smem.dQ_barriers, smem.dQ_barriers + 16}) hand_over(full);
  };
  float dK_frag[C::COLUMN_TILES][4] = {}, dV_frag[C::COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  mbarrier_wait_parity(smem.full_K, 0);                                      // safe to read K and V: they have landed
  int q_tile = first_tile;
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const bool mine =
        tile % 2 == int(warpgroup);  // is this tile's dQ? Of two dS in shared memory a warpgroup reads one
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
    issue_scores<T, C::COLUMNS, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    issue_scores<T, C::COLUMNS, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    if (tile > 0 && !mine) hand_over_dQ();  // of the tile before
    wgmma_wait<1>(S_frag);                  // safe to read S: its products are done, those of dP may go on
    const int first_query = q_tile * BR;
    if (keys.first_key + BC > keys.sequence.n_k || (p.causal && keys.first_key + BC > first_query + 1 - later)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Of the tile's queries, the first that sees this lane's key.
        const int key = keys.first_key + warp * 16 + FragmentC::row(lane, i);
        const int from = key >= keys.sequence.n_k ? BR : p.causal ? key + later - first_query : 0;
#pragma unroll
        for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
          if (query_tile * 8 + FragmentC::col(lane, i) < from) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh<T>(S_frag, P_frag, scale_log2);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();      // wgmma will find what this lane has stored
    wgmma_wait<0>(dV_frag, P_frag);  // dQ takes the registers of P
    if (mine) {
      named_barrier_sync(2 + warpgroup, C::WARPS * 32);  // safe to read dS: the other warpgroup has stored it, too

      // PV  dQ[BR queries x HEAD_DIM columns] = dS K, of all keys of the block.
      float dQ_frag[HEAD_DIM / 8][4];
      wgmma_fence(dQ_frag);
      issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, buffer, K_tile);
      wgmma_commit();

      // PV  dK += dS^T Q, under which dQ leaves
      wgmma_fence(dK_frag, dS_frag);
      issue_PV<T>(dK_frag, dS_frag, Q_here);
      wgmma_commit();
      wgmma_wait<1>(dQ_frag);  // safe to read dQ: its products are done, those of dK may go on
      for (const uint32_t full : {smem.dQ_barriers, smem.dQ_barriers + 16})
        mbarrier_wait_parity(full + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
      store_lanes(lane_dQ, dQ_frag);
      wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    } else {
      named_barrier_arrive(3 - warpgroup, C::WARPS * 32);  // it may read dS: this one's half is stored

      // PV  dK += dS^T Q
      wgmma_fence(dK_frag, dS_frag);
      issue_PV<T>(dK_frag, dS_frag, Q_here);
      wgmma_commit();
      wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    }
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    if (++q_tile == end_tile) q_tile = first_tile;  // of the next head
  }
  if ((tiles - 1) % 2 == int(warpgroup)) hand_over_dQ();  // of the last tile

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
  const Seers seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int end_tile = seers.end_tile<C>(keys.first_key), first_tile = seers.first_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ(p, smem, warp - WARPS - 1, keys, group, first_tile, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<VARLEN>(p, smem, keys, first_tile, end_tile, tiles, dK_map, dV_map);
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C, Seers>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
