// 93_lists: the lists of 59 read by keys: which tiles of queries meet a tile of keys, found in all lists before.
// Before:  in 82_nearby the queries that see a key are a formula of its number. A sparse mask is holes.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 195 KiB (K, V 32 each; Q, dO, LSE, D, stencils 2 x 33.5;
//          dS 2 x 16; dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Lists and stencils: as BlockParams has them, or null.
//          In the workspace, behind room for a list of sequences, for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32. Then for each tile of keys
//          and each head its walk, a Met for each tile of queries, and before them how many there are.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;

// And with lists of blocks of keys for each tile of 128 queries, as BlockParams has them.
struct BlockGradientParams : ModelGradientParams {
  const int *lists, *counts;  // null: mask and window say who sees whom
  const uint32_t* stencils;
  int block_keys, most_blocks, of_sequence, of_head;
};

// A stencil says which of QUERIES queries see which of HALF keys: [QUERIES][2] words. One hides all pairs, one none.
constexpr int QUERIES = 128, HALF = 64, HIDES_ALL = 0, HIDES_NONE = 1;

// With LISTED_ a stage has BR rows of a tile's two stencils, behind LSE and D, and says whether they are there.
template <class T, int BR, int BC, int WARPS, int STAGES, bool LISTED_ = false>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 0, 1, STAGES*(2 * BR * 8 + 16)> {
  using Of = Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES>;
  using Listed = Config<T, BR, BC, WARPS, STAGES, true>;
  static constexpr bool LISTED = LISTED_;
  static constexpr uint32_t STENCIL_ROWS = BR * 8;  // in bytes, of one half
  static constexpr uint32_t ROWS_BYTES = Of::ROWS_BYTES + (LISTED ? 2 * STENCIL_ROWS + 16 : 0);
  static_assert(QUERIES % BR == 0 && BC == 2 * HALF, "a tile of queries lies in one stencil, and one of keys has two");
};

// A tile of BR queries that meets a tile of keys, and the stencils of both halves of that.
struct Met {
  int q_tile, stencil[2], unused;
};

// Of a tile of keys, and a head of queries, whose lists may be those of all.
template <class C>
__device__ __forceinline__ Met* walk_at(const BlockGradientParams& p, int sequence, int head, int k_tile) {
  const int q_tiles = tiles_of<C::BR>(p.n_q), k_tiles = tiles_of<C::BC>(p.n_k);
  const int lists = (p.of_sequence > 0 ? sequence * p.heads : 0) + (p.of_head > 0 ? head : 0);
  return reinterpret_cast<Met*>(dQ_sum_of<C>(p, p.batch * q_tiles, 0)) +
         (int64_t(lists) * k_tiles + k_tile) * (q_tiles + 1);
}
__device__ __forceinline__ int length_of(const Met* walk) {
  return ld_global_s32(&walk->q_tile);
}

// WALK  A warp goes through all lists for one tile of keys: each lane through that of another 128 queries.
//       Grid (tiles of keys, heads, sequences), or one of these where all have the same lists.
template <class C>
__global__ void __launch_bounds__(32) turn_lists(BlockGradientParams p) {
  const int q_tiles = tiles_of<C::BR>(p.n_q), each = p.block_keys / HALF, lane = threadIdx.x;
  Met* const walk = walk_at<C>(p, blockIdx.z, blockIdx.y, blockIdx.x);
  int length = 0;
  for (int first = 0; first * QUERIES < p.n_q; first += 32) {
    const int q_block = first + lane, begin = q_block * (QUERIES / C::BR);
    int stencil[2] = {HIDES_ALL, HIDES_ALL}, met = 0;  // tiles
    if (begin < q_tiles) {
      const int64_t list = int64_t(blockIdx.z) * p.of_sequence + int64_t(blockIdx.y) * p.of_head + q_block;
      const int count = ld_global_s32(p.counts + 2 * list), whole = ld_global_s32(p.counts + 2 * list + 1);
      for (int i = 0; i < count; ++i) {
        const int* const entry = p.lists + 2 * (list * p.most_blocks + i);
        const int block = ld_global_s32(entry);
        for (int half = 0; half < 2; ++half) {
          const int number = 2 * blockIdx.x + half;  // among all halves of keys
          if (number / each != block) continue;
          stencil[half] = i < whole ? HIDES_NONE : ld_global_s32(entry + 1) + number % each;
          met = min(QUERIES / C::BR, q_tiles - begin);
        }
      }
    }
    int behind = met;  // what this lane and those before it have found
    for (int apart = 1; apart < 32; apart *= 2) {
      const int other = shfl(behind, max(lane - apart, 0));
      if (lane >= apart) behind += other;
    }
    for (int i = 0; i < met; ++i)
      st_global_v4(walk + 1 + length + behind - met + i,
                   {uint32_t(begin + i), uint32_t(stencil[0]), uint32_t(stencil[1]), 0});
    length += shfl(behind, 31);
  }
  if (lane == 0) st_global_b32(&walk->q_tile, length);
}

// The walks of a group's heads, one after the other.
template <class C>
struct Walks {
  const BlockGradientParams& p;
  const Keys<C>& keys;
  int head, left = 0;
  const Met* at = nullptr;

  __device__ __forceinline__ Walks(const BlockGradientParams& p, const Keys<C>& keys, int group)
      : p(p), keys(keys), head(keys.kv_head * group - 1) {}
  // There must be one.
  __device__ __forceinline__ Met next() {
    while (left == 0) {
      at = walk_at<C>(p, keys.sequence.number, ++head, keys.first_key / C::BC);
      left = length_of(at);
    }
    --left;
    const uint4 words = ld_global_v4(++at);
    return {int(words.x), {int(words.y), int(words.z)}, head};
  }
};

// LOAD  K and V once; then the next tile of the walks whenever a stage is empty, and where it is seen in part its rows
//       of both stencils. One thread's.
template <class C>
__device__ __forceinline__ void load_listed(const BlockGradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                            const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                            const Keys<C>& keys, int group, int tiles) {
  const Sequence& sequence = keys.sequence;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  for (int panel = 0; panel < PANELS; ++panel) {
    const uint32_t target = panel * C::BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d(smem.K + target, K_map, panel * PANEL_COLS, keys.first_key, keys.kv_head, sequence.number,
                            smem.full_K);
    cp_async_bulk_tensor_4d(smem.V + target, V_map, panel * PANEL_COLS, keys.first_key, keys.kv_head, sequence.number,
                            smem.full_K);
  }
  Walks<C> walks(p, keys, group);
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const Met met = walks.next();
    const uint32_t stage = tile % C::STAGES, full = smem.ring.full_of(tile), rows = smem.rows + stage * C::ROWS_BYTES;
    const uint32_t stencils = rows + C::Of::ROWS_BYTES;
    const int row = met.q_tile * C::BR;
    const bool is_whole = met.stencil[0] == HIDES_NONE && met.stencil[1] == HIDES_NONE;
    smem.ring.wait_empty(tile);
    st_shared_b32(stencils + 2 * C::STENCIL_ROWS, is_whole);
    mbarrier_arrive_expect_tx(full, C::Of::STAGE_BYTES + (is_whole ? 0 : 2 * C::STENCIL_ROWS));
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t target = stage * C::Q_BYTES + panel * C::BR * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_4d(smem.Q + target, Q_map, panel * PANEL_COLS, row, walks.head, sequence.number, full);
      cp_async_bulk_tensor_4d(smem.dO + target, dO_map, panel * PANEL_COLS, row, walks.head, sequence.number, full);
    }
    cp_async_bulk(rows, rows_of<C>(p, sequence.first_tile + met.q_tile, walks.head), C::Of::ROWS_BYTES, full);
    for (int half = 0; half < 2 && !is_whole; ++half)
      cp_async_bulk(stencils + half * C::STENCIL_ROWS,
                    p.stencils + (int64_t(met.stencil[half]) * QUERIES + row % QUERIES) * 2, C::STENCIL_ROWS, full);
  }
}
// STORE  A warpgroup's half of dQ, in the order of its registers, here and there, whenever it has stored it. One
//        thread's for each half.
template <class C>
__device__ __forceinline__ void add_listed_dQ(const BlockGradientParams& p, const Smem<C>& smem, uint32_t half,
                                              const Keys<C>& keys, int group, int tiles) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  Walks<C> walks(p, keys, group);
#pragma unroll 1  // as above
  for (int tile = 0; tile < tiles; ++tile) {
    const Met met = walks.next();
    mbarrier_wait_parity(full, tile % 2);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(
        dQ_sum_of<C>(p, keys.sequence.first_tile + met.q_tile, walks.head) + half * (C::dQ_BYTES / 4),
        smem.dQ + half * C::dQ_BYTES, C::dQ_BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty);
  }
}

// Who sees which of a lane's two keys. A warp's 16 keys are half of a word of each query. `seen` remembers whether a
// key is anybody's.
template <class C>
__device__ __forceinline__ void hide_unlisted(float (&S)[C::BR / 8][4], bool (&seen)[2], uint32_t stencils) {
  if (ld_shared_b32(stencils + 2 * C::STENCIL_ROWS) != 0) {
    seen[0] = seen[1] = true;
    return;
  }
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t words = stencils + warp / 4 * C::STENCIL_ROWS + FragmentC::col(lane, 0) * 8 + warp % 4 / 2 * 4;
  const uint32_t bit = warp % 2 * 16 + FragmentC::row(lane, 0);
#pragma unroll
  for (int query_tile = 0; query_tile < C::BR / 8; ++query_tile) {
    const uint32_t bits[2] = {ld_shared_b32(words + query_tile * 64) >> bit,
                              ld_shared_b32(words + query_tile * 64 + 8) >> bit};
    for (int i = 0; i < 4; ++i) {
      if (bits[i % 2] >> (i / 2 * 8) & 1) {
        seen[i / 2] = true;
      } else {
        S[query_tile][i] = -INFINITY;
      }
    }
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              const SeersNearby& seers, int first_tile, int end_tile, int tiles,
                                              const TensorMap& dK_map, const TensorMap& dV_map) {
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
  int q_tile = first_tile;
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
    if constexpr (C::LISTED)
      hide_unlisted<C>(S_frag, seen, rows + C::Of::ROWS_BYTES);
    else
      seers.template hide<C>(S_frag, keys.first_key, q_tile * BR);

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
    if (++q_tile == end_tile) q_tile = first_tile;  // of the next head
  }
  hand_over(full_dQ);  // of the last tile; where there was none, nobody waits for it

  // A key that no query sees: its sums are of zeros times numbers that may be NaN. Four lanes know of the same keys.
  if constexpr (!C::LISTED) seers.template clear_unseen<C>(dK_frag, dV_frag, keys.first_key);
  for (int lane_row = 0; lane_row < 2 && C::LISTED; ++lane_row) {
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
    gradients(BlockGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // Heads of a sequence take turns, so many together that what they walk over, Q, dO and the sum of dQ, 8 B an element,
  // stays in the L2 cache: the last blocks of all are the last keys of these.
  int together = 1;
  while (p.kv_heads % (2 * together) == 0 && 2 * together * size_t(p.n_q) * HEAD_DIM * 8 <= TOGETHER_BYTES)
    together *= 2;
  const int k_tiles = tiles_of<C::BC>(p.n_k), in_turn = blockIdx.x % (k_tiles * together);
  const int of_all = blockIdx.x / (k_tiles * together) * together + in_turn % together;
  const int sequence = of_all / p.kv_heads, first_tile_of_all = sequence * tiles_of<C::BR>(p.n_q);
  const Keys<C> keys{{sequence, 0, p.n_q, 0, p.n_k, first_tile_of_all, together, 0},
                     0,
                     in_turn / together * C::BC,
                     of_all % p.kv_heads};

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int first_tile = seers.first_tile<C>(keys.first_key), end_tile = seers.end_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads;
  int tiles = group * (end_tile - first_tile);
  if constexpr (C::LISTED) {
    tiles = 0;
    for (int head = keys.kv_head * group; head < (keys.kv_head + 1) * group; ++head)
      tiles += length_of(walk_at<C>(p, keys.sequence.number, head, keys.first_key / C::BC));
  }

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    const bool copies = threadIdx.x == WARPS * 32, adds = warp > WARPS && warp <= WARPS + 2 && lane == 0;
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if constexpr (C::LISTED) {
      if (copies) load_listed(p, smem, Q_map, K_map, V_map, dO_map, keys, group, tiles);
      if (adds) add_listed_dQ(p, smem, warp - WARPS - 1, keys, group, tiles);
    } else {
      if (copies) load<false>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
      if (adds) add_dQ(p, smem, warp - WARPS - 1, keys, group, first_tile, end_tile, tiles);
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate(p, smem, keys, seers, first_tile, end_tile, tiles, dK_map, dV_map);
}

// LAUNCH  D and zeros first, walks where there are lists, dQ last. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const BlockGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, false>(device, p, tensor, strides, heads, n, rows); };
  const ModelGradientParams& without_lists = p;
  const dim3 rows_grid(p.batch * tiles_of<C::BR>(p.n_q), p.heads);
  const int k_tiles = tiles_of<C::BC>(p.n_k);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, without_lists);
  if (k_tiles > 0 && C::LISTED) {
    const dim3 lists(k_tiles, p.of_head > 0 ? p.heads : 1, p.of_sequence > 0 ? p.batch : 1);
    launch(device, turn_lists<C>, lists, dim3(32), 0, p);
  }
  if (k_tiles > 0)
    launch(device, gradients<C>, dim3(k_tiles * p.kv_heads * p.batch), dim3(C::THREADS), C::SMEM_BYTES, p,
           map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR), map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC),
           map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), map(p.dO, p.O_strides, p.heads, p.n_q, C::BR),
           map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16), map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, without_lists);
}

template <class C>
void run(Device& device, const BlockGradientParams& p) {
  p.lists != nullptr ? start<typename C::Listed>(device, p) : start<C>(device, p);
}

}  // namespace
