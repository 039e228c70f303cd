// 92_intervals: an interval of keys for each query, as in 58, read by keys: which tiles of queries see a tile of keys.
// Before:  in 82_nearby the queries that see a key are a formula of its number. Documents and prefixes have no formula.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 194 KiB (K, V 32 each; Q, dO, LSE, D, rows' intervals
//          2 x 33; dS 2 x 16; dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          first, end: [batch, n_q], or null where a query sees what mask and window leave.
//          In the workspace, behind room for a list of sequences, for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32. Then for each tile of queries its Look,
//          and for each tile of keys its Walk.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;

// And with an interval of keys for each query, of any two numbers: of the keys that it sees otherwise, those from
// `first` on and before `end`.
struct IntervalGradientParams : ModelGradientParams {
  const int *first, *end;  // [batch, n_q], or null
};

// What is known of a tile of BR queries, in memory and in shared memory: the first key of each and its end, in the
// order in which lanes take them, and of the whole tile the least and the greatest of both.
template <int BR>
struct Look {
  static constexpr uint32_t WORDS = 2 * BR + 4, BYTES = WORDS * 4;
  static constexpr uint32_t FROM = 0, TO = BR, MOST_FROM = 2 * BR,
                            LEAST_TO = MOST_FROM + 1,       // between them all see all
      LEAST_FROM = MOST_FROM + 2, MOST_TO = MOST_FROM + 3;  // outside nobody sees any
};

// LSE and D of a stage's queries, and behind them their Look.
template <class T, int BR_, int BC, int WARPS, int STAGES>
struct Config : Walk<T, HEAD_DIM, BR_, BC, WARPS, STAGES, 0, 1, STAGES * Look<BR_>::BYTES> {
  using Walked = Walk<T, HEAD_DIM, BR_, BC, WARPS, STAGES>;
  using TileLook = Look<BR_>;
  static constexpr uint32_t ROWS_BYTES = Walked::ROWS_BYTES + TileLook::BYTES,
                            STAGE_BYTES = Walked::STAGE_BYTES + TileLook::BYTES;
};

// Behind the sums and rows of all tiles: Looks, and the first tile and the end of each walk.
template <class C>
__device__ __forceinline__ int* look_at(const IntervalGradientParams& p, int tile) {
  return reinterpret_cast<int*>(dQ_sum_of<C>(p, p.batch * tiles_of<C::BR>(p.n_q), 0)) + tile * C::TileLook::WORDS;
}
template <class C>
__device__ __forceinline__ int* walk_at(const IntervalGradientParams& p, int k_tile) {
  return look_at<C>(p, p.batch * tiles_of<C::BR>(p.n_q)) + k_tile * 2;
}

// Mask and window are intervals, too. A query that sees no key has one without keys, from 0 to 0: its tile is masked,
// and nobody walks for it. A warp looks, and each lane at BR / 32 rows.
template <class C>
__device__ __forceinline__ void look(const IntervalGradientParams& p, const QueryTile<C>& tile) {
  int* const words = look_at<C>(p, blockIdx.x);
  const int before = side(p.left, p.n_k), behind = p.causal ? 0 : side(p.right, p.n_q);
  int least_from = p.n_k, most_from = 0, least_to = p.n_k, most_to = 0;
  for (int tile_row = threadIdx.x; tile_row < C::BR; tile_row += 32) {
    const int query = tile.row + min(tile_row, tile.rows - 1), own = query + p.n_k - p.n_q;
    const int64_t row = int64_t(tile.sequence) * p.n_q + query;
    int from = max(own - before, 0), to = min(own + behind + 1, p.n_k);
    if (p.first != nullptr) from = max(from, ld_global_s32(p.first + row)), to = min(to, ld_global_s32(p.end + row));
    if (from < to) least_from = min(least_from, from);
    if (from >= to) from = to = 0;
    most_from = max(most_from, from), least_to = min(least_to, to), most_to = max(most_to, to);
    st_global_b32(words + C::TileLook::FROM + in_lane_order(tile_row), from);
    st_global_b32(words + C::TileLook::TO + in_lane_order(tile_row), to);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int other = threadIdx.x ^ lanes;
    least_from = min(least_from, int(shfl(least_from, other))), most_to = max(most_to, int(shfl(most_to, other)));
    most_from = max(most_from, int(shfl(most_from, other))), least_to = min(least_to, int(shfl(least_to, other)));
  }
  if (threadIdx.x == 0)
    st_global_v4(words + C::TileLook::MOST_FROM,
                 {uint32_t(most_from), uint32_t(least_to), uint32_t(least_from), uint32_t(most_to)});
}
// D, -LSE and zeros for the sum of dQ, and the Look of each tile, which is that of all heads.
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas_and_looks(IntervalGradientParams p) {
  const QueryTile<C> tile(p, blockIdx.x);
  if (blockIdx.y == 0 && threadIdx.x < 32) look<C>(p, tile);
  prepare_tile<C>(p, tile, blockIdx.x, blockIdx.y);
}

// Which tiles of queries see some of BC keys: from the first to the last one that does. A warp looks through all.
// Grid (tiles of keys, sequences).
template <class C>
__global__ void __launch_bounds__(32) walks(IntervalGradientParams p) {
  const int tiles = tiles_of<C::BR>(p.n_q), first_key = blockIdx.x * C::BC;
  int first_tile = tiles, end_tile = 0;
  for (int tile = threadIdx.x; tile < tiles; tile += 32) {
    const uint4 most = ld_global_v4(look_at<C>(p, blockIdx.y * tiles + tile) + C::TileLook::MOST_FROM);
    if (int(most.z) >= first_key + C::BC || int(most.w) <= first_key) continue;
    first_tile = min(first_tile, tile), end_tile = tile + 1;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int other = threadIdx.x ^ lanes;
    first_tile = min(first_tile, int(shfl(first_tile, other))), end_tile = max(end_tile, int(shfl(end_tile, other)));
  }
  int* const walk = walk_at<C>(p, blockIdx.y * gridDim.x + blockIdx.x);
  if (threadIdx.x == 0) st_global_b32(walk, min(first_tile, end_tile)), st_global_b32(walk + 1, end_tile);
}

// LOAD  K and V once; then a tile of queries whenever a stage is empty, and with it its Look. One thread's.
template <class C>
__device__ __forceinline__ void load_with_looks(const IntervalGradientParams& p, const Smem<C>& smem,
                                                const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map,
                                                const TensorMap& dO_map, const Keys<C>& keys, int group, int first_tile,
                                                int end_tile, int tiles) {
  const Sequence& sequence = keys.sequence;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  for (int panel = 0; panel < PANELS; ++panel) {
    const uint32_t target = panel * C::BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d(smem.K + target, K_map, panel * PANEL_COLS, keys.first_key, keys.kv_head, sequence.number,
                            smem.full_K);
    cp_async_bulk_tensor_4d(smem.V + target, V_map, panel * PANEL_COLS, keys.first_key, keys.kv_head, sequence.number,
                            smem.full_K);
  }
  int head = keys.kv_head * group, q_tile = first_tile;
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % C::STAGES, full = smem.ring.full_of(tile), rows = smem.rows + stage * C::ROWS_BYTES;
    const int row = q_tile * C::BR, of_all = sequence.first_tile + q_tile;
    smem.ring.claim(tile);
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t target = stage * C::Q_BYTES + panel * C::BR * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_4d(smem.Q + target, Q_map, panel * PANEL_COLS, row, head, sequence.number, full);
      cp_async_bulk_tensor_4d(smem.dO + target, dO_map, panel * PANEL_COLS, row, head, sequence.number, full);
    }
    cp_async_bulk(rows, rows_of<C>(p, of_all, head), C::Walked::ROWS_BYTES, full);
    cp_async_bulk(rows + C::Walked::ROWS_BYTES, look_at<C>(p, of_all), C::TileLook::BYTES, full);
    if (++q_tile == end_tile) q_tile = first_tile, ++head;
  }
}

// Who sees which of a lane's two keys. In a tile of queries that all see all of the block's keys, everyone; else others
// get weights of 0. `seen` remembers whether a key is anybody's.
template <class C>
__device__ __forceinline__ void hide(float (&S)[C::BR / 8][4], bool (&seen)[2], uint32_t look, int first_key) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint2 all = ld_shared_v2(look + C::TileLook::MOST_FROM * 4);
  if (int(all.x) <= first_key && int(all.y) >= first_key + C::BC) {
    seen[0] = seen[1] = true;
    return;
  }
#pragma unroll
  for (int query_slice = 0; query_slice < C::QUERY_SLICES; ++query_slice) {
    const uint32_t four = look + (query_slice * 16 + lane % 4 * 4) * 4;
    const uint4 from = ld_shared_v4(four + C::TileLook::FROM * 4), to = ld_shared_v4(four + C::TileLook::TO * 4);
    const int first[4] = {int(from.x), int(from.y), int(from.z), int(from.w)},
              end[4] = {int(to.x), int(to.y), int(to.z), int(to.w)};
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // of columns c, c + 1, c + 8, c + 9 two keys each
      const int query = i / 4 * 2 + i % 2, key = first_key + warp * 16 + FragmentC::row(lane, i % 4);
      if (key >= first[query] && key < end[query]) {
        seen[i % 4 / 2] = true;
      } else {
        S[2 * query_slice + i / 4][i % 4] = -INFINITY;
      }
    }
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const IntervalGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              int tiles, const TensorMap& dK_map, const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
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
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  mbarrier_wait_parity(smem.full_K, 0);                                // safe to read K and V: they have landed
  bool seen[2] = {false, false};
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
    issue_scores<T, HEAD_DIM, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    issue_scores<T, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    if (tile > 0) hand_over(full_dQ);  // of the tile before
    wgmma_wait<1>(S_frag);             // safe to read S: its products are done, those of dP may go on
    hide<C>(S_frag, seen, rows + C::Walked::ROWS_BYTES, keys.first_key);

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
    fence_proxy_async_shared();            // wgmma will find what this lane has stored
    named_barrier_sync(1, C::WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, buffer, K_panel);
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
  }
  hand_over(full_dQ);  // of the last tile; where there was none, nobody waits for it

  // A key that no query sees: its sums are of zeros times numbers that may be NaN. Four lanes know of the same keys.
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const int of_two = seen[lane_row] | shfl(seen[lane_row], lane ^ 1);
    if (of_two | shfl(of_two, lane ^ 2)) continue;
#pragma unroll
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile) {
      for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i) dK_frag[column_tile][i] = dV_frag[column_tile][i] = 0;
    }
  }

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  copy_gradients<false>(smem, dV_map, dK_map, keys);
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(IntervalGradientParams p, const __grid_constant__ TensorMap Q_map,
              const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map,
              const __grid_constant__ TensorMap dO_map, const __grid_constant__ TensorMap dK_map,
              const __grid_constant__ TensorMap dV_map) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // Heads of a sequence take turns, four at a time: the last blocks of all are the last keys of four heads.
  const int k_tiles = tiles_of<C::BC>(p.n_k), together = p.kv_heads % 4 == 0 ? 4 : p.kv_heads % 2 == 0 ? 2 : 1;
  const int in_turn = blockIdx.x % (k_tiles * together), k_tile = in_turn / together;
  const int of_all = blockIdx.x / (k_tiles * together) * together + in_turn % together;
  const int sequence = of_all / p.kv_heads, q_tiles = tiles_of<C::BR>(p.n_q);
  const Keys<C> keys{{sequence, 0, p.n_q, 0, p.n_k, sequence * q_tiles, 1, 0}, 0, k_tile * C::BC, of_all % p.kv_heads};

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const int* const walk = walk_at<C>(p, sequence * k_tiles + k_tile);
  const int first_tile = ld_global_s32(walk), end_tile = ld_global_s32(walk + 1);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load_with_looks(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ(p, smem, warp - WARPS - 1, keys, group, first_tile, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate(p, smem, keys, tiles, dK_map, dV_map);
}

// LAUNCH  D, zeros and Looks first, then walks, dQ last. The pointers of `p` belong to the device and are multiples of
//         16 B, as are strides.
template <class C>
void run(Device& device, const IntervalGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, false>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(p.batch * tiles_of<C::BR>(p.n_q), p.heads);
  const int k_tiles = tiles_of<C::BC>(p.n_k);
  launch(device, deltas_and_looks<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (k_tiles > 0) {
    launch(device, walks<C>, dim3(k_tiles, p.batch), dim3(32), 0, p);
    launch(device, gradients<C>, dim3(k_tiles * p.kv_heads * p.batch), dim3(C::THREADS), C::SMEM_BYTES, p,
           map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR), map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC),
           map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), map(p.dO, p.O_strides, p.heads, p.n_q, C::BR),
           map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16), map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  }
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, static_cast<const ModelGradientParams&>(p));
}

}  // namespace
