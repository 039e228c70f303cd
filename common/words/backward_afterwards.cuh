// The walk of a gradient kernel in which a tile's dQ and dK are made in the next tile's step: what 91_afterwards spells
// out, and 94 and all behind say. With fewer columns (g01_narrow) V can stay in registers (g02_kept).
#pragma once
#include "common/words/backward_models.cuh"

namespace backward::models {
inline namespace LADDER_OF_BUILD {

// 91_afterwards. The accumulators begin with a number of each query, from shared memory.
template <int TILES>
__device__ __forceinline__ void begin_tile(float (&frag)[TILES][4], uint32_t numbers LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < TILES / 2; ++slice)
    begin_with(frag[2 * slice], frag[2 * slice + 1],
               ld_shared_v4(numbers + (slice * 16 + threadIdx.x % 32 % 4 * 4) * 4 LADDER_SITE));
}

// 91_afterwards. What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate_afterwards(const ModelGradientParams& p, const Smem<C>& smem,
                                                         const Keys<C>& keys, const SeersNearby& seers, int first_tile,
                                                         int end_tile, int tiles, const TensorMap& dK_map,
                                                         const TensorMap& dV_map LADDER_SITE_PARAMETER) {
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
  float dK_frag[C::COLUMN_TILES][4] = {}, dV_frag[C::COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  float S_frag[BR / 8][4];
  uint32_t dS_frag[QUERY_SLICES][4];
  mbarrier_wait_parity(smem.full_K, 0 LADDER_SITE);  // safe to read K and V: they have landed

  // V is A of dP: in shared memory, or where a kernel keeps it, in registers (g02_kept), each number once.
  uint32_t V_frag[C::KEEPS_V ? C::D_SLICES : 1][4];
  if constexpr (C::KEEPS_V) {
    const uint32_t lane = threadIdx.x % 32, rows = smem.V + (threadIdx.x / 32 * 16 + lane % 16) * PANEL_ROW_BYTES;
#pragma unroll
    for (int slice = 0; slice < C::D_SLICES; ++slice)
      ldmatrix_x4(V_frag[slice], rows + slice / 4 * BC * PANEL_ROW_BYTES +
                                     ((slice % 4 * 2 + lane / 16) ^ (lane % 8)) * 16 LADDER_SITE);
  }

  // Of a tile, during the next one: dQ[64 queries x 64 columns] = dS K, of all keys of the block.
  const auto start_dQ = [&](int tile, float(&dQ_frag)[PANEL_COLS / 8][4]) {
    mbarrier_wait_parity(full_dS, tile % 2 LADDER_SITE);  // safe to read dS, the other warpgroup's too
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, tile % 2 * C::dS_BYTES, K_panel LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
  };
  const auto start_dK = [&](int tile) {  // dK += dS^T Q
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<T>(dK_frag, dS_frag, wgmma_advance(Q_tiles, tile % STAGES * C::Q_BYTES), true LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
  };
  const auto store_dQ = [&](int tile, const float(&dQ_frag)[PANEL_COLS / 8][4]) {
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1 LADDER_SITE);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag LADDER_SITE);
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
    smem.ring.wait_full(tile LADDER_SITE);
    begin_tile(S_frag, rows LADDER_SITE);
    wgmma_fence(S_frag);
    issue_scores<T, C::COLUMNS, BC, BR>(S_frag, K_rows, wgmma_advance(Q_tiles, stage * C::Q_BYTES) LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
    float dP_frag[BR / 8][4];
    const auto start_dP = [&] {  // dP^T = V dO^T - D
      begin_tile(dP_frag, rows + BR * 4 LADDER_SITE);
      if constexpr (C::KEEPS_V) {
        wgmma_fence(dP_frag, V_frag);
#pragma unroll
        for (int slice = 0; slice < C::D_SLICES; ++slice)
          multiply_rs<T>(dP_frag, V_frag[slice], wgmma_advance(dO_here, slices_on<BR>(slice)), true LADDER_SITE);
      } else {
        wgmma_fence(dP_frag);
        issue_scores<T, C::COLUMNS, BC, BR>(dP_frag, V_rows, dO_here LADDER_SITE);
      }
      wgmma_commit(LADDER_SITE_ALONE);
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
      hand_over(full_dQ LADDER_SITE);
      weigh(BR / 16, BR / 8);
      wgmma_wait<1>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
      if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile - 1) LADDER_SITE);
    }

    uint32_t P_frag[QUERY_SLICES][4];
    pack_weights<T>(P_frag, S_frag);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here, true LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows. What lay there the other warpgroup has read: it made
    //     that dQ before it handed over the dS that this one has waited for.
    store_transposed<BR>(smem.dS + buffer, dS_frag LADDER_SITE);
    hand_over(full_dS LADDER_SITE);
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
    hand_over(full_dQ LADDER_SITE);
  }

  seers.clear_unseen<C>(dK_frag, dV_frag, keys.first_key);

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag LADDER_SITE);
  copy_gradients<VARLEN>(smem, dV_map, dK_map, keys LADDER_SITE);
}

}  // namespace LADDER_OF_BUILD
}  // namespace backward::models
