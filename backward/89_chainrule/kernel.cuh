// 89_chainrule: a score's gradient passes the function that was applied to it: dS is multiplied by the derivative.
// Before:  in 83 a score is scale * QK and nothing else. Models cap it, or take something from it by distance, and a
//          sink beside the keys has a gradient of its own.
// Tile:    64x128, or 128x128 where d <= 64, 8 warps and 4 that copy and add.  Shared: 193 KiB, or 194.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          alibi_slopes, sinks: [heads] f32, or null; dsinks: [batch, heads] f32.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

template <class T, int D, int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<T, D, BR, BC, WARPS, STAGES> {
  static_assert(BR * D == 64 * 128, "of dQ a warpgroup has 64 queries by 64 columns");
};

// What became of a score before the softmax: P = exp(scale * function(Q K^T) - LSE). `distance`: how far a key lies
// before the query's own, negative behind it. `slope`: the head's of p.alibi_slopes, over scale. Hidden scores, which
// are -infinity, stay that. A reader's own function is five lines: the score, and its derivative by the one before.
template <bool CAPPED>
struct Score {
  static constexpr bool CHANGES = true;
  struct Changed {
    float score, derivative;
  };
  float inner, outer;

  __device__ __forceinline__ explicit Score(const ScoreGradientParams& p)
      : inner(p.softmax_scale / p.softcap), outer(p.softcap / p.softmax_scale) {}
  __device__ __forceinline__ Changed operator()(float score, float distance, float slope) const {
    float derivative = 1;
    if (CAPPED) {
      const float tanh = tanh_approx(score * inner);
      score = fminf(outer * tanh, score + 3e38f);  // a hidden one is -infinity, and stays that
      derivative = 1 - tanh * tanh;
    }
    return {score - slope * fabsf(distance), derivative};  // ALiBi
  }
};
struct Unchanged {
  static constexpr bool CHANGES = false;  // it costs nothing
  __device__ __forceinline__ explicit Unchanged(const ScoreGradientParams&) {}
};

// S becomes the weights times the function's derivative, and P the weights, rounded: what the score's gradient needs is
// made while the score is there. `rows` has -LSE of the tile's queries; `from` is a lane's first distance.
template <class T, class Function, int TILES>
__device__ __forceinline__ void weigh_changed(float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4],
                                              const Function& function, float slope, float from, uint32_t rows,
                                              float scale_log2) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    const uint2 LSE = ld_shared_v2(rows + (query_tile / 2 * 16 + threadIdx.x % 4 * 4 + query_tile % 2 * 2) * 4);
    float weights[4];
    for (int i = 0; i < 4; ++i) {
      float& score = S[query_tile][i];
      const auto changed =
          function(score, from + (query_tile * 8 + FragmentC::col(0, i) - FragmentC::row(0, i)), slope);
      weights[i] = ex2_approx((changed.score + __uint_as_float(i % 2 == 0 ? LSE.x : LSE.y)) * scale_log2);
      score = weights[i] * changed.derivative;
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[query_tile / 2][query_tile % 2 * 2 + lane_row] = pack<T>(weights[2 * lane_row], weights[2 * lane_row + 1]);
  }
}

// In units of Q K^T; 0 where there are none, or of no head.
__device__ __forceinline__ float slope_of(const ScoreGradientParams& p, int head) {
  return p.alibi_slopes != nullptr && head < p.heads ? ld_global_f32(p.alibi_slopes + head) / p.softmax_scale : 0;
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <bool VARLEN, class Function, class C>
__device__ __forceinline__ void differentiate(const ScoreGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              const SeersNearby& seers, int group, int first_tile, int end_tile,
                                              int tiles, const TensorMap& dK_map, const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  constexpr int HEAD_DIM = C::HEAD_DIM, QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors, as 64_warpgroups explains them. Of dQ a warpgroup has a panel, or of a single one half of the rows.
  Operands<C> at(smem, warpgroup);
  if (C::PANELS == 1) {
    at.K_panel = wgmma_descriptor(smem.K);
    at.dS_tiles = wgmma_descriptor(smem.dS + warpgroup * 64 * PANEL_ROW_BYTES);
  }
  const Function function(p);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[C::COLUMN_TILES][4] = {}, dV_frag[C::COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  mbarrier_wait_parity(smem.full_K, 0);                                      // safe to read K and V: they have landed
  int q_tile = first_tile, head = keys.kv_head * group;
  float slope = slope_of(p, head);
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(at.Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(at.dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE, or without LSE where a function comes between; dP^T = V dO^T - D
    smem.ring.wait_full(tile);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice) {
      const uint32_t four = rows + (query_slice * 16 + lane % 4 * 4) * 4;
      begin_with(S_frag[2 * query_slice], S_frag[2 * query_slice + 1],
                 Function::CHANGES ? uint4{} : ld_shared_v4(four));
      begin_with(dP_frag[2 * query_slice], dP_frag[2 * query_slice + 1], ld_shared_v4(four + BR * 4));
    }
    wgmma_fence(S_frag, dP_frag);
    issue_scores<T, HEAD_DIM, BC, BR>(S_frag, at.K_rows, Q_here);
    wgmma_commit();
    issue_scores<T, HEAD_DIM, BC, BR>(dP_frag, at.V_rows, dO_here);
    wgmma_commit();
    if (tile > 0) hand_over(full_dQ);  // of the tile before
    wgmma_wait<1>(S_frag);             // safe to read S: its products are done, those of dP may go on
    seers.hide<C>(S_frag, keys.first_key, q_tile * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    if constexpr (Function::CHANGES) {
      const int from = q_tile * BR + FragmentC::col(lane, 0) + keys.sequence.n_k - keys.sequence.n_q -
                       (keys.first_key + int(warp) * 16 + FragmentC::row(lane, 0));
      weigh_changed<T>(S_frag, P_frag, function, slope, from, rows, scale_log2);
    } else {
      weigh<T>(S_frag, P_frag, scale_log2);
    }

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();            // wgmma will find what this lane has stored
    named_barrier_sync(1, C::WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[64 queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, at.dS_tiles, buffer, at.K_panel);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<T>(dK_frag, dS_frag, Q_here);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);            // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    if (++q_tile == end_tile) q_tile = first_tile, slope = slope_of(p, ++head);
  }
  hand_over(full_dQ);  // of the last tile; where there was none, nobody waits for it

  seers.clear_unseen<C>(dK_frag, dV_frag, keys.first_key);

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  copy_gradients<VARLEN>(smem, dV_map, dK_map, keys);
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ScoreGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
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
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ(p, smem, warp - WARPS - 1, keys, group, first_tile, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  differentiate<VARLEN, Function>(p, smem, keys, seers, group, first_tile, end_tile, tiles, dK_map, dV_map);
}

__device__ __forceinline__ int rows_of_sequence(const int* cu_seqlens, int sequence, int n) {
  return begin_of(cu_seqlens, sequence + 1, n) - begin_of(cu_seqlens, sequence, n);
}

// dQ, from the sum, when all blocks have added to it. Eight columns of a tile's rows r and r + 8 are 16 numbers of four
// lanes, side by side: a thread has these, and eight threads have 64 columns.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ScoreGradientParams p) {
  using T = typename C::T;
  const int head = blockIdx.y;
  const QueryTile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  const int n_q = rows_of_sequence(p.cu_seqlens_q, tile.sequence, p.n_q),
            n_k = rows_of_sequence(p.cu_seqlens_k, tile.sequence, p.n_k);
  const SeersNearby seers(p, n_q, n_k);
  for (int i = threadIdx.x; i < C::BR * C::HEAD_DIM / 16; i += ROW_THREADS) {
    const int column_tile = i % 8, four_lanes = i / 8 % 32, half = i / 256;  // of a warpgroup: its 32 times four lanes
    const int column = (C::PANELS == 1 ? 0 : half * PANEL_COLS) + column_tile * 8;
    if (column >= p.d) continue;
    const float* const from =
        dQ_sum_of<C>(p, blockIdx.x, head) + half * (C::dQ_BYTES / 4) + column_tile * 512 + four_lanes * 16;
    uint32_t pairs[2][4];  // [lane_row]
    load_lanes<T>(pairs, from, p.softmax_scale);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = (C::PANELS == 1 ? half * 64 : 0) + four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8;
      if (row >= tile.rows) continue;
      // Without any key the sum is 0 times K, which may be NaN. LSE does not say so: with a sink it is that.
      const int own = row + n_k - tile.rows;
      const bool sees = max(own - seers.behind, 0) <= min(own + seers.before, n_k - 1);
      const uint32_t(&four)[4] = pairs[lane_row];
      st_global_v4(static_cast<T*>(p.dQ) + offset_of(p.Q_strides, tile.sequence, head, tile.row + row) + column,
                   sees ? uint4{four[0], four[1], four[2], four[3]} : uint4{0, 0, 0, 0});
    }
  }
}

// A sink is a key whose value is 0, so its dP is 0, and its dS is P (0 - D): summed over a sequence's queries, always
// in the same order.   Grid (sequences, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) sink_gradients(ScoreGradientParams p) {
  const int sequence = blockIdx.x, head = blockIdx.y, lane = threadIdx.x % 32;
  const int n_q = rows_of_sequence(p.cu_seqlens_q, sequence, p.n_q), tile = first_tile_of<C>(p, sequence);
  const float sink = ld_global_f32(p.sinks + head) / p.softmax_scale;
  float sum = 0;
  for (int query = threadIdx.x; query < n_q; query += ROW_THREADS) {
    const float* const rows = rows_of<C>(p, tile + query / C::BR, head) + in_lane_order(query % C::BR);
    const float weight = ex2_approx((sink + ld_global_f32(rows)) * p.softmax_scale * LOG2E);
    sum += weight * ld_global_f32(rows + C::BR);
  }
  for (int apart = 16; apart > 0; apart /= 2) sum += shfl_xor(sum, apart);
  if (lane == 0) st_shared_b32(smem_base() + threadIdx.x / 32 * 4, __float_as_uint(sum));
  __syncthreads();  // safe to read the warps' sums
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < ROW_THREADS / 32; ++warp) sum += __uint_as_float(ld_shared_b32(smem_base() + warp * 4));
  st_global_f32(p.dsinks + sequence * p.heads + head, sum);
}

// LAUNCH  The list, D and zeros first, dQ and the sinks' last. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C, bool VARLEN, class Function>
void start(Device& device, const ScoreGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  const ModelGradientParams& without_scores = p;
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, without_scores);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, without_scores);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN, Function>,
           dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads), dim3(C::THREADS),
           C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.sinks != nullptr)
    launch(device, sink_gradients<C>, dim3(p.batch, p.heads), dim3(ROW_THREADS), ROW_THREADS / 32 * 4, p);
}

template <class C, class Function>
void start_function(Device& device, const ScoreGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true, Function>(device, p) : start<C, false, Function>(device, p);
}

template <class C>
void run(Device& device, const ScoreGradientParams& p) {
  p.softcap > 0               ? start_function<C, Score<true>>(device, p)
  : p.alibi_slopes != nullptr ? start_function<C, Score<false>>(device, p)
                              : start_function<C, Unchanged>(device, p);
}

}  // namespace
