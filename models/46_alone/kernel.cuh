// 46_alone: in a window blocks work alone, each with its own copies of K and V.
// Before:  in 45 two blocks share what either of them needs. In a narrow window that is a third more than each needs: a
//          tile that only one of them multiplies with takes a stage of both rings, and the time of a step.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] bf16; K, V: [batch, kv_heads, n_k, d] bf16, in any strides. LSE: [batch, heads, n_q] f32.
//          Or Q, O: [total_q, heads, d]; K, V: [total_k, kv_heads, d]; LSE: [heads, total_q]; with cu_seqlens, [batch + 1] each.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8 while a warp is careful
constexpr float NO_KEY = -0x1p100f;    // a row's maximum before its first key; in log2 units, as all maxima
// Of a lane's weights of a row and tile: times values of 2^50 they fit into O's f32.
constexpr float SUM_LIMIT = 0x1p64f;
constexpr int PLAN_THREADS = 256;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_, int BLOCKS_ = 2>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr int BLOCKS = BLOCKS_;            // of a cluster: they share K and V
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * 48;  // and mbarriers and Works
  using Alone = Config<BR, BC, WARPS, STAGES, 1>;
};

// Which scores are masked: those of keys past the end; under a causal mask, which ends with the last key for the last query, also
// those of keys after a query's own; in a window those of keys far after it, and far before it.
enum class Mask { none, tail, causal, window };

// How a head's queries are dealt out. A share is a pair of tiles of queries, or one tile where a block works alone, or under a mask
// two pairs: a head's longest and its shortest, its second longest and its second shortest ..., two by two equally long.
template <class C>
__host__ __device__ __forceinline__ int pairs_of(int n_q) {
  return (n_q + C::BLOCKS * C::BR - 1) / (C::BLOCKS * C::BR);
}
template <Mask MASK>
__host__ __device__ __forceinline__ int shares_of(int pairs) {
  return MASK == Mask::causal ? (pairs + 1) / 2 : pairs;
}

// A sequence: its rows in Q and in K, and how many shares there are, of all heads, up to its last one.
struct Sequence {
  int q_begin, n_q, k_begin, n_k, up_to;
};

struct Place {  // coordinates of a box, beside that of its columns
  int y, z, w;
};

// Which keys queries see: i is the one of key i + n_k - n_q.
template <Mask MASK>
struct Seen {
  int n_q, n_k, left, right;  // of a window: as many as there are, where it has no such side

  __device__ __forceinline__ Seen(const ModelParams& p, int n_q, int n_k)
      : n_q(n_q), n_k(n_k), left(p.left < 0 ? p.n_k : p.left), right(p.right < 0 ? p.n_q : p.right) {}
  __device__ __forceinline__ int first_of(int query) const {  // key that it sees
    return MASK == Mask::window ? max(query + n_k - n_q - left, 0) : 0;
  }
  __device__ __forceinline__ int end_of(int query) const {  // behind the last one; it sees none if that is not positive
    return MASK == Mask::window   ? min(query + 1 + n_k - n_q + right, n_k)
           : MASK == Mask::causal ? query + 1 + n_k - n_q
                                  : n_k;
  }
};

// What the thread that copies tells the others of each tile of queries, in shared memory beside Q: BEGIN to END, tiles of keys
// that some of the queries see; WHOLE_BEGIN to WHOLE_END, those that all see, so by the first of them every row has met a key;
// ZERO, the number of key 0's tile, copied or not; QUERY, the first; HEAD, of all sequences or of this one; MORE, or else
// this is the end; and the sequence's rows.
struct Work {
  enum Word { BEGIN, END, WHOLE_BEGIN, WHOLE_END, ZERO, QUERY, HEAD, MORE, N_Q, N_K, Q_BEGIN, WORDS = 12 };
  uint32_t address;

  __device__ __forceinline__ int operator[](Word word) const { return int(ld_shared_b32(address + word * 4)); }
  __device__ __forceinline__ void tell(const int (&words)[WORDS]) const {
    for (int i = 0; i < WORDS; i += 4)
      st_shared_v4(address + i * 4,
                   {uint32_t(words[i]), uint32_t(words[i + 1]), uint32_t(words[i + 2]), uint32_t(words[i + 3])});
  }
  __device__ __forceinline__ bool is_masked(int tile, bool in_window) const {
    return (in_window && tile < (*this)[WHOLE_BEGIN]) || tile >= (*this)[WHOLE_END];
  }
};

// PLAN  Sequences in the workspace, those with the longest shares first: a thread looks for a sequence's place among all.
template <class C, Mask MASK>
__global__ void __launch_bounds__(PLAN_THREADS) plan(ModelParams p) {
  const auto length = [](const int* cu_seqlens, int s) {
    return ld_global_s32(cu_seqlens + s + 1) - ld_global_s32(cu_seqlens + s);
  };
  const auto work_of = [&](int s) {  // of a share, but for a factor; in a window all have the same
    const int n_k = length(p.cu_seqlens_k, s);
    return MASK == Mask::causal ? 2 * n_k - min(length(p.cu_seqlens_q, s), n_k) : n_k;
  };
  for (int s = threadIdx.x; s < p.batch; s += PLAN_THREADS) {
    const int work = work_of(s);
    int place = 0, up_to = 0;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = work_of(other);
      const bool is_before = of_other > work || (of_other == work && other < s);
      place += is_before;
      if (is_before || other == s) up_to += p.heads * shares_of<MASK>(pairs_of<C>(length(p.cu_seqlens_q, other)));
    }
    const int entry[] = {ld_global_s32(p.cu_seqlens_q + s), length(p.cu_seqlens_q, s),
                         ld_global_s32(p.cu_seqlens_k + s), length(p.cu_seqlens_k, s), up_to};
    for (int i = 0; i < 5; ++i) st_global_b32(static_cast<int*>(p.workspace) + 5 * place + i, entry[i]);
  }
}

// Which queries next, and which keys they see. Clusters take the shares of all heads by turns (c, c + clusters, ...), and
// those of sequences of several lengths to and fro: who has had the longest one gets the shortest one then. A pair begins at
// an even tile; its second one may lie outside: it reads zeros and stores nothing.
template <class C, Mask MASK, bool VARLEN>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  const ModelParams& p;
  Seen<MASK> seen;
  int pairs, shares, head, share;
  int heads_on, shares_on;                 // how much further on the next share of this cluster is
  int place = -1, before = 0, up_to = 0;   // VARLEN: in the plan; numbers of its first share, and behind its last one
  int q_begin = 0, k_begin = 0, deal = 0;  // VARLEN: the sequence's first rows; how often shares were dealt out
  int turn = -1, round = -1, q_tile = 0;
  int first = 0, kv_tiles = 0,
      skipped = 0;  // what the pair copies; tiles of K and V are numbered since the block began

  __device__ __forceinline__ Schedule(const ModelParams& p) : p(p), seen(p, p.n_q, p.n_k) {
    if (VARLEN) {
      deal_out();
      return;
    }
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    pairs = pairs_of<C>(p.n_q), shares = shares_of<MASK>(pairs);
    head = cluster / shares, heads_on = clusters / shares;
    share = cluster % shares, shares_on = clusters % shares;
  }
  __device__ __forceinline__ void deal_out() {
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    const int item = deal * clusters + (deal % 2 == 0 ? cluster : clusters - 1 - cluster);
    ++deal;
    while (item >= up_to && ++place < p.batch) {
      const Sequence* const of = static_cast<const Sequence*>(p.workspace) + place;
      before = up_to, up_to = ld_global_s32(&of->up_to);
      q_begin = ld_global_s32(&of->q_begin), seen.n_q = ld_global_s32(&of->n_q);
      k_begin = ld_global_s32(&of->k_begin), seen.n_k = ld_global_s32(&of->n_k);
    }
    if (place == p.batch) return;
    pairs = pairs_of<C>(seen.n_q), shares = shares_of<MASK>(pairs);
    head = (item - before) / shares, share = (item - before) % shares;
  }
  __device__ __forceinline__ int last_query(int tile) const { return min((tile + 1) * BR, seen.n_q) - 1; }
  __device__ __forceinline__ int tiles_before(int tile) const {
    return seen.first_of(min(tile * BR, seen.n_q - 1)) / BC;
  }
  __device__ __forceinline__ int tiles_up_to(int tile) const {  // at least one, masked, for queries that see none
    return (max(seen.end_of(last_query(tile)), 1) + BC - 1) / BC;
  }
  __device__ __forceinline__ bool next() {
    first += kv_tiles;
    ++round;
    const bool has_second = MASK == Mask::causal && 2 * share + 1 < pairs;  // the pair in the middle is alone
    if (turn == 1 || (turn == 0 && !has_second)) {
      if (VARLEN) {
        deal_out();
      } else {
        head += heads_on, share += shares_on;
        if (share >= shares) share -= shares, ++head;
      }
      turn = -1;
    }
    ++turn;
    const int pair = MASK == Mask::causal && turn == 0 ? pairs - 1 - share : share;
    q_tile = pair * BLOCKS + cluster_rank();
    skipped = tiles_before(pair * BLOCKS);
    kv_tiles = tiles_up_to(pair * BLOCKS + BLOCKS - 1) - skipped;
    return VARLEN ? place < p.batch : head < p.batch * p.heads;
  }
  __device__ __forceinline__ int key_of(int tile) const { return (tile - first + skipped) * BC; }  // the tile's first
  __device__ __forceinline__ void tell(Work work) const {
    const int zero = first - skipped;
    work.tell({zero + tiles_before(q_tile), zero + tiles_up_to(q_tile),
               MASK == Mask::window ? zero + seen.first_of(last_query(q_tile)) / BC + 1 : 0,
               zero + min(seen.end_of(q_tile * BR), seen.n_k) / BC,  // a second block may lie outside
               zero, q_tile * BR, head, true, seen.n_q, seen.n_k, q_begin});
  }
};

// Where a box of so many rows lies in its map (`start` says what maps those are), from a row of n on. Of a sequence among others at
// least one row: where a box begins outside, the engine reads where its map begins, and there is no memory.
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Place place_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int first = max(begin + min(row, n - 1), 0), valid = min(max(n - row, 1), ROWS);
  return {ROWS - valid, first + valid, head};
}

// A lane's share of two rows: their scores S become weights P = 2^(S * scale_log2 - max). `max` is the same in a row's
// four lanes; a careful warp looks first whether a score has outgrown it, and so does every warp on the first tile, and
// where a row may meet its first key. Otherwise the sum of the weights tells: too large or infinite, and they are made
// again.
template <int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / 16][4];
  float scale_log2;                     // exp(s * softmax_scale) = 2^(s * scale_log2)
  float max[2], sum[2], correction[2];  // [lane_row]; max in log2 units
  bool careful;                         // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                         // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin() {
    for (int lane_row = 0; lane_row < 2; ++lane_row) max[lane_row] = NO_KEY, sum[lane_row] = 0;
    careful = false;
  }
  __device__ __forceinline__ static float largest(Scores S, int lane_row) {
    float score = -INFINITY;
#pragma unroll
    for (int key_tile = 0; key_tile < BC / 8; ++key_tile)
      score = fmaxf(score, fmaxf(S[key_tile][2 * lane_row], S[key_tile][2 * lane_row + 1]));
    return score;
  }
  __device__ __forceinline__ void raise_max(float (&to)[2]) {  // if that is more: a row's, over its four lanes
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      to[lane_row] = fmaxf(quad_max(to[lane_row]), max[lane_row]);
      correction[lane_row] = ex2_approx(max[lane_row] - to[lane_row]);  // 1 where nothing has grown
      max[lane_row] = to[lane_row];
      sum[lane_row] *= correction[lane_row];
    }
  }
  // Two C fragments side by side hold exactly the elements of one A fragment, and wgmma takes A from registers: P needs
  // no exchange, only rounding.
  __device__ __forceinline__ static void make_weights(Scores S, Weights P, float (&tile_sum)[2]) {
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int key_slice = 0; key_slice < BC / 16; ++key_slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
        const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
        const float low = ex2_approx(S[key_tile][2 * lane_row]);
        const float high = ex2_approx(S[key_tile][2 * lane_row + 1]);
        tile_sum[lane_row] += low + high;
        P[key_slice][reg] = pack_bf16x2(low, high);
      }
    }
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks) {
    looks |= careful || is_first;
    rescale = false;
    float tile_sum[2];
    if (looks) {
      float largest_of[2] = {largest(S, 0) * scale_log2, largest(S, 1) * scale_log2};
      rescale = vote_any(is_first || fmaxf(largest_of[0] - max[0], largest_of[1] - max[1]) > RESCALE_ABOVE);
      if (rescale) raise_max(largest_of);
    }
#pragma unroll
    for (int key_tile = 0; key_tile < BC / 8; ++key_tile) {
      for (int i = 0; i < 4; ++i) S[key_tile][i] = S[key_tile][i] * scale_log2 - max[i / 2];
    }
    make_weights(S, P, tile_sum);
    if (!looks && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT)) {
      rescale = careful = true;  // from now on
      const float before[2] = {max[0], max[1]};
      float largest_of[2] = {max[0] + largest(S, 0), max[1] + largest(S, 1)};
      raise_max(largest_of);
#pragma unroll
      for (int key_tile = 0; key_tile < BC / 8; ++key_tile) {
        for (int i = 0; i < 4; ++i) S[key_tile][i] -= max[i / 2] - before[i / 2];
      }
      make_weights(S, P, tile_sum);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
};

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel.
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

template <class C, Mask MASK, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ModelParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");
  static_assert((MASK == Mask::window) == (BLOCKS == 1), "in a window blocks work alone");
  constexpr bool IS_WHOLE = MASK <= Mask::tail && !VARLEN;  // every query sees all keys
  // 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240, or
  // 40 + 2 x 232, where the one that copies has more to find out.
  constexpr int PRODUCER_REGISTERS = IS_WHOLE ? 24 : 40, CONSUMER_REGISTERS = IS_WHOLE ? 240 : 232;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + 2 * Q_BYTES, smem_V = smem_K + STAGES * TILE_BYTES;
  const uint32_t barriers = smem_V + STAGES * TILE_BYTES;
  const Ring<STAGES, TILE_BYTES> K{barriers, smem_K}, V{K.end, smem_V};
  const Ring<2, Q_BYTES> Q{V.end, smem_Q};  // by the round
  smem_name(smem_Q, 2 * Q_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_K, STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(barriers, (4 * STAGES + 4) * 8, "barriers");
  const uint32_t works = barriers + (4 * STAGES + 4) * 8;
  smem_name(works, 2 * Work::WORDS * 4, "works");
  const auto told = [&](int round) { return Work{works + round % 2 * Work::WORDS * 4}; };
  if (threadIdx.x == 0) {
    K.init(BLOCKS * WARPS / 4);  // a warpgroup has read it
    V.init(BLOCKS * WARPS / 4);
    Q.init(WARPS);          // a warp has stored its O from there
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
  }
  cluster_sync();  // safe to use the barriers, those of the other block, too

  const auto end_together = [] {
    if (BLOCKS > 1) cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
  };

  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both panels.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, MASK, VARLEN> work(p);
      int kv_head = 0, sequence = 0;
      const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
        ring.wait_empty(tile);
        ring.expect(tile);
        const Place from = place_of<BC, VARLEN>(work.key_of(tile), work.seen.n_k, work.k_begin, kv_head, sequence);
        for (uint32_t panel = cluster_rank(); panel < PANELS; panel += BLOCKS)
          cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES, map,
                                            panel * PANEL_COLS, from.y, from.z, from.w, ring.full_of(tile),
                                            (1 << BLOCKS) - 1);
      };
      while (work.next()) {
        Q.wait_empty(work.round);
        work.tell(told(work.round));
        Q.expect(work.round);
        const int head = work.head % p.heads;
        kv_head = head / (p.heads / p.kv_heads), sequence = work.head / p.heads;
        const Place from = place_of<BR, VARLEN>(work.q_tile * BR, work.seen.n_q, work.q_begin, head, sequence);
        for (int panel = 0; panel < PANELS; ++panel)
          cp_async_bulk_tensor_4d(smem_Q + Q.at(work.round) + panel * BR * PANEL_ROW_BYTES, Q_map, panel * PANEL_COLS,
                                  from.y, from.z, from.w, Q.full_of(work.round));
        const int last = work.first + work.kv_tiles - 1;
        for (int tile = work.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
          if (tile <= last) request(K_map, K, tile);
          if (tile > work.first) request(V_map, V, tile - 1);
        }
      }
      Q.wait_empty(work.round);
      told(work.round).tell({work.first});  // and no more
      mbarrier_arrive(Q.full_of(work.round));
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem_Q + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem_K), V_tiles = wgmma_descriptor(smem_V, BC * PANEL_ROW_BYTES);
  Softmax<BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  using Weights = typename Softmax<BC>::Weights;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];    // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), threadIdx.x % 128);
  };
  int round = 0;  // of Q and Work
  const auto start_QK = [&](int tile) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, Q.at(round)), K_here = wgmma_advance(K_tiles, K.at(tile));
    K.wait_full(tile);
    wgmma_fence(S_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice)
      wgmma_ss_bf16(S_frag, wgmma_advance(Q_here, slices_on<BR>(d_slice)),
                    wgmma_advance(K_here, slices_on<BC>(d_slice)),
                    d_slice > 0);  // the first overwrites S
    wgmma_commit();
  };
  const auto mask = [&](int tile) {
    if constexpr (MASK != Mask::none) {
      // Of this tile's keys, the first that a lane's row sees, and behind the last.
      const Work work = told(round);
      const Seen<MASK> seen(p, work[Work::N_Q], work[Work::N_K]);
      const int first_key = (tile - work[Work::ZERO]) * BC;
      int from[2], to[2];
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        const int query = work[Work::QUERY] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
        from[lane_row] = seen.first_of(query) - first_key;
        to[lane_row] = seen.end_of(query) - first_key;
      }
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          const int key = key_tile * 8 + FragmentC::col(lane, i);
          if (key >= to[i / 2] || (MASK == Mask::window && key < from[i / 2])) S_frag[key_tile][i] = -INFINITY;
        }
      }
    }
  };
  const auto start_PV = [&](int tile, Weights P_frag, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, V.at(tile));
    if (softmax.rescale) {  // under QK, where one is running
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        for (int i = 0; i < 4; ++i) O_frag[column_tile][i] *= softmax.correction[i / 2];
      }
    }
    V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
#pragma unroll
    // PV  16 keys are 16 rows of V.
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice)
      wgmma_rs_bf16<true>(O_frag, P_frag[key_slice], wgmma_advance(V_here, key_slice * 16 * PANEL_ROW_BYTES),
                          key_slice > 0 || !is_first);  // the first overwrites O
    wgmma_commit();
  };
  int begin = 0, end = 0;  // of the tiles of keys
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool is_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(K, tile);
    if (is_masked) mask(tile);
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false, MASK == Mask::window && is_masked);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(V, tile - 1);
  };
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last, tile == begin);
    const Work work = told(round);
    const Seen<MASK> seen(p, work[Work::N_Q], work[Work::N_K]);
    // Rows of the log-sum-exp: of a head of a sequence one behind the other, or of a head of all sequences.
    const int64_t rows = VARLEN ? ld_global_s32(p.cu_seqlens_q + p.batch) : p.n_q, head = work[Work::HEAD];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {  // beside PV: two exchanges complete a row's sum
      softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row]);
      const int query = work[Work::QUERY] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
      const bool has_keys = IS_WHOLE || seen.first_of(query) < seen.end_of(query);
      normalise[lane_row] = has_keys ? 1.0f / softmax.sum[lane_row] : 0.0f;  // no key: O = 0
      if (p.LSE != nullptr && lane % 4 == 0 && query < seen.n_q)             // log(0) is -infinity
        st_global_f32(p.LSE + head * rows + work[Work::Q_BEGIN] + query,
                      softmax.max[lane_row] / LOG2E + logf(softmax.sum[lane_row]));
    }
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
    release(V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them. Lane l addresses row
    //        l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, two C fragments.
    const uint32_t warp_O = smem_Q + Q.at(round) + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
      uint32_t matrices[4];
      for (int i = 0; i < 4; ++i) {
        const float* const two = &O_frag[column_tile + i / 2][2 * (i % 2)];
        const bool has_keys = IS_WHOLE || normalise[i % 2] != 0;  // or else O is 0 times V, which may be NaN
        matrices[i] = has_keys ? pack_bf16x2(two[0] * normalise[i % 2], two[1] * normalise[i % 2]) : 0;
      }
      const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
      stmatrix_x4(lane_O + panel * BR * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices);
    }
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    const Work work = told(round);
    if (lane == 0 && (!VARLEN || work[Work::QUERY] + int(warp) * 16 < work[Work::N_Q])) {
      const int head = work[Work::HEAD];
      const Place place = place_of<16, VARLEN>(work[Work::QUERY] + warp * 16, work[Work::N_Q], work[Work::Q_BEGIN],
                                               head % p.heads, head / p.heads);
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, place.y, place.z, place.w,
                                      warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };
  const auto release_Q = [&](int round) {
    if (lane == 0 && round >= 0) {
      cp_async_bulk_wait_read<0>();  // safe to overwrite or to end: shared memory has been read
      mbarrier_arrive(Q.empty_of(round));
    }
    __syncwarp();  // products and barriers take whole warps
  };
  // The first block of a pair does not need the pair's last tile, the one on the other block's diagonal. Who releases such a
  // tile waits for it, and nobody else: a warp that came late would miss the phase. A branch and no loop, for ptxas: of two shares
  // one after the other it is one tile at most.
  const auto let_pass = [&](int up_to) {
    if (MASK == Mask::causal && threadIdx.x % 128 < BLOCKS && end < up_to) {
      K.wait_full(up_to - 1);  // safe to release: it is not on its way any more
      release(K, up_to - 1);
      V.wait_full(up_to - 1);
      release(V, up_to - 1);
    }
    __syncwarp();  // products take whole warps
  };

  Q.wait_full(0);
  if (VARLEN && !told(0)[Work::MORE]) {  // in a plan a cluster may be without work
    end_together();
    return;
  }
  start_QK(told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(K, begin);
    if (work.is_masked(begin, MASK == Mask::window)) mask(begin);
    softmax.begin();
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(round - 1);
    int tile = begin + 1;
    if constexpr (MASK != Mask::window) {
      for (const int whole_end = work[Work::WHOLE_END]; tile + 1 < whole_end; tile += 2) {
        step(tile, P_even, P_odd);
        step(tile + 1, P_odd, P_even);
      }
    }
    for (; tile < end; tile += 2) {  // three at most, but in a window all
      step(tile, P_even, P_odd, work.is_masked(tile, MASK == Mask::window));
      if (tile + 1 < end) step(tile + 1, P_odd, P_even, work.is_masked(tile + 1, MASK == Mask::window));
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if ((end - begin) % 2 == 0) {
      finish(end - 1, P_odd);
    } else {
      finish(end - 1, P_even);
    }
    ++round;
    Q.wait_full(round);
    let_pass(told(round)[Work::BEGIN]);  // or all that was copied
    if (!told(round)[Work::MORE]) break;
    start_QK(told(round)[Work::BEGIN]);
    store(round - 1);       // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(round - 1);
  end_together();
}

// Without any key O is 0.
__global__ void __launch_bounds__(HEAD_DIM) no_keys(ModelParams p) {
  const int query = blockIdx.x % p.n_q, head = blockIdx.x / p.n_q % p.heads, sequence = blockIdx.x / p.n_q / p.heads;
  const ForwardParams::Strides& strides = p.O_strides;
  bf16* const O_row = p.O + sequence * strides.batch + head * strides.head + query * strides.row;
  st_global_bf16(O_row + threadIdx.x, to_bf16(0.0f));
  if (p.LSE != nullptr && threadIdx.x == 0) st_global_f32(p.LSE + blockIdx.x, -INFINITY);
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine where rows
//         end: what it asks for behind is zeros, and what it stores there is dropped. A sequence among others ends where
//         the tensor does not, so its map is another one: y < ROWS rows from row z - ROWS on, for every z. In a box that
//         begins at y = ROWS - valid so many rows lie inside, and z says which.
template <class C, Mask MASK, bool VARLEN>
void start(Device& device, const ModelParams& p) {
  const uint32_t batch = p.batch, heads = batch * p.heads;
  const auto tile_map = [&](const bf16* tensor, const ForwardParams::Strides& strides, int of_heads, int n,
                            uint32_t rows) {
    const uint64_t row = strides.row * 2, head = strides.head * 2, sequence = strides.batch * 2;
    if (VARLEN) {
      return tensor_map_4d(device, tensor - rows * strides.row, {HEAD_DIM, rows, 1u << 31, uint32_t(of_heads)},
                           {row, row, head}, {PANEL_COLS, rows, 1, 1});
    }
    return tensor_map_4d(device, tensor, {HEAD_DIM, uint32_t(n), uint32_t(of_heads), batch}, {row, head, sequence},
                         {PANEL_COLS, rows, 1, 1});
  };
  if (VARLEN) launch(device, plan<C, MASK>, dim3(1), dim3(PLAN_THREADS), 0, p);
  const uint32_t pairs = pairs_of<C>(p.n_q), sms = multiprocessors(device) / C::BLOCKS;
  const uint32_t shares = shares_of<MASK>(pairs) * heads;  // at most, where lengths differ
  launch_clusters(device, flash_attention<C, MASK, VARLEN>, dim3((shares < sms ? shares : sms) * C::BLOCKS),
                  dim3(C::THREADS), C::BLOCKS, C::SMEM_BYTES, p, tile_map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  tile_map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC),
                  tile_map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), tile_map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ModelParams& p) {
  const bool is_window = p.left >= 0 || p.right > 0, is_varlen = p.cu_seqlens_q != nullptr;
  if (is_varlen) {
    is_window  ? start<typename C::Alone, Mask::window, true>(device, p)
    : p.causal ? start<C, Mask::causal, true>(device, p)
               : start<C, Mask::tail, true>(device, p);
  } else if (p.n_k == 0) {
    launch(device, no_keys, dim3(p.n_q * p.batch * p.heads), dim3(HEAD_DIM), 0, p);
  } else {
    is_window            ? start<typename C::Alone, Mask::window, false>(device, p)
    : p.causal           ? start<C, Mask::causal, false>(device, p)
    : p.n_k % C::BC != 0 ? start<C, Mask::tail, false>(device, p)
                         : start<C, Mask::none, false>(device, p);
  }
}

}  // namespace
