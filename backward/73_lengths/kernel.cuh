// 73_lengths: sequences of several lengths lie one behind the other. The device lists them, longest walks first, and
//          each has tiles of its own in the workspace, so what the engine adds for one never touches the next.
// Before:  in 68_models all sequences of a batch have one length.
// Tile:    64x128, 8 warps and 4 that copy and add.
//          Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16; dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] bf16, in any strides; a
//          gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and LSE and D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward.cuh"

namespace {

using namespace backward;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16, PLAN_THREADS = 256;

template <int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<bf16, HEAD_DIM, BR, BC, WARPS, STAGES> {};

// A sequence: which one; where its rows begin among all of Q and of K, and how many it has; its first tile in the
// workspace; how many heads of keys take turns; and how many blocks the sequences before it in the list have.
struct Sequence {
  int number, q_begin, n_q, k_begin, n_k, first_tile, together, before;
};
struct Box {  // coordinates of a box, beside that of its columns
  int y, z, w;
};

template <int ROWS>
__host__ __device__ __forceinline__ int tiles_of(int n) {
  return (n + ROWS - 1) / ROWS;
}
// Tiles of queries of all sequences, or of keys: where lengths are not known, as many as there may be.
template <int ROWS>
int all_tiles(const int* cu_seqlens, int batch, int n, int total) {
  return cu_seqlens != nullptr ? total / ROWS + batch : batch * tiles_of<ROWS>(n);
}
__device__ __forceinline__ int begin_of(const int* cu_seqlens, int sequence, int n) {
  return cu_seqlens != nullptr ? ld_global_s32(cu_seqlens + sequence) : sequence * n;
}
// A sequence's first tile in the workspace. Among rows one behind the other, n rows pass n / BR multiples of BR,
// rounded down or up; with one tile more each has as many as it needs, and nobody adds up lengths.
template <class C>
__device__ __forceinline__ int first_tile_of(const ModelGradientParams& p, int sequence) {
  return p.cu_seqlens_q != nullptr ? ld_global_s32(p.cu_seqlens_q + sequence) / C::BR + sequence
                                   : sequence * tiles_of<C::BR>(p.n_q);
}
// Of `count`, which begin in rising order, the last one that begins at `value` or before.
template <class Begin>
__device__ __forceinline__ int last_begun(int count, int value, Begin begin) {
  int found = 0;
  for (int behind = count; behind - found > 1;) {
    const int middle = (found + behind) / 2;
    (begin(middle) <= value ? found : behind) = middle;
  }
  return found;
}
__device__ __forceinline__ Sequence* list_of(const ModelGradientParams& p) {
  return static_cast<Sequence*>(p.workspace);
}
// The sum of dQ of a tile and head, and behind it LSE and D.
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const ModelGradientParams& p, int tile, int head) {
  return reinterpret_cast<float*>(list_of(p) + p.batch) + (size_t(tile) * p.heads + head) * C::BR * (HEAD_DIM + 2);
}
template <class C>
__device__ __forceinline__ float* rows_of(const ModelGradientParams& p, int tile, int head) {
  return dQ_sum_of<C>(p, tile, head) + C::BR * HEAD_DIM;
}
__device__ __forceinline__ int64_t offset_of(const ModelGradientParams::Strides& strides, int sequence, int head,
                                             int row) {
  return sequence * strides.batch + head * strides.head + row * strides.row;
}

// A tile of the workspace: whose it is, its first row in that sequence, how many there are from there on, and how many
// rows of other sequences lie before this one's, where they lie one behind the other.
template <class C>
struct QueryTile {
  int sequence, row, rows, before;

  __device__ __forceinline__ QueryTile(const ModelGradientParams& p, int tile) {
    sequence = last_begun(p.batch, tile, [&](int other) { return first_tile_of<C>(p, other); });
    const int begin = begin_of(p.cu_seqlens_q, sequence, p.n_q);
    row = (tile - first_tile_of<C>(p, sequence)) * C::BR;
    rows = begin_of(p.cu_seqlens_q, sequence + 1, p.n_q) - begin - row;
    before = p.cu_seqlens_q != nullptr ? begin : 0;
  }
};

// PLAN  The list: sequences with the longest walks first. A thread looks for a sequence's position among all. Under a
//       mask the longest walks of several heads begin together, of so many that what they walk over, Q, dO and the sum
//       of dQ of one head of queries each, 8 B an element, stays in the L2 cache.
template <class C>
__global__ void __launch_bounds__(PLAN_THREADS) plan(ModelGradientParams p) {
  const auto n_q_of = [&](int s) {
    return begin_of(p.cu_seqlens_q, s + 1, p.n_q) - begin_of(p.cu_seqlens_q, s, p.n_q);
  };
  const auto n_k_of = [&](int s) {
    return begin_of(p.cu_seqlens_k, s + 1, p.n_k) - begin_of(p.cu_seqlens_k, s, p.n_k);
  };
  const auto walk_of = [&](int s) {  // in tiles, of its first keys
    const int n_q = n_q_of(s), n_k = n_k_of(s);
    return tiles_of<C::BR>(n_q) - (p.causal ? max(n_q - n_k, 0) / C::BR : 0);
  };
  for (int s = threadIdx.x; s < p.batch; s += PLAN_THREADS) {
    const int walk = walk_of(s), n_q = n_q_of(s);
    int position = 0, before = 0, together = 1;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = walk_of(other);
      if (of_other > walk || (of_other == walk && other < s))
        ++position, before += p.kv_heads * tiles_of<C::BC>(n_k_of(other));
    }
    while (p.causal && p.kv_heads % (2 * together) == 0 && 2 * together * size_t(n_q) * HEAD_DIM * 8 <= TOGETHER_BYTES)
      together *= 2;
    const int words[] = {s,         begin_of(p.cu_seqlens_q, s, p.n_q),
                         n_q,       begin_of(p.cu_seqlens_k, s, p.n_k),
                         n_k_of(s), first_tile_of<C>(p, s),
                         together,  before};
    for (int i = 0; i < 8; i += 4)
      st_global_v4(reinterpret_cast<int*>(list_of(p) + position) + i,
                   {uint32_t(words[i]), uint32_t(words[i + 1]), uint32_t(words[i + 2]), uint32_t(words[i + 3])});
  }
}

// LSE in log2 units, D[query] = dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ. Queries past
// the end, and those that see no key, get infinity and 0: all their weights are 0, and so is dS.
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  const int head = blockIdx.y;
  const QueryTile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int query = tile.before + tile.row + min(tile_row, tile.rows - 1);
    const int64_t from = offset_of(p.O_strides, tile.sequence, head, query);
    const float D = row_dot<HEAD_DIM, 1, bf16>(p.O, p.dO, from);
    if (threadIdx.x % 8 == 0) {
      float* const tile_rows = rows_of<C>(p, blockIdx.x, head);
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query));
      const bool sees = tile_row < tile.rows && LSE != -INFINITY;
      st_global_f32(tile_rows + tile_row, sees ? LSE * LOG2E : INFINITY);
      st_global_f32(tile_rows + C::BR + tile_row, sees ? D : 0.0f);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of<C>(p, blockIdx.x, head) + tile_row * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// Where a box of so many rows lies in its map (LAUNCH says which), from a row of n on, which the sequence has.
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Box box_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int valid = min(n - row, ROWS);
  return {ROWS - valid, begin + row + valid, head};
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem,
                                              const Sequence& sequence, int kv_head, int first_key, int first_tile,
                                              int tiles, const TensorMap& dK_map, const TensorMap& dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  const int q_tiles = tiles_of<BR>(sequence.n_q), later = sequence.n_q - sequence.n_k;

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

  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  int q_tile = first_tile;
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T, and dP^T = V dO^T
    smem.ring.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<bf16, HEAD_DIM, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    wgmma_fence(dP_frag);
    issue_QK<bf16, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    wgmma_wait<1>(S_frag);  // safe to read S: its products are done, those of dP may go on
    const int first_query = q_tile * BR;
    if (first_key + BC > sequence.n_k || (p.causal && first_key + BC > first_query + 1 - later)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Of the tile's queries, the first that sees this lane's key.
        const int key = first_key + warp * 16 + FragmentC::row(lane, i);
        const int from = key >= sequence.n_k ? BR : p.causal ? key + later - first_query : 0;
#pragma unroll
        for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
          if (query_tile * 8 + FragmentC::col(lane, i) < from) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh_less<bf16>(S_frag, P_frag, scale_log2, [&](int query_tile) {
      return ld_shared_v2(rows + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<bf16>(dV_frag, P_frag, dO_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply_less<bf16>(dS_frag, S_frag, dP_frag, [&](int query_tile) {
      return ld_shared_v2(rows + (BR + query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<bf16, BC, BR>(dQ_frag, dS_tiles, buffer, K_panel);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<bf16>(dK_frag, dS_frag, Q_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);            // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    hand_over(full_dQ);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    if (++q_tile == q_tiles) q_tile = first_tile;  // of the next head
  }

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  const uint32_t warp_rows = warp * 16 * ROW_BYTES;
  const int key = first_key + warp * 16;
  if (lane == 0 && key < sequence.n_k) {
    const Box keys = box_of<16, VARLEN>(key, sequence.n_k, sequence.k_begin, kv_head, sequence.number);
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t from = warp_rows + panel * 16 * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_store_4d(dV_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem.V + from);
      cp_async_bulk_tensor_store_4d(dK_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem.K + from);
    }
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  }
}

// LOAD  K and V once; then a tile of queries whenever a stage is empty. One thread's.
template <bool VARLEN, class C>
__device__ __forceinline__ void load(const ModelGradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     const Sequence& sequence, int kv_head, int first_key, int group, int first_tile,
                                     int q_tiles, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  const Box keys = box_of<BC, VARLEN>(first_key, sequence.n_k, sequence.k_begin, kv_head, sequence.number);
  for (int panel = 0; panel < PANELS; ++panel) {
    const uint32_t panel_bytes = panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d(smem.K + panel_bytes, K_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem.full_K);
    cp_async_bulk_tensor_4d(smem.V + panel_bytes, V_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem.full_K);
  }
  int head = kv_head * group, q_tile = first_tile;
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, full = smem.ring.full_of(tile);
    const Box queries = box_of<BR, VARLEN>(q_tile * BR, sequence.n_q, sequence.q_begin, head, sequence.number);
    smem.ring.claim(tile);
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t target = stage * C::Q_BYTES + panel * BR * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_4d(smem.Q + target, Q_map, panel * PANEL_COLS, queries.y, queries.z, queries.w, full);
      cp_async_bulk_tensor_4d(smem.dO + target, dO_map, panel * PANEL_COLS, queries.y, queries.z, queries.w, full);
    }
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of<C>(p, sequence.first_tile + q_tile, head), C::ROWS_BYTES,
                  full);
    if (++q_tile == q_tiles) q_tile = first_tile, ++head;
  }
}

// STORE  A warpgroup's half of dQ of a tile whenever it has stored it: 16 KiB in the order of its registers, here and
//        there. One thread's for each half.
template <class C>
__device__ __forceinline__ void add_dQ(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half,
                                       const Sequence& sequence, int head, int first_tile, int q_tiles, int tiles) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  int q_tile = first_tile;
#pragma unroll 1  // as above
  for (int tile = 0; tile < tiles; ++tile) {
    mbarrier_wait_parity(full, tile % 2);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, sequence.first_tile + q_tile, head) + half * PANEL_COLS * C::BR,
                                 smem.dQ + half * C::dQ_BYTES, C::dQ_BYTES);
    if (++q_tile == q_tiles) q_tile = first_tile, ++head;
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty);
  }
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // Which keys. The list's heads take turns, so many together; without a mask one after the other.
  const auto before_of = [&](int position) { return ld_global_s32(&list_of(p)[position].before); };
  const Sequence* const entry = list_of(p) + last_begun(p.batch, blockIdx.x, before_of);
  const uint4 first_half = ld_global_v4(entry), second_half = ld_global_v4(&entry->n_k);
  const Sequence sequence{int(first_half.x),  int(first_half.y),  int(first_half.z),  int(first_half.w),
                          int(second_half.x), int(second_half.y), int(second_half.z), int(second_half.w)};
  const int k_tiles = tiles_of<BC>(sequence.n_k), number = blockIdx.x - sequence.before;
  if (number >= k_tiles * p.kv_heads) return;  // there may be fewer tiles of keys than were allowed for
  const int in_group = number % (k_tiles * sequence.together), first_key = in_group / sequence.together * BC;
  const int kv_head = number / (k_tiles * sequence.together) * sequence.together + in_group % sequence.together;

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles see none of the block's keys. Without queries there is no tile.
  const int q_tiles = tiles_of<BR>(sequence.n_q), later = sequence.n_q - sequence.n_k;
  const int first_tile = p.causal ? max(first_key + later, 0) / BR : 0;
  const int group = p.heads / p.kv_heads, head_tiles = q_tiles - first_tile, tiles = group * head_tiles;

  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, sequence, kv_head, first_key, group, first_tile, q_tiles,
                   tiles);
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ<C>(p, smem, warp - WARPS - 1, sequence, kv_head * group, first_tile, q_tiles, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<VARLEN>(p, smem, sequence, kv_head, first_key, first_tile, tiles, dK_map, dV_map);
}

// dQ, from the sum, when all blocks have added to it. Eight columns of a tile's rows r and r + 8 are 16 numbers of four
// lanes, side by side: a thread has these, and eight threads have 64 columns.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ModelGradientParams p) {
  const int head = blockIdx.y;
  const QueryTile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  for (int i = threadIdx.x; i < C::BR * ROW_CHUNKS / 2; i += ROW_THREADS) {
    const int column_tile = i % 8, four_lanes = i / 8 % 32, panel = i / 256;  // of a warpgroup: its 32 times four lanes
    const float* const from =
        dQ_sum_of<C>(p, blockIdx.x, head) + panel * PANEL_COLS * C::BR + column_tile * 512 + four_lanes * 16;
    uint32_t pairs[2][4];  // [lane_row]
    load_lanes<bf16>(pairs, from, p.softmax_scale);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8;
      if (row >= tile.rows) continue;
      const float LSE = ld_global_f32(rows_of<C>(p, blockIdx.x, head) + row);
      const uint32_t(&four)[4] = pairs[lane_row];  // without any key the sum is 0 times K, which may be NaN
      const int64_t to = offset_of(p.Q_strides, tile.sequence, head, tile.before + tile.row + row);
      st_global_v4(static_cast<bf16*>(p.dQ) + to + panel * PANEL_COLS + column_tile * 8,
                   LSE == INFINITY ? uint4{0, 0, 0, 0} : uint4{four[0], four[1], four[2], four[3]});
    }
  }
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides. A map tells the copy engine where rows end: what it asks for behind is zeros, and what it stores
//         there is dropped. A sequence among others ends where the tensor does not, so its map is 45's: y < ROWS rows
//         from row z - ROWS on, for every z. In a box that begins at y = ROWS - valid so many lie inside; z says which.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto tile_map = [&](const void* data, const ModelGradientParams::Strides& strides, int heads, int n, int rows) {
    const bf16* const tensor = static_cast<const bf16*>(data);
    const uint64_t row = strides.row * 2, head = strides.head * 2, sequence = strides.batch * 2;
    return VARLEN ? tensor_map_4d(device, tensor - rows * strides.row,
                                  {HEAD_DIM, uint32_t(rows), 1u << 31, uint32_t(heads)}, {row, row, head},
                                  {PANEL_COLS, uint32_t(rows), 1, 1})
                  : tensor_map_4d(device, tensor, {HEAD_DIM, uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
                                  {row, head, sequence}, {PANEL_COLS, uint32_t(rows), 1, 1});
  };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C>, dim3(1), dim3(PLAN_THREADS), 0, p);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, tile_map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           tile_map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), tile_map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           tile_map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), tile_map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           tile_map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
