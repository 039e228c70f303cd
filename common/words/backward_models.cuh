// The parts of a gradient kernel as models ask for it: what 68_models, 73_lengths, 82_nearby and 87_inturn spell out,
// and 76, 82 and all behind say. Sequences of one length or of several, windows, queries' heads that share one of keys,
// any strides, heads of 64 or 128 columns. backward.cuh says how such a part is found, and has parts of warps and
// tiles.
#pragma once
#include "common/words/backward.cuh"

namespace backward::models {
inline namespace LADDER_OF_BUILD {

using namespace backward;

// A sequence, as the list has it (73_lengths): which one; where its rows begin among all of Q and of K, and how many it
// has; its first tile in the workspace; how many heads of keys take turns; and how many blocks the sequences before it
// in the list have.
struct Sequence {
  int number, q_begin, n_q, k_begin, n_k, first_tile, together, before;
};

template <int ROWS>
__host__ __device__ __forceinline__ int tiles_of(int n) {
  return (n + ROWS - 1) / ROWS;
}
// Tiles of queries of all sequences, or of keys: where lengths are not known, as many as there may be (73_lengths).
template <int ROWS>
__host__ __device__ __forceinline__ int all_tiles(const int* cu_seqlens, int batch, int n, int total) {
  return cu_seqlens != nullptr ? total / ROWS + batch : batch * tiles_of<ROWS>(n);
}
__device__ __forceinline__ int begin_of(const int* cu_seqlens, int sequence, int n LADDER_SITE_PARAMETER) {
  return cu_seqlens != nullptr ? ld_global_s32(cu_seqlens + sequence LADDER_SITE) : sequence * n;
}
// A sequence's first tile in the workspace (73_lengths). Among rows one behind the other, n rows pass n / BR multiples
// of BR, rounded down or up; with one tile more each has as many as it needs, and nobody adds up lengths.
template <class C>
__device__ __forceinline__ int first_tile_of(const ModelGradientParams& p, int sequence LADDER_SITE_PARAMETER) {
  return p.cu_seqlens_q != nullptr ? ld_global_s32(p.cu_seqlens_q + sequence LADDER_SITE) / C::BR + sequence
                                   : sequence * tiles_of<C::BR>(p.n_q);
}
// Of `count`, which begin in rising order, the last one that begins at `value` or before (73_lengths).
template <class Begin>
__device__ __forceinline__ int last_begun(int count, int value, Begin begin) {
  int found = 0;
  for (int behind = count; behind - found > 1;) {
    const int middle = (found + behind) / 2;
    (begin(middle) <= value ? found : behind) = middle;
  }
  return found;
}

// The workspace (73_lengths): the list; behind it for each tile of queries and each head the sum of dQ, BR * d f32 as
// lanes hold them, and -LSE and -D, [2, BR] f32.
__device__ __forceinline__ Sequence* list_of(const ModelGradientParams& p) {
  return static_cast<Sequence*>(p.workspace);
}
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const ModelGradientParams& p, int tile, int head) {
  return reinterpret_cast<float*>(list_of(p) + p.batch) + (size_t(tile) * p.heads + head) * C::BR * (C::HEAD_DIM + 2);
}
template <class C>
__device__ __forceinline__ float* rows_of(const ModelGradientParams& p, int tile, int head) {
  return dQ_sum_of<C>(p, tile, head) + C::BR * C::HEAD_DIM;
}
// Behind all of that, where blocks add to dQ in turn (87_inturn), three numbers for each tile and head: which tile of
// keys is the next one to add to each half of it; and at a sequence's first tile, how many have begun of the blocks
// that take turns with that head.
template <class C>
__device__ __forceinline__ uint32_t* turns_of(const ModelGradientParams& p, int tile, int head) {
  const int tiles = all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q);
  return reinterpret_cast<uint32_t*>(dQ_sum_of<C>(p, tiles, 0)) + (size_t(tile) * p.heads + head) * 3;
}
__device__ __forceinline__ int64_t offset_of(const ModelGradientParams::Strides& strides, int sequence, int head,
                                             int row) {
  return sequence * strides.batch + head * strides.head + row * strides.row;
}

// Which queries see a key: of a sequence without a window all, or under the mask those from the key's own on
// (68_models). Query i is the one of key i + n_k - n_q. Tiles of BR queries in which some see some of the BC keys from
// `key` on begin with `first_tile`, and end before `end_tile`.
struct Seers {
  static constexpr bool HAVE_WINDOW = false;
  bool causal;
  int n_q, n_k;

  __device__ __forceinline__ Seers(const ModelGradientParams& p, int n_q, int n_k)
      : causal(p.causal), n_q(n_q), n_k(n_k) {}
  template <class C>
  __device__ __forceinline__ int first_tile(int key) const {
    const int later = n_q - n_k;
    return causal ? max(key + later, 0) / C::BR : 0;
  }
  template <class C>
  __device__ __forceinline__ int end_tile(int) const {
    return tiles_of<C::BR>(n_q);
  }
};

// A side of a window: how many rows there are at most, where it has no end or one further away (82_nearby).
__host__ __device__ __forceinline__ int side(int of_window, int rows) {
  return of_window < 0 || of_window > rows ? rows : of_window;
}
// The same with a window (82_nearby): the queries near a key, from `first_query` to `last_query`.
struct SeersNearby {
  static constexpr bool HAVE_WINDOW = true;
  int n_q, n_k;
  int before, behind;  // the query of a key: so many queries before it see the key, and so many behind it

  __device__ __forceinline__ SeersNearby(const ModelGradientParams& p, int n_q, int n_k)
      : n_q(n_q), n_k(n_k), before(p.causal ? 0 : side(p.right, n_q)), behind(side(p.left, n_k)) {}
  __device__ __forceinline__ int first_query(int key) const { return key + n_q - n_k - before; }
  __device__ __forceinline__ int last_query(int key) const { return key + n_q - n_k + behind; }
  template <class C>
  __device__ __forceinline__ int first_tile(int key) const {
    return max(first_query(key), 0) / C::BR;
  }
  template <class C>
  __device__ __forceinline__ int end_tile(int key) const {
    return max(tiles_of<C::BR>(min(last_query(min(key + C::BC, n_k) - 1) + 1, n_q)), first_tile<C>(key));
  }
  template <class C>
  __device__ __forceinline__ void hide(float (&S)[C::BR / 8][4], int first_key, int tile_query) const {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int last_key = first_key + C::BC - 1;
    if (last_key < n_k && first_query(last_key) <= tile_query && last_query(first_key) >= tile_query + C::BR - 1)
      return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of the tile's queries, the first that sees this lane's key, and the last.
      const int key = first_key + warp * 16 + FragmentC::row(lane, i);
      const int from = key >= n_k ? C::BR : first_query(key) - tile_query, to = last_query(key) - tile_query;
#pragma unroll
      for (int query_tile = 0; query_tile < C::BR / 8; ++query_tile) {
        const int query = query_tile * 8 + FragmentC::col(lane, i);
        if (query < from || query > to) S[query_tile][i] = -INFINITY;
      }
    }
  }
  // A key that no query sees: its sums are of zeros times numbers that may be NaN.
  template <class C>
  __device__ __forceinline__ void clear_unseen(float (&dK)[C::COLUMN_TILES][4], float (&dV)[C::COLUMN_TILES][4],
                                               int first_key) const {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int key = first_key + threadIdx.x / 32 * 16 + FragmentC::row(threadIdx.x % 32, 2 * lane_row);
      if (last_query(key) >= 0 && first_query(key) < n_q) continue;
#pragma unroll
      for (int column_tile = 0; column_tile < C::COLUMN_TILES; ++column_tile) {
        for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i) dK[column_tile][i] = dV[column_tile][i] = 0;
      }
    }
  }
};

// PLAN  The list: sequences with the longest walks first (73_lengths). A thread looks for a sequence's position among
//       all. Under a mask the longest walks of several heads begin together, of so many that what they walk over, Q, dO
//       and the sum of dQ of one head of queries each, 8 B an element, stays in the L2 cache. Without one, too, where
//       the blocks of a head wait for each other.
template <class C, class Seers>
__global__ void __launch_bounds__(ROW_THREADS) plan(ModelGradientParams p) {
  const auto length_of = [](const int* cu_seqlens, int s, int n) {
    return begin_of(cu_seqlens, s + 1, n) - begin_of(cu_seqlens, s, n);
  };
  const auto n_q_of = [&](int s) { return length_of(p.cu_seqlens_q, s, p.n_q); };
  const auto n_k_of = [&](int s) { return length_of(p.cu_seqlens_k, s, p.n_k); };
  const auto walk_of = [&](int s) {  // in tiles, of its first keys
    const Seers seers(p, n_q_of(s), n_k_of(s));
    return seers.template end_tile<C>(0) - seers.template first_tile<C>(0);
  };
  for (int s = threadIdx.x; s < p.batch; s += ROW_THREADS) {
    const int walk = walk_of(s), n_q = n_q_of(s);
    int position = 0, before = 0, together = 1;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = walk_of(other);
      if (of_other > walk || (of_other == walk && other < s))
        ++position, before += p.kv_heads * tiles_of<C::BC>(n_k_of(other));
    }
    while ((C::IN_TURN || p.causal) && (!Seers::HAVE_WINDOW || p.left < 0) && p.kv_heads % (2 * together) == 0 &&
           2 * together * size_t(n_q) * C::HEAD_DIM * 8 <= TOGETHER_BYTES)
      together *= 2;
    Sequence* const entry = list_of(p) + position;
    st_global_v4(entry, {uint32_t(s), uint32_t(begin_of(p.cu_seqlens_q, s, p.n_q)), uint32_t(n_q),
                         uint32_t(begin_of(p.cu_seqlens_k, s, p.n_k))});
    st_global_v4(&entry->n_k,
                 {uint32_t(n_k_of(s)), uint32_t(first_tile_of<C>(p, s)), uint32_t(together), uint32_t(before)});
  }
}

// A tile of the workspace (73_lengths): whose it is, its first row in that sequence, or among the rows of all where
// they lie one behind the other, and how many rows there are from there on; none in a tile that no sequence has.
template <class C>
struct QueryTile {
  int sequence, row, rows;

  __device__ __forceinline__ QueryTile(const ModelGradientParams& p, int tile) {
    sequence = last_begun(p.batch, tile, [&](int other) { return first_tile_of<C>(p, other); });
    const int begin = begin_of(p.cu_seqlens_q, sequence, p.n_q);
    row = (tile - first_tile_of<C>(p, sequence)) * C::BR;
    rows = begin_of(p.cu_seqlens_q, sequence + 1, p.n_q) - begin - row;
    if (p.cu_seqlens_q != nullptr) row += begin;
  }
};

// -LSE in units of Q K^T, -D[query] = -dot(dO[query], O[query]), and zeros for the sum of dQ
// (73_lengths, with 74_initial's order). Queries past the end, and those that see no key, get -infinity and 0: all
// their weights are 0, and so is dS.
template <class C>
__device__ __forceinline__ void prepare_tile(const ModelGradientParams& p, const QueryTile<C>& tile, int number,
                                             int head LADDER_SITE_PARAMETER) {
  using T = typename C::T;
  if (tile.rows <= 0) return;
  float* const sum_of_dQ = dQ_sum_of<C>(p, number, head);
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int query = tile.row + min(tile_row, tile.rows - 1);
    const float D = row_dot<C::HEAD_DIM, 1, T, int64_t>(p.O, p.dO, offset_of(p.O_strides, tile.sequence, head, query),
                                                        p.d LADDER_SITE);
    if (threadIdx.x % 8 == 0) {
      float* const at = rows_of<C>(p, number, head) + in_lane_order(tile_row);
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query) LADDER_SITE);
      const bool sees = tile_row < tile.rows && LSE != -INFINITY;
      st_global_f32(at, sees ? -LSE / p.softmax_scale : -INFINITY LADDER_SITE);
      st_global_f32(at + C::BR, sees ? -D : 0.0f LADDER_SITE);
    }
    for (int column = threadIdx.x % 8 * 4; column < C::SUM_COLUMNS; column += 32)
      st_global_v4(sum_of_dQ + tile_row * C::SUM_COLUMNS + column, {0, 0, 0, 0} LADDER_SITE);
  }
}
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  prepare_tile(p, QueryTile<C>(p, blockIdx.x), blockIdx.x, blockIdx.y);
}

// The same, and who adds to the tile first (87_inturn): of the tiles of keys that its queries see, the first. Each one
// behind it adds, too, up to the last, so a turn passes from one to the next.
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas_and_turns(ModelGradientParams p) {
  const QueryTile<C> tile(p, blockIdx.x);
  if (threadIdx.x < 3) {
    const int query = (blockIdx.x - first_tile_of<C>(p, tile.sequence)) * C::BR, n_q = query + tile.rows;
    const int k_begin = begin_of(p.cu_seqlens_k, tile.sequence, p.n_k),
              k_end = begin_of(p.cu_seqlens_k, tile.sequence + 1, p.n_k);
    const SeersNearby seers(p, n_q, k_end - k_begin);
    const int first_key = max(query - seers.last_query(0), 0);
    st_global_b32(turns_of<C>(p, blockIdx.x, blockIdx.y) + threadIdx.x, threadIdx.x < 2 ? first_key / C::BC : 0);
  }
  prepare_tile(p, tile, blockIdx.x, blockIdx.y);
}

// dQ, from the sum, when all blocks have added to it (73_lengths). Eight columns of a tile's rows r and r + 8 are 16
// numbers of four lanes, side by side: a thread has these, and eight threads have 64 columns.
template <class C>
__device__ __forceinline__ void finish_tile(const ModelGradientParams& p, int number, int head LADDER_SITE_PARAMETER) {
  using T = typename C::T;
  const float scale = p.softmax_scale;
  const QueryTile<C> tile(p, number);
  if (tile.rows <= 0) return;
  for (int i = threadIdx.x; i < C::BR * C::HEAD_DIM / 16; i += ROW_THREADS) {
    const int column_tile = i % 8, four_lanes = i / 8 % 32, panel = i / 256;  // of a warpgroup: its 32 times four lanes
    const int column = panel * PANEL_COLS + column_tile * 8;
    if (column >= p.d) continue;
    uint32_t pairs[2][4];
    load_lanes<T>(pairs,
                  dQ_sum_of<C>(p, number, head) + panel * PANEL_COLS * C::BR + column_tile * 512 + four_lanes * 16,
                  scale LADDER_SITE);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8, query = tile.row + row;
      if (row >= tile.rows) continue;
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query) LADDER_SITE);
      const uint32_t(&four)[4] = pairs[lane_row];  // without any key the sum is 0 times K, which may be NaN
      st_global_v4(static_cast<T*>(p.dQ) + offset_of(p.Q_strides, tile.sequence, head, query) + column,
                   LSE == -INFINITY ? uint4{0, 0, 0, 0} : uint4{four[0], four[1], four[2], four[3]} LADDER_SITE);
    }
  }
}
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ModelGradientParams p) {
  finish_tile<C>(p, blockIdx.x, blockIdx.y);
}

// Which keys a block has (73_lengths): BC from `first_key` on, of a sequence's head. The list's heads take turns, so
// many together; without a mask one after the other.
template <class C>
struct Keys {
  Sequence sequence;
  int first_head;  // of those that take turns
  int first_key, kv_head;

  // Is there a block of this number? There may be fewer tiles of keys than were allowed for.
  __device__ __forceinline__ bool find(const ModelGradientParams& p LADDER_SITE_PARAMETER) {
    const auto before_of = [&](int position) { return ld_global_s32(&list_of(p)[position].before LADDER_SITE); };
    const Sequence* const entry = list_of(p) + last_begun(p.batch, blockIdx.x, before_of);
    const uint4 first_half = ld_global_v4(entry LADDER_SITE), second_half = ld_global_v4(&entry->n_k LADDER_SITE);
    sequence = {int(first_half.x),  int(first_half.y),  int(first_half.z),  int(first_half.w),
                int(second_half.x), int(second_half.y), int(second_half.z), int(second_half.w)};
    const int k_tiles = tiles_of<C::BC>(sequence.n_k), number = blockIdx.x - sequence.before;
    if (number >= k_tiles * p.kv_heads) return false;
    first_head = number / (k_tiles * sequence.together) * sequence.together;
    take(number % (k_tiles * sequence.together));
    return true;
  }
  // Of the tiles of keys of heads that take turns, those of lower keys first.
  __device__ __forceinline__ void take(int number) {
    first_key = number / sequence.together * C::BC;
    kv_head = first_head + number % sequence.together;
  }
};

// Where a box of ROWS rows lies in its map (tile_map), from a row of n on, which the sequence has (73_lengths):
// coordinates, beside that of its columns.
struct Box {
  int y, z, w;
};
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Box box_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int valid = min(n - row, ROWS);
  return {ROWS - valid, begin + row + valid, head};
}

// LOAD  K and V once; then a tile of queries whenever a stage is empty: tiles from `first_tile` on and before
//       `end_tile`, of one head of the group after the other (68_models, 73_lengths); or with LAST_FIRST from the last
//       tile on, each of all heads of the group (87_inturn). One thread's.
template <bool VARLEN, bool LAST_FIRST = false, class C>
__device__ __forceinline__ void load(const ModelGradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     const Keys<C>& keys, int group, int first_tile, int end_tile,
                                     int tiles LADDER_SITE_PARAMETER) {
  const Sequence& sequence = keys.sequence;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES LADDER_SITE);
  const Box K_box =
      box_of<C::BC, VARLEN>(keys.first_key, sequence.n_k, sequence.k_begin, keys.kv_head, sequence.number);
  for (int panel = 0; panel < C::PANELS; ++panel) {
    const uint32_t target = panel * C::BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d(smem.K + target, K_map, panel * PANEL_COLS, K_box.y, K_box.z, K_box.w,
                            smem.full_K LADDER_SITE);
    cp_async_bulk_tensor_4d(smem.V + target, V_map, panel * PANEL_COLS, K_box.y, K_box.z, K_box.w,
                            smem.full_K LADDER_SITE);
  }
  int head = keys.kv_head * group, q_tile = LAST_FIRST ? end_tile - 1 : first_tile;
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % C::STAGES, full = smem.ring.full_of(tile);
    const Box Q_box = box_of<C::BR, VARLEN>(q_tile * C::BR, sequence.n_q, sequence.q_begin, head, sequence.number);
    smem.ring.claim(tile LADDER_SITE);
    for (int panel = 0; panel < C::PANELS; ++panel) {
      const uint32_t target = stage * C::Q_BYTES + panel * C::BR * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_4d(smem.Q + target, Q_map, panel * PANEL_COLS, Q_box.y, Q_box.z, Q_box.w, full LADDER_SITE);
      cp_async_bulk_tensor_4d(smem.dO + target, dO_map, panel * PANEL_COLS, Q_box.y, Q_box.z, Q_box.w,
                              full LADDER_SITE);
    }
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of<C>(p, sequence.first_tile + q_tile, head), C::ROWS_BYTES,
                  full LADDER_SITE);
    if (LAST_FIRST) {
      if (++head == (keys.kv_head + 1) * group) head -= group, --q_tile;
    } else {
      if (++q_tile == end_tile) q_tile = first_tile, ++head;
    }
  }
}
// STORE  A warpgroup's half of dQ, in the order of its registers, here and there, whenever it has stored it
//        (65_bulkreduce). One thread's for each half.
template <class C>
__device__ __forceinline__ void add_dQ(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half,
                                       const Keys<C>& keys, int group, int first_tile, int end_tile,
                                       int tiles LADDER_SITE_PARAMETER) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  static_assert(C::SUM_COLUMNS > C::HEAD_DIM / 2 && C::SUM_COLUMNS <= C::HEAD_DIM);
  constexpr uint32_t second = (C::SUM_COLUMNS - C::HEAD_DIM / 2) * C::BR * 4;  // bytes of the second half
  int head = keys.kv_head * group, q_tile = first_tile;
#pragma unroll 1  // as above
  for (int tile = 0; tile < tiles; ++tile) {
    mbarrier_wait_parity(full, tile % 2 LADDER_SITE);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, keys.sequence.first_tile + q_tile, head) + half * (C::dQ_BYTES / 4),
                                 smem.dQ + half * C::dQ_BYTES, half == 0 ? C::dQ_BYTES : second LADDER_SITE);
    if (++q_tile == end_tile) q_tile = first_tile, ++head;
    cp_async_bulk_commit(LADDER_SITE_ALONE);
    cp_async_bulk_wait_read<0>(
        LADDER_SITE_ALONE);  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty LADDER_SITE);
  }
}
// STORE  The same in turn, from the last tile on and each of all heads of the group (87_inturn).
template <class C>
__device__ __forceinline__ void add_dQ_in_turn(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half,
                                               const Keys<C>& keys, int group, int end_tile,
                                               int tiles LADDER_SITE_PARAMETER) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  int head = keys.kv_head * group, q_tile = keys.sequence.first_tile + end_tile - 1;
#pragma unroll 1  // as above
  for (int tile = 0; tile < tiles; ++tile) {
    uint32_t* const turns = turns_of<C>(p, q_tile, head) + half;
    mbarrier_wait_parity(full, tile % 2 LADDER_SITE);                // safe to read dQ: its warps have stored it
    ld_acquire_wait_u32(turns, keys.first_key / C::BC LADDER_SITE);  // safe to add: all before have
    cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, q_tile, head) + half * (C::dQ_BYTES / 4), smem.dQ + half * C::dQ_BYTES,
                                 C::dQ_BYTES LADDER_SITE);
    cp_async_bulk_commit(LADDER_SITE_ALONE);
    cp_async_bulk_wait_read<0>(LADDER_SITE_ALONE);  // safe to overwrite dQ: it has been read
    mbarrier_arrive(empty LADDER_SITE);
    cp_async_bulk_wait<0>(LADDER_SITE_ALONE);   // safe to hand over: not only read, the sums are there
    red_release_add_u32(turns, 1 LADDER_SITE);  // whoever sees this sees the sums, too
    if (++head == (keys.kv_head + 1) * group) head -= group, --q_tile;
  }
}
// STORE  Where stage_gradients has put a warp's 16 rows of dV and dK, their lane 0 has them copied from
//        (70_store, 73_lengths).
template <bool VARLEN, class C>
__device__ __forceinline__ void copy_gradients(const Smem<C>& smem, const TensorMap& dV_map, const TensorMap& dK_map,
                                               const Keys<C>& keys LADDER_SITE_PARAMETER) {
  const uint32_t warp = threadIdx.x / 32, warp_rows = warp * 16 * C::ROW_BYTES;
  const Sequence& sequence = keys.sequence;
  const int key = keys.first_key + warp * 16;
  if (threadIdx.x % 32 == 0 && key < sequence.n_k) {
    const Box box = box_of<16, VARLEN>(key, sequence.n_k, sequence.k_begin, keys.kv_head, sequence.number);
    for (int panel = 0; panel < C::PANELS; ++panel) {
      const uint32_t from = warp_rows + panel * 16 * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_store_4d(dV_map, panel * PANEL_COLS, box.y, box.z, box.w, smem.V + from LADDER_SITE);
      cp_async_bulk_tensor_store_4d(dK_map, panel * PANEL_COLS, box.y, box.z, box.w, smem.K + from LADDER_SITE);
    }
    cp_async_bulk_commit(LADDER_SITE_ALONE);
    cp_async_bulk_wait_read<0>(LADDER_SITE_ALONE);  // safe to end: shared memory has been read
  }
}

// The map of a tensor, in boxes of so many rows and 64 columns (73_lengths). It tells the copy engine where rows and
// columns end: what it asks for behind is zeros, and what it stores there is dropped. A sequence among others ends
// where the tensor does not, so its map is 45's: y < ROWS rows from row z - ROWS on, for every z. In a box that begins
// at y = ROWS - valid so many rows lie inside, and z says which.
template <class C, bool VARLEN, class Device>
auto tile_map(Device& device, const ModelGradientParams& p, const void* data,
              const ModelGradientParams::Strides& strides, int heads, int n, uint32_t rows) {
  const typename C::T* const tensor = static_cast<const typename C::T*>(data);
  const uint64_t row = strides.row * 2, head = strides.head * 2, sequence = strides.batch * 2;
  return VARLEN ? tensor_map_4d(device, tensor - rows * strides.row, {uint32_t(p.d), rows, 1u << 31, uint32_t(heads)},
                                {row, row, head}, {PANEL_COLS, rows, 1, 1})
                : tensor_map_4d(device, tensor, {uint32_t(p.d), uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
                                {row, head, sequence}, {PANEL_COLS, rows, 1, 1});
}

}  // namespace LADDER_OF_BUILD
}  // namespace backward::models
