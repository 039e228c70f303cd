// Parts of the forward kernels of models/: more than a word and less than a kernel. A rung that brings a part on spells
// it out, as its head line here says; later ones say `using forward::Softmax`, until one changes it.
//
// All of it is for kernels in which a warpgroup copies and others multiply, from 40_bf16 on. T is the element, f16 or
// bf16; C is the rung's Config; Mask which keys a query sees; p the problem (common/attention.hpp). Members that
// execute instructions take the kernel's line along for the emulator, as words do; `plan` and `no_keys` are kernels,
// which have lines of their own.
#pragma once
#include "common/gpu.cuh"

namespace forward {
namespace {

constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;       // log2 units: no weight exceeds 2^8 while a warp is careful
constexpr float NO_KEY = -0x1.fffffep127f;  // a row's maximum before its first key; in log2 units, as all maxima
constexpr float HUGE_SCORE = 0x1p15f;       // log2 units
// Of a lane's weights of a row and tile: in bf16 times values of 2^50 they fit into O's f32, and f16 ends at 65504.
template <class T>
constexpr float SUM_LIMIT = 0x1p64f;
template <>
constexpr float SUM_LIMIT<f16> = 30000.0f;

// ---- the tile ------------------------------------------------------------------------------------------------------

// 38_seam and 46_alone. What a Config says of a block's tile: f16 or bf16, BR queries against BC keys at a time by
// WARPS warps, with STAGES tiles of K and of V on their way. A cluster's BLOCKS share K and V; one that works alone is
// a cluster, too.
template <class T, int BR_, int BC_, int WARPS_, int STAGES_, int BLOCKS_>
struct Tile {
  using Element = T;
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too

  // This block's number in its cluster, that one's among all, and how many there are.
  __device__ __forceinline__ static int rank() { return cluster_rank(); }
  __device__ __forceinline__ static int cluster() { return blockIdx.x / BLOCKS; }
  __device__ __forceinline__ static int clusters() { return gridDim.x / BLOCKS; }
};

// 44_told. 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x
// 240, or 40 + 2 x 232, where the one that copies has more to find out.
template <bool COPIES_WITH_FEW>
constexpr int PRODUCER_REGISTERS = COPIES_WITH_FEW ? 24 : 40;
template <bool COPIES_WITH_FEW>
constexpr int CONSUMER_REGISTERS = COPIES_WITH_FEW ? 240 : 232;

// ---- which keys ----------------------------------------------------------------------------------------------------

// 44_told. A mask says which keys queries see: i is the one of key i + n_k - n_q. Without one those are all, and
// they fill their tiles; under any other keys past the end are hidden. A causal one ends with the last key for the
// last query, and hides keys after a query's own; a window those far after it, and far before it.
struct NoMask {
  static constexpr bool HIDES = false, IS_WHOLE = true;    // some keys of a tile; every query sees all keys
  static constexpr bool GROWS = false, IS_WINDOW = false;  // a query sees a key more than the one before; two sides
  int n_q, n_k, left, right;  // of a window: as many as there are, where it has no such side

  __device__ __forceinline__ NoMask(const ModelParams& p) : NoMask(p, p.n_q, p.n_k) {}
  __device__ __forceinline__ NoMask(const ModelParams& p, int n_q, int n_k)  // of one sequence of several
      : n_q(n_q), n_k(n_k), left(p.left < 0 ? p.n_k : p.left), right(p.right < 0 ? p.n_q : p.right) {}
  __device__ __forceinline__ int first_of(int) const { return 0; }  // key that a query sees
  __device__ __forceinline__ int end_of(int) const { return n_k; }  // behind the last one; it sees none if not positive
};
struct Tail : NoMask {
  static constexpr bool HIDES = true;
  using NoMask::NoMask;
};
struct Causal : Tail {
  static constexpr bool IS_WHOLE = false, GROWS = true;
  using Tail::Tail;
  __device__ __forceinline__ int end_of(int query) const { return query + 1 + n_k - n_q; }
};
struct Window : Tail {
  static constexpr bool IS_WHOLE = false, IS_WINDOW = true;
  using Tail::Tail;
  __device__ __forceinline__ int first_of(int query) const { return max(query + n_k - n_q - left, 0); }
  __device__ __forceinline__ int end_of(int query) const { return min(query + 1 + n_k - n_q + right, n_k); }
};

// ---- what the thread that copies tells the others ------------------------------------------------------------------

// 44_told. WORDS numbers in shared memory, a multiple of four.
template <int WORDS_>
struct Message {
  static constexpr int WORDS = WORDS_, BYTES = WORDS * 4;
  uint32_t address;

  __device__ __forceinline__ int operator[](Numbered word) const {
    return int(ld_shared_b32(address + word.value * 4 LADDER_SITE_OF(word)));
  }
  __device__ __forceinline__ float number(int word LADDER_SITE_PARAMETER) const {
    return __uint_as_float(ld_shared_b32(address + word * 4 LADDER_SITE));
  }
  __device__ __forceinline__ void tell(const int (&words)[WORDS] LADDER_SITE_PARAMETER) const {
    for (int i = 0; i < WORDS; i += 4) {
      const uint4 four = {uint32_t(words[i]), uint32_t(words[i + 1]), uint32_t(words[i + 2]), uint32_t(words[i + 3])};
      st_shared_v4(address + i * 4, four LADDER_SITE);
    }
  }
};

// 44_told. Of each tile of queries, beside its Q: BEGIN to END, tiles of keys that some of the queries see; WHOLE_BEGIN
// to WHOLE_END, those that all see, so by the first of them every row has met a key; ZERO, the number of key 0's tile,
// copied or not; QUERY, the first; HEAD, of all sequences or of this one; MORE, or else this is the end. Then what a
// rung has to say besides: a sequence's N_Q, N_K and Q_BEGIN, its rows (45_varlen); or the head's SLOPE and SINK, f32
// (48_scores), and its SEQUENCE (m02_evenly).
struct Work : Message<12> {
  enum Word { BEGIN, END, WHOLE_BEGIN, WHOLE_END, ZERO, QUERY, HEAD, MORE, BESIDES };
  enum { N_Q = BESIDES, N_K, Q_BEGIN };
  enum { SLOPE = BESIDES, SINK, SEQUENCE };

  // The upper one of a lane's two rows; the other is 8 below.
  __device__ __forceinline__ int query(LADDER_SITE_ONLY_PARAMETER) const {
    return (*this)[{QUERY LADDER_SITE}] + int(threadIdx.x / 32) * 16 + FragmentC::row(threadIdx.x % 32, 0);
  }
  __device__ __forceinline__ bool is_masked(int tile, bool in_window LADDER_SITE_PARAMETER) const {
    return (in_window && tile < (*this)[{WHOLE_BEGIN LADDER_SITE}]) || tile >= (*this)[{WHOLE_END LADDER_SITE}];
  }
};

// 99_unaided, in line. Where a head of all sequences is: of which one, and which head of queries and of keys there.
struct Head {
  int sequence, head, kv_head;
};

// 48_scores. A head's sink in log2 units, as maxima are, or that of no key. Heads are numbered among all sequences, or
// within their own.
__device__ __forceinline__ float sink_of(const ScoreParams& p, const Head& at LADDER_SITE_PARAMETER) {
  return p.sinks == nullptr ? NO_KEY : fmaxf(ld_global_f32(p.sinks + at.head LADDER_SITE) * LOG2E, NO_KEY);
}
__device__ __forceinline__ float sink_of(const ScoreParams& p, int head LADDER_SITE_PARAMETER) {
  return sink_of(p, Head{0, head % p.heads, 0} LADDER_SITE);
}

// ---- the walk over work --------------------------------------------------------------------------------------------

// 45_varlen. How a head's queries are dealt out. A share is a pair of tiles of queries, or one tile where a block works
// alone, or under a mask two pairs: a head's longest and its shortest, its second longest and its second shortest ...,
// two by two equally long.
template <class C>
__host__ __device__ __forceinline__ int pairs_of(int n_q) {
  return (n_q + C::BLOCKS * C::BR - 1) / (C::BLOCKS * C::BR);
}
template <class Mask>
__host__ __device__ __forceinline__ int shares_of(int pairs) {
  return Mask::GROWS ? (pairs + 1) / 2 : pairs;
}

// m01_middles. The same under a mask where blocks work alone, of `tiles` tiles in a head. Of an odd number the one in
// the middle is left: so two heads are dealt out together, and one of their shares is both middles.
struct EvenShares {
  int tiles;

  __host__ __device__ __forceinline__ int of(int heads) const { return (heads * tiles + 1) / 2; }
  __device__ __forceinline__ int together() const { return 1 + tiles % 2; }
  // Of the two in a share: which head of those together, and which of its tiles.
  __device__ __forceinline__ int head(int share, int in_share) const { return share + in_share > tiles / 2; }
  __device__ __forceinline__ int tile(int share, int in_share) const {
    const int pair = share > tiles / 2 ? share - tiles / 2 - 1 : share;
    return in_share == 0 ? tiles - 1 - pair : pair;
  }
};

// 99_unaided. Divides by the same number again and again, each time by a product with its inverse. The inverse is a
// little too small, and the quotient, before it is compared, too small by one at most.
struct Divisor {
  uint32_t by, inverse = 0xffffffff / by;

  __device__ __forceinline__ int quotient(uint32_t x) const {
    const uint32_t at_least = uint64_t(x) * inverse >> 32;
    return at_least + (x - at_least * by >= by);
  }
};

// 99_unaided, in line. Finds a Head by products.
struct Heads {
  Divisor heads, group;

  __device__ __forceinline__ explicit Heads(const ForwardParams& p)
      : heads{uint32_t(p.heads)}, group{uint32_t(p.heads / p.kv_heads)} {}
  __device__ __forceinline__ Head operator()(int number) const {
    const int sequence = heads.quotient(number), head = number - sequence * heads.by;
    return {sequence, head, group.quotient(head)};
  }
};

// 45_varlen. A sequence: its rows in Q and in K, and how many shares there are, of all heads, up to its last one.
struct Sequence {
  int q_begin, n_q, k_begin, n_k, up_to;
};

// 44_told, and with its sequence's rows 45_varlen. A tile of queries, or none at the end of the walk, and what its pair
// copies: tiles of K and V, numbered since the block began, from tile `skipped` of K on.
struct Queries {
  bool are_left;
  int round, head, q_tile, first, kv_tiles, skipped = 0;
  int n_q = 0, q_begin = 0, n_k = 0, k_begin = 0;

  __device__ __forceinline__ explicit operator bool() const { return are_left; }
  __device__ __forceinline__ int in_K(int tile) const { return tile - first + skipped; }  // where a tile lies there
};

// 44_told, with VARLEN 45_varlen, and with EVEN m01_middles. Which queries next, and which keys they see. Clusters take
// the shares of all heads by turns (c, c + clusters, ...), and those of sequences of several lengths to and fro: who
// has had the longest one gets the shortest one then. A pair begins at an even tile; its second one may lie outside: it
// reads zeros and stores nothing.
template <class C, class Mask, bool VARLEN = false, bool EVENLY = false>
struct Schedule {
  static constexpr bool EVEN = EVENLY && Mask::GROWS;
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  const ModelParams& p;
  Mask mask;
  int pairs, shares, head, share;            // this share of this head, or of those that are dealt out together
  int heads_on, shares_on;                   // how much further on the next one of this cluster is
  int position = -1, before = 0, up_to = 0;  // VARLEN: in the plan; numbers of its first share, and behind its last one
  int q_begin = 0, k_begin = 0, deal = 0;    // VARLEN: the sequence's first rows; how often shares were dealt out
  // Of the last queries: which of its share's pairs they are of, how many came before, and what that pair copies.
  int pair = 0, in_share = -1, round = -1, first = 0, kv_tiles = 0, skipped = 0;

  __device__ __forceinline__ Schedule(const ModelParams& p) : p(p), mask(p) {
    if (VARLEN) {
      deal_out();
      return;
    }
    const auto cluster = C::cluster(), clusters = C::clusters();
    pairs = pairs_of<C>(p.n_q), shares = shares_of<Mask>(pairs);
    if (EVEN) shares = EvenShares{pairs}.of(EvenShares{pairs}.together());
    head = cluster / shares, heads_on = clusters / shares;  // the only divisions
    share = cluster % shares, shares_on = clusters % shares;
  }
  // The list was written by a launch of its own: what the emulator may say of it needs no line of the kernel.
  __device__ __forceinline__ void deal_out() {
    const auto cluster = C::cluster(), clusters = C::clusters();
    const int number = deal * clusters + (deal % 2 == 0 ? cluster : clusters - 1 - cluster);
    ++deal;
    while (number >= up_to && ++position < p.batch) {
      const Sequence* const sequence = static_cast<const Sequence*>(p.workspace) + position;
      before = up_to, up_to = ld_global_s32(&sequence->up_to);
      q_begin = ld_global_s32(&sequence->q_begin), mask.n_q = ld_global_s32(&sequence->n_q);
      k_begin = ld_global_s32(&sequence->k_begin), mask.n_k = ld_global_s32(&sequence->n_k);
    }
    if (position == p.batch) return;
    pairs = pairs_of<C>(mask.n_q), shares = shares_of<Mask>(pairs);
    head = (number - before) / shares, share = (number - before) % shares;
  }
  __device__ __forceinline__ int last_query(int tile) const { return min((tile + 1) * BR, mask.n_q) - 1; }
  __device__ __forceinline__ int tiles_before(int tile) const {
    return mask.first_of(min(tile * BR, mask.n_q - 1)) / BC;
  }
  __device__ __forceinline__ int tiles_up_to(int tile) const {  // at least one, masked, for queries that see none
    return (max(mask.end_of(last_query(tile)), 1) + BC - 1) / BC;
  }
  __device__ __forceinline__ Queries next() {
    first += kv_tiles;
    ++round;
    const bool has_second = Mask::GROWS && (EVEN || 2 * share + 1 < pairs);  // the pair in the middle is alone
    if (in_share == 1 || (in_share == 0 && !has_second)) {
      if (VARLEN) {
        deal_out();
      } else {
        head += heads_on, share += shares_on;
        if (share >= shares) share -= shares, ++head;
      }
      in_share = -1;
    }
    ++in_share;
    pair = Mask::GROWS && in_share == 0 ? pairs - 1 - share : share;
    int number = head;  // of all sequences
    if (EVEN) {
      const EvenShares even{pairs};
      pair = even.tile(share, in_share), number = head * even.together() + even.head(share, in_share);
    }
    const int q_tile = pair * BLOCKS + C::rank();
    skipped = tiles_before(pair * BLOCKS);
    kv_tiles = tiles_up_to(pair * BLOCKS + BLOCKS - 1) - skipped;
    const bool are_left = VARLEN ? position < p.batch : number < p.batch * p.heads;
    return {are_left, round, number, q_tile, first, kv_tiles, skipped, mask.n_q, q_begin, mask.n_k, k_begin};
  }
  // And besides the sequence's rows; or (48_scores) the head's slope over the scale of scores, and its sink in log2
  // units, as maxima are; or what else a rung has to say.
  __device__ __forceinline__ void tell(const Queries& queries, Work work LADDER_SITE_PARAMETER) const {
    tell(queries, work, mask.n_q, mask.n_k, q_begin LADDER_SITE);
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work, const ScoreParams& p,
                                       float scale LADDER_SITE_PARAMETER) const {
    const int q_head = queries.head % p.heads;
    const float slope = p.alibi_slopes == nullptr ? 0 : ld_global_f32(p.alibi_slopes + q_head LADDER_SITE) / scale;
    tell(queries, work, __float_as_int(slope), __float_as_int(sink_of(p, queries.head LADDER_SITE)), 0 LADDER_SITE);
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work, const ScoreParams& p, float scale,
                                       const Head& at LADDER_SITE_PARAMETER) const {  // m02_evenly
    const float slope = p.alibi_slopes == nullptr ? 0 : ld_global_f32(p.alibi_slopes + at.head LADDER_SITE) / scale;
    tell(queries, work, __float_as_int(slope), __float_as_int(sink_of(p, at LADDER_SITE)), at.sequence LADDER_SITE);
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work, int one, int two,
                                       int three LADDER_SITE_PARAMETER) const {
    const int zero = queries.first - queries.skipped, q_tile = queries.q_tile;
    work.tell({zero + tiles_before(q_tile), zero + tiles_up_to(q_tile),
               Mask::IS_WINDOW ? zero + mask.first_of(last_query(q_tile)) / BC + 1 : 0,
               zero + min(mask.end_of(q_tile * BR), mask.n_k) / BC,  // a second block may lie outside
               zero, q_tile * BR, queries.head, true, one, two, three} LADDER_SITE);
  }
};

// 45_varlen. PLAN Sequences in the workspace, those with the longest shares first: a thread looks for a sequence's
// position among all.
constexpr int PLAN_THREADS = 256;
template <class C, class Mask>
__global__ void __launch_bounds__(PLAN_THREADS) plan(ModelParams p) {
  const auto length = [](const int* cu_seqlens, int s) {
    return ld_global_s32(cu_seqlens + s + 1) - ld_global_s32(cu_seqlens + s);
  };
  const auto work_of = [&](int s) {  // of a share, but for a factor; in a window all have the same
    const int n_k = length(p.cu_seqlens_k, s);
    return Mask::GROWS ? 2 * n_k - min(length(p.cu_seqlens_q, s), n_k) : n_k;
  };
  for (int s = threadIdx.x; s < p.batch; s += PLAN_THREADS) {
    const int work = work_of(s);
    int position = 0, up_to = 0;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = work_of(other);
      const bool is_before = of_other > work || (of_other == work && other < s);
      position += is_before;
      if (is_before || other == s) up_to += p.heads * shares_of<Mask>(pairs_of<C>(length(p.cu_seqlens_q, other)));
    }
    const int entry[] = {ld_global_s32(p.cu_seqlens_q + s), length(p.cu_seqlens_q, s),
                         ld_global_s32(p.cu_seqlens_k + s), length(p.cu_seqlens_k, s), up_to};
    for (int i = 0; i < 5; ++i) st_global_b32(static_cast<int*>(p.workspace) + 5 * position + i, entry[i]);
  }
}

// 45_varlen. Where a box of so many rows lies in its map (`rows_map` says what maps those are), from a row of n on:
// coordinates beside that of its columns. Of a sequence among others at least one row: where a box begins outside, the
// engine reads where its map begins, and there is no memory.
struct Box {
  int y, z, w;
};
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Box box_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int first = max(begin + min(row, n - 1), 0), valid = min(max(n - row, 1), ROWS);
  return {ROWS - valid, first + valid, head};
}

// ---- shared memory, and what fills it ------------------------------------------------------------------------------

// 38_seam, where every thread finds out for itself.
struct NothingTold {
  static constexpr int BYTES = 0;
  uint32_t address;
};

// 38_seam, line by line in its kernel, and with what is told 44_told. What lies in a block's shared memory: Q_STAGES
// tiles of queries, by the round, where O leaves from, too; STAGES tiles of K and of V; MORE_BYTES that a rung has
// besides; barriers; and what is told, of this round and of the next.
template <class C, uint32_t ROW_BYTES, int Q_STAGES = 2, uint32_t MORE_BYTES = 0, class Told = Work>
struct Smem {
  using Config = C;
  static constexpr uint32_t TILE_BYTES = C::BC * ROW_BYTES, Q_BYTES = C::BR * ROW_BYTES;
  static constexpr uint32_t PANEL_ROW_BYTES = 128, PANELS = ROW_BYTES / PANEL_ROW_BYTES;
  static constexpr uint32_t BARRIERS = 4 * C::STAGES + 2 * Q_STAGES;
  uint32_t tiles_Q = smem_base(), tiles_K = tiles_Q + Q_STAGES * Q_BYTES, tiles_V = tiles_K + C::STAGES * TILE_BYTES;
  uint32_t more = tiles_V + C::STAGES * TILE_BYTES, barriers = more + MORE_BYTES, works = barriers + BARRIERS * 8;
  Ring<C::STAGES, TILE_BYTES> K{barriers, tiles_K}, V{K.end, tiles_V};
  Ring<Q_STAGES, Q_BYTES> Q{V.end, tiles_Q};

  __device__ __forceinline__ Told told(int round) const { return {works + round % 2 * Told::BYTES}; }
  __device__ __forceinline__ void name() const {
    smem_name(tiles_Q, Q_STAGES * Q_BYTES, "Q", PANEL_ROW_BYTES);
    smem_name(tiles_K, C::STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
    smem_name(tiles_V, C::STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
    smem_name(barriers, BARRIERS * 8, "barriers");
    if (Told::BYTES > 0) smem_name(works, 2 * Told::BYTES, "works");
  }
  // One thread's, before all use them.
  __device__ __forceinline__ void init(LADDER_SITE_ONLY_PARAMETER) const {
    K.init(C::BLOCKS * C::WARPS / 4 LADDER_SITE);  // a warpgroup has read it
    V.init(C::BLOCKS * C::WARPS / 4 LADDER_SITE);
    Q.init(C::WARPS LADDER_SITE);            // a warp has stored its O from there
    fence_mbarrier_init(LADDER_SITE_ALONE);  // safe to name them to the copy engine, which knows them now
  }
};

// 42_grouped. What the thread that copies does, from beginning to end, where all threads walk for themselves. Q, K and
// V are the rings of their tiles. A block brings its panel of a tile of K or V to both; the other brings its own here.
template <class C, uint32_t ROW_BYTES, class Walk, class RingQ, class RingK, class RingV>
__device__ __forceinline__ void load_all(const ForwardParams& p, Walk& work, const RingQ& Q, const RingK& K,
                                         const RingV& V, const TensorMap& Q_map, const TensorMap& K_map,
                                         const TensorMap& V_map LADDER_SITE_PARAMETER) {
  constexpr int BR = C::BR, BC = C::BC, PANEL_ROW_BYTES = 128, PANELS = ROW_BYTES / PANEL_ROW_BYTES, PANEL_COLS = 64;
  int kv_head = 0, sequence = 0;
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile LADDER_SITE);
    const uint32_t panel = cluster_rank(), target = ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d_multicast(target, map, panel * PANEL_COLS, work.key_of(tile), kv_head, sequence,
                                      ring.full_of(tile), 0b11 LADDER_SITE);
  };
  while (work.next()) {
    Q.claim(work.round LADDER_SITE);
    const int head = work.head % p.heads;
    kv_head = head / (p.heads / p.kv_heads), sequence = work.head / p.heads;
    for (int panel = 0; panel < PANELS; ++panel)
      cp_async_bulk_tensor_4d(Q.tiles + Q.at(work.round) + panel * BR * PANEL_ROW_BYTES, Q_map, panel * PANEL_COLS,
                              work.q_tile * BR, head, sequence, Q.full_of(work.round) LADDER_SITE);
    const int last = work.first + work.kv_tiles - 1;
    for (int tile = work.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
      if (tile <= last) request(K_map, K, tile);
      if (tile > work.first) request(V_map, V, tile - 1);
    }
  }
}

// 46_alone, and 48_scores where all sequences have one length. The tiles of keys that a pair sees. A block brings its
// panels of a tile of K or V to both; the other brings its own here. Alone it brings all of them. One thread's.
template <class Smem, class Tiles>
__device__ __forceinline__ void load_keys(const Smem& smem, const Tiles& queries, int kv_head, int sequence,
                                          const TensorMap& K_map, const TensorMap& V_map LADDER_SITE_PARAMETER) {
  constexpr int BC = Smem::Config::BC, BLOCKS = Smem::Config::BLOCKS;
  constexpr int PANELS = Smem::PANELS, PANEL_ROW_BYTES = Smem::PANEL_ROW_BYTES, PANEL_COLS = PANEL_ROW_BYTES / 2;
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile LADDER_SITE);
    ring.expect(tile LADDER_SITE);
    for (uint32_t panel = cluster_rank(); panel < PANELS; panel += BLOCKS)
      cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES, map,
                                        panel * PANEL_COLS, queries.in_K(tile) * BC, kv_head, sequence,
                                        ring.full_of(tile), (1 << BLOCKS) - 1 LADDER_SITE);
  };
  const int last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.V, tile - 1);
  }
}
// 46_alone, and 48_scores. A tile of queries, and those tiles of keys.
template <class Smem, class Tiles = Queries>
__device__ __forceinline__ void load(const Smem& smem, const Tiles& queries, const Head& at, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map LADDER_SITE_PARAMETER) {
  constexpr int BR = Smem::Config::BR, PANELS = Smem::PANELS, PANEL_ROW_BYTES = Smem::PANEL_ROW_BYTES;
  smem.Q.expect(queries.round LADDER_SITE);
  for (int panel = 0; panel < PANELS; ++panel)
    cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round) + panel * BR * PANEL_ROW_BYTES, Q_map,
                            panel * PANEL_ROW_BYTES / 2, queries.q_tile * BR, at.head, at.sequence,
                            smem.Q.full_of(queries.round) LADDER_SITE);
  load_keys(smem, queries, at.kv_head, at.sequence, K_map, V_map LADDER_SITE);
}
template <class Smem, class Tiles = Queries>
__device__ __forceinline__ void load(const ForwardParams& p, const Smem& smem, const Tiles& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map,
                                     const TensorMap& V_map LADDER_SITE_PARAMETER) {
  const int head = queries.head % p.heads;
  const int kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  load(smem, queries, Head{sequence, head, kv_head}, Q_map, K_map, V_map LADDER_SITE);
}

// 46_alone. Safe to end: the other block, where there is one, does not copy here, nor arrive, any more.
template <int BLOCKS>
__device__ __forceinline__ void end_together(LADDER_SITE_ONLY_PARAMETER) {
  if (BLOCKS > 1) cluster_sync(LADDER_SITE_ALONE);
}

// ---- scores and weights --------------------------------------------------------------------------------------------

// 48_scores. What becomes of a score before the softmax: O = softmax(scale * function(Q K^T)) V. `distance`: how far a
// key lies before the query's own, negative behind it. `slope`: the head's of p.alibi_slopes, over scale.
template <bool CAPPED, bool SLOPED>
struct Score {
  static constexpr bool CHANGES = CAPPED || SLOPED;  // or else it costs nothing
  float scale, inner;

  __device__ __forceinline__ explicit Score(const ScoreParams& p)
      : scale(CAPPED ? p.softcap : p.softmax_scale), inner(CAPPED ? p.softmax_scale / p.softcap : 1) {}
  __device__ __forceinline__ float operator()(float score, float distance, float slope) const {
    if (CAPPED) score = tanh_approx(score * inner);  // softcap * tanh(score / softcap), but for the factor
    if (SLOPED) score -= slope * fabsf(distance);    // ALiBi
    return score;
  }
};

// 48_scores. Each score of a tile by a function of it, of its key's distance before the query's own, negative behind
// it, and of the head's slope.
template <class Function, int TILES>
__device__ __forceinline__ void change_scores(float (&S)[TILES][4], const Function& function, const ScoreParams& p,
                                              const Work& work, int tile LADDER_SITE_PARAMETER) {
  if constexpr (Function::CHANGES) {
    const int first = (tile - work[{Work::ZERO LADDER_SITE}]) * (TILES * 8) + FragmentC::col(threadIdx.x % 32, 0);
    const float here = work.query(LADDER_SITE_ALONE) + p.n_k - p.n_q - first, distance[2] = {here, here + 8};
    const float slope = work.number(Work::SLOPE LADDER_SITE);
#pragma unroll
    for (int key_tile = 0; key_tile < TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {
        float& score = S[key_tile][i];
        score = function(score, distance[i / 2] - (key_tile * 8 + FragmentC::col(0, i)), slope);
      }
    }
  }
}

// 43_window. Masks what rows do not see of a tile, on either side.
template <class Mask, class Work, int TILES>
__device__ __forceinline__ void hide_both_sides(float (&S)[TILES][4], const Mask& mask, const Work& work,
                                                int tile LADDER_SITE_PARAMETER) {
  if constexpr (Mask::HIDES) {
    // Of this tile's keys, the first that a lane's row sees, and behind the last.
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_key = (tile - work[{Work::ZERO LADDER_SITE}]) * (TILES * 8);
    int from[2], to[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int query = work[{Work::QUERY LADDER_SITE}] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
      from[lane_row] = mask.first_of(query) - first_key;
      to[lane_row] = mask.end_of(query) - first_key;
    }
#pragma unroll
    for (int key_tile = 0; key_tile < TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {
        const int key = key_tile * 8 + FragmentC::col(lane, i);
        if (key >= to[i / 2] || (Mask::IS_WINDOW && key < from[i / 2])) S[key_tile][i] = -INFINITY;
      }
    }
  }
}

// 47_edges. Masks what rows do not see of a tile. Whether their window begins there: then a row may meet its first key.
template <class Mask, int TILES>
__device__ __forceinline__ bool hide_unseen(float (&S)[TILES][4], const Mask& mask, const Work& work,
                                            int tile LADDER_SITE_PARAMETER) {
  const int first_key = (tile - work[{Work::ZERO LADDER_SITE}]) * TILES * 8;
  const auto hide = [&](auto is_hidden) {
#pragma unroll
    for (int key_tile = 0; key_tile < TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {
        if (is_hidden(key_tile * 8 + FragmentC::col(threadIdx.x % 32, i), i / 2)) S[key_tile][i] = -INFINITY;
      }
    }
  };
  const int query = work.query(LADDER_SITE_ALONE), below = query + 8;
  const bool begins = Mask::IS_WINDOW && tile < work[{Work::WHOLE_BEGIN LADDER_SITE}];
  if (begins) {
    const int from[2] = {mask.first_of(query) - first_key, mask.first_of(below) - first_key};
    hide([&](int key, int lane_row) { return key < from[lane_row]; });
  }
  if (Mask::HIDES && tile >= work[{Work::WHOLE_END LADDER_SITE}]) {
    const int to[2] = {mask.end_of(query) - first_key, mask.end_of(below) - first_key};
    hide([&](int key, int lane_row) { return key >= to[lane_row]; });
  }
  return begins;
}

// Whether a row's maximum is. nvcc makes S * scale_log2 - max one instruction, and what the maximum lost when it was
// rounded stays in the difference: half a unit of its last place, which beyond 2^24 is more than 1.
__device__ __forceinline__ bool is_huge(float max) {
  return fabsf(max) >= HUGE_SCORE && fabsf(max) < -NO_KEY;
}

// 43_window, but for huge scores, and with sinks 48_scores. A lane's share of two rows: their scores S become weights
// P = 2^(S * scale_log2 - max). `max` is the same in a row's four lanes; a careful warp looks first whether a score has
// outgrown it, and so does every warp on the first tile, and where a row may meet its first key. The sum of the weights
// tells whether that was enough: too large or infinite, and they are made again.
// A row that has met a huge score keeps a calm `max`, and how far `above` it its largest score is: they are rounded
// alike before one is taken from the other. No sum is below its `limit`, so its weights are made again on each tile.
template <class T, int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / 16][4];
  float scale_log2;                     // exp(s * softmax_scale) = 2^(s * scale_log2)
  float max[2], sum[2], correction[2];  // [lane_row]; max in log2 units
  float above[2], limit;                // max, the largest score, or 0 where it is not huge; of sums of weights
  bool careful;                         // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                         // O, by `correction`, before the next PV

  // A sink is a score that is there before all others, and belongs to no key. One of a row's four lanes counts its
  // weight, 1.
  __device__ __forceinline__ void begin(float sink = NO_KEY, bool counts = false) {
    careful = is_huge(sink);
    limit = careful ? -1 : SUM_LIMIT<T>;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      max[lane_row] = careful ? 0 : sink, above[lane_row] = careful ? sink : 0;
      sum[lane_row] = counts && sink > NO_KEY;
    }
  }
  __device__ __forceinline__ float largest(int lane_row) const { return max[lane_row] + above[lane_row]; }
  // Looks at the scores, to which `plus` is added in log2 units.
  __device__ __forceinline__ void look(Scores S, bool is_first, const float (&plus)[2] LADDER_SITE_PARAMETER) {
    float score[2] = {lane_max(S, 0), lane_max(S, 1)};
    float to[2] = {score[0] * scale_log2 + plus[0], score[1] * scale_log2 + plus[1]};
    if (is_first) {
      rescale = true;
      // Each lane's own, so the warp is asked while the lanes of a row exchange theirs.
      const bool huge = limit < 0 || is_huge(to[0]) || is_huge(to[1]);
      for (float& largest : score) largest = quad_max(largest LADDER_SITE);
      if (vote_any(huge LADDER_SITE)) {
        begin_huge(S, score, plus LADDER_SITE);
      } else {
        for (int lane_row = 0; lane_row < 2; ++lane_row)
          grow(lane_row, fmaxf(score[lane_row] * scale_log2 + plus[lane_row], max[lane_row]));
      }
    } else {
      rescale = vote_any(fmaxf(to[0] - max[0], to[1] - max[1]) > RESCALE_ABOVE LADDER_SITE);
      if (rescale) raise_max(to LADDER_SITE);
    }
  }
  // If that is more: a row's, over its four lanes. A huge one is left to weigh_again.
  __device__ __forceinline__ void raise_max(float (&to)[2] LADDER_SITE_PARAMETER) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      to[lane_row] = fmaxf(quad_max(to[lane_row] LADDER_SITE), max[lane_row]);
      if (is_huge(to[lane_row]) || above[lane_row] != 0) {
        if (max[lane_row] == NO_KEY) max[lane_row] = 0, above[lane_row] = NO_KEY;
        to[lane_row] = max[lane_row], limit = -1;
      }
      grow(lane_row, to[lane_row]);
    }
  }
  __device__ __forceinline__ void grow(int lane_row, float to) {
    correction[lane_row] = ex2_approx(max[lane_row] - to);  // 1 where nothing has grown
    max[lane_row] = to;
    sum[lane_row] *= correction[lane_row];
  }
  // The first tile, and some lane's largest score is huge, or a sink is; `score` is the row's largest. From a huge
  // row's scores the largest is taken before they are scaled.
  __device__ __forceinline__ void begin_huge(Scores S, const float (&score)[2],
                                             const float (&plus)[2] LADDER_SITE_PARAMETER) {
    const float inverse = 1 / scale_log2;
    limit = SUM_LIMIT<T>;
    float by[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float before = largest(lane_row), to = score[lane_row] + plus[lane_row] * inverse;
      by[lane_row] = fmaxf(to, before * inverse);
      const float new_max = fmaxf(to * scale_log2, before);
      if (is_huge(new_max)) {
        max[lane_row] = 0, above[lane_row] = by[lane_row] * scale_log2, limit = -1;
      } else {
        max[lane_row] = new_max, above[lane_row] = by[lane_row] = 0;
      }
      sum[lane_row] *= ex2_approx(before - new_max);
    }
    careful = vote_any(limit < 0 LADDER_SITE);
#pragma unroll
    for (int key_tile = 0; key_tile < BC / 8; ++key_tile) {
      for (int i = 0; i < 4; ++i) S[key_tile][i] -= by[i / 2];
    }
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks LADDER_SITE_PARAMETER) {
    rescale = false;
    float tile_sum[2];
    if (looks || careful || is_first) look(S, is_first, {0, 0} LADDER_SITE);
    exp2_weights<T>(S, P, scale_log2, max, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= limit LADDER_SITE)) {
      weigh_again(S, P, tile_sum LADDER_SITE);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
  __device__ __forceinline__ void weigh_again(Scores S, Weights P, float (&tile_sum)[2] LADDER_SITE_PARAMETER) {
    float by[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float largest = fmaxf(quad_max(lane_max(S, lane_row) LADDER_SITE), above[lane_row]);
      const float growth = ex2_approx(above[lane_row] - largest), to = max[lane_row] + largest;
      correction[lane_row] = rescale ? correction[lane_row] * growth : growth;
      sum[lane_row] *= growth;
      if (is_huge(to)) {
        by[lane_row] = above[lane_row] = largest, limit = -1;
      } else {
        by[lane_row] = to - max[lane_row];
        max[lane_row] = to, above[lane_row] = 0;
      }
    }
#pragma unroll
    for (int key_tile = 0; key_tile < BC / 8; ++key_tile) {
      for (int i = 0; i < 4; ++i) S[key_tile][i] -= by[i / 2];
    }
    exp2_weights<T>(S, P, tile_sum);
    rescale = careful = true;  // from now on
  }
};

// 51_three. The same in two steps, for a warpgroup that has one P: S becomes exponents S * scale_log2 - max while PV
// reads P, and then P = 2^S.
template <class T, int BC>
struct SoftmaxInTwo : Softmax<T, BC> {
  using Base = Softmax<T, BC>;
  using Base::careful, Base::limit, Base::max, Base::rescale, Base::scale_log2, Base::sum;
  using typename Base::Scores, typename Base::Weights;

  // The whole warp: an exchange needs it. `may_begin`: a row may meet its first key here.
  __device__ __forceinline__ void scale(Scores S, bool is_first, bool may_begin LADDER_SITE_PARAMETER) {
    rescale = false;
    if (careful || is_first || may_begin) Base::look(S, is_first, {0, 0} LADDER_SITE);
    scale_scores(S, scale_log2, max);
    rescale &= !is_first;  // then O is 0
  }
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first LADDER_SITE_PARAMETER) {
    float tile_sum[2];
    exp2_weights<T>(S, P, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= limit LADDER_SITE)) {
      Base::weigh_again(S, P, tile_sum LADDER_SITE);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
  }
};

// 41_rows, and of several sequences 45_varlen. When a row's last weights are made, beside their PV: two exchanges
// complete its sum, O's row times `by` is the output, and the log of the sum of exp(scores) is written where somebody
// wants it, to LSE[first_row() + query]. A row that sees no key: 0, and -infinity. IS_WHOLE: there is no such row.
template <bool IS_WHOLE, class Mask, class Work, class Softmax, class Row>
__device__ __forceinline__ void finish_rows(const Mask& mask, const Work& work, Softmax& softmax, float (&by)[2],
                                            float* LSE, int n_q, Row first_row LADDER_SITE_PARAMETER) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row] LADDER_SITE);
    const int query = work[{Work::QUERY LADDER_SITE}] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
    const bool has_keys = IS_WHOLE || mask.first_of(query) < mask.end_of(query);
    by[lane_row] = has_keys ? 1.0f / softmax.sum[lane_row] : 0.0f;  // no key: O = 0
    if (LSE != nullptr && lane % 4 == 0 && query < n_q)             // log(0) is -infinity
      st_global_f32(LSE + first_row() + query,
                    softmax.largest(lane_row) / LOG2E + logf(softmax.sum[lane_row]) LADDER_SITE);
  }
}
template <class Mask, class Work, class Softmax>
__device__ __forceinline__ void finish_rows(const ModelParams& p, const Work& work, Softmax& softmax,
                                            float (&by)[2] LADDER_SITE_PARAMETER) {
  const auto first_row = [&] { return int64_t(work[{Work::HEAD LADDER_SITE}]) * p.n_q; };
  finish_rows<Mask::IS_WHOLE>(Mask(p), work, softmax, by, p.LSE, p.n_q, first_row LADDER_SITE);
}

// 38_seam, and in a window 43_window. Of a pair one block does not need a tile that the other one needs, its last one
// on that one's diagonal, or in a window its first. Who releases such a tile waits for it, and nobody else: a warp that
// came late would miss the phase. A branch and no loop, for ptxas: of two shares one after the other it is one tile at
// most, number up_to - 1 if `end` is below that.
template <bool IS_NEEDED, int BLOCKS, class RingK, class RingV, class Release>
__device__ __forceinline__ void let_pass(const RingK& K, const RingV& V, int end, int up_to,
                                         Release release LADDER_SITE_PARAMETER) {
  if (IS_NEEDED && threadIdx.x % 128 < BLOCKS && end < up_to) {
    K.wait_full(up_to - 1 LADDER_SITE);  // safe to release: it is not on its way any more
    release(K, up_to - 1);
    V.wait_full(up_to - 1 LADDER_SITE);
    release(V, up_to - 1);
  }
  __syncwarp(LADDER_SITE_ALONE);  // products take whole warps
}

// 41_rows. Which rows of which head, where that is known without being told: for `store_rows`.
struct RowsOfHead {
  enum Word { QUERY, HEAD };
  int words[2];  // the first query of the tile, and its head

  __device__ __forceinline__ int operator[](Numbered word) const { return words[word.value]; }
};

// 41_rows, and of what is told 44_told. STORE A warp's 16 rows of O, each times a number of its own, as T to its rows
// of the tile at `smem_O`, in panels of 64 columns swizzled as the copy engine reads them; and from there to memory.
// MAY_BE_NONE: a row times 0 is 0, whatever it holds.
// `heads` of a sequence; or who says where the head of all sequences is.
template <class T, int BR, bool MAY_BE_NONE, int TILES, class Work, class At>
__device__ __forceinline__ void store_rows(uint32_t smem_O, const float (&O)[TILES][4], const float (&by)[2],
                                           const Work& work, At at, const TensorMap& O_map LADDER_SITE_PARAMETER) {
  constexpr int PANELS = TILES / 8, PANEL_COLS = 64, PANEL_ROW_BYTES = 128;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t warp_O = smem_O + warp * 16 * PANEL_ROW_BYTES, lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
  store_scaled<T, BR, MAY_BE_NONE>(lane_O, O, by LADDER_SITE);
  fence_proxy_async_shared(LADDER_SITE_ALONE);  // the copy engine will find what this lane has stored
  __syncwarp(LADDER_SITE_ALONE);                // safe to copy: all lanes have stored
  if (lane == 0) {
    const Head here = at(work[{Work::HEAD LADDER_SITE}]);
    for (int panel = 0; panel < PANELS; ++panel)
      cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, work[{Work::QUERY LADDER_SITE}] + warp * 16, here.head,
                                    here.sequence, warp_O + panel * BR * PANEL_ROW_BYTES LADDER_SITE);
    cp_async_bulk_commit(LADDER_SITE_ALONE);
  }
  __syncwarp(LADDER_SITE_ALONE);  // for ptxas: a warp that diverges here would be diverged in the next loop, at 5 %
}
template <class T, int BR, bool MAY_BE_NONE, int TILES, class Work>
__device__ __forceinline__ void store_rows(uint32_t smem_O, const float (&O)[TILES][4], const float (&by)[2],
                                           const Work& work, int heads, const TensorMap& O_map LADDER_SITE_PARAMETER) {
  const auto at = [&](int head) -> Head { return {head / heads, head % heads, 0}; };
  store_rows<T, BR, MAY_BE_NONE>(smem_O, O, by, work, at, O_map LADDER_SITE);
}

// 38_seam. Of a round whose O has been stored, if there was one: its place, or that of its Q, may be overwritten.
template <class RingQ>
__device__ __forceinline__ void release_Q(const RingQ& Q, int round LADDER_SITE_PARAMETER) {
  if (threadIdx.x % 32 == 0 && round >= 0) {
    cp_async_bulk_wait_read<0>(LADDER_SITE_ALONE);  // safe to overwrite or to end: shared memory has been read
    mbarrier_arrive(Q.empty_of(round) LADDER_SITE);
  }
  __syncwarp(LADDER_SITE_ALONE);  // products and barriers take whole warps
}

// ---- LAUNCH --------------------------------------------------------------------------------------------------------

// 41_rows, and with sinks 48_scores. Without any key O is 0, and the log-sum-exp that of the sink. A block for each
// row, a thread for each of its columns, D at most.
__device__ __forceinline__ float lse_of_no_keys(const ForwardParams&, int) {
  return -INFINITY;
}
__device__ __forceinline__ float lse_of_no_keys(const ScoreParams& p, int head) {
  return p.sinks == nullptr ? -INFINITY : ld_global_f32(p.sinks + head);
}
__device__ __forceinline__ float lse_of_no_keys(const CacheScoreParams& p, int head) {  // d16_functions
  return p.sinks == nullptr ? -INFINITY : ld_global_f32(p.sinks + head);
}
template <class T, int D, class Params>
__global__ void __launch_bounds__(D) no_keys(Params p) {
  const int query = blockIdx.x % p.n_q, head = blockIdx.x / p.n_q % p.heads, sequence = blockIdx.x / p.n_q / p.heads;
  const ForwardParams::Strides& strides = p.O_strides;
  T* const O_row = static_cast<T*>(p.O) + sequence * strides.batch + head * strides.head + query * strides.row;
  if (int(threadIdx.x) < p.d) st_global_rounded(O_row + threadIdx.x, 0.0f);
  if (p.LSE != nullptr && threadIdx.x == 0) st_global_f32(p.LSE + blockIdx.x, lse_of_no_keys(p, head));
}
template <class T, int D, class Params>
void start_no_keys(Device& device, const Params& p) {
  launch(device, no_keys<T, D, Params>, dim3(p.n_q * p.batch * p.heads), dim3(D), 0, p);
}

// 41_rows, and with VARLEN 45_varlen. The map of a tensor [batch, heads, n, d] of T in any strides, for boxes of `rows`
// rows and 64 columns, a panel. It tells the copy engine where rows and columns end: what is asked for behind is zeros,
// and what is stored there is dropped. A sequence among others ends where the tensor does not, so its map is another
// one: y < `rows` rows from row z - `rows` on, for every z. In a box that begins at y = `rows` - valid so many rows lie
// inside, and z says which.
template <class T, bool VARLEN = false>
TensorMap rows_map(Device& device, const void* data, const ForwardParams::Strides& strides, int d, int n, int heads,
                   int batch, uint32_t rows) {
  const T* const tensor = static_cast<const T*>(data);
  const uint64_t row = strides.row * sizeof(T), head = strides.head * sizeof(T), sequence = strides.batch * sizeof(T);
  if (VARLEN) {
    return tensor_map_4d(device, tensor - rows * strides.row, {uint32_t(d), rows, 1u << 31, uint32_t(heads)},
                         {row, row, head}, {64, rows, 1, 1});
  }
  return tensor_map_4d(device, tensor, {uint32_t(d), uint32_t(n), uint32_t(heads), uint32_t(batch)},
                       {row, head, sequence}, {64, rows, 1, 1});
}

// 45_varlen, and with EVENLY m01_middles. As many blocks as run at the same time, one per SM, in clusters, or fewer
// where there is less to do.
template <class C, class Mask, bool EVENLY = false>
uint32_t blocks_for(Device& device, const ForwardParams& p) {
  const int pairs = pairs_of<C>(p.n_q), heads = p.batch * p.heads;
  const uint32_t shares =  // at most, where lengths differ
      EVENLY && Mask::GROWS ? EvenShares{pairs}.of(heads) : shares_of<Mask>(pairs) * heads;
  const uint32_t clusters = multiprocessors(device) / C::BLOCKS;
  return (shares < clusters ? shares : clusters) * C::BLOCKS;
}

// 46_alone. Which mask a problem gets: `start` is called as start.template operator()<C, Mask>().
template <class C, class Start>
void start_masked(const ModelParams& p, Start start) {
  if (p.left >= 0 || p.right > 0) {
    start.template operator()<typename C::Alone, Window>();
  } else if (p.causal) {
    start.template operator()<C, Causal>();
  } else {
    p.n_k % C::BC != 0 ? start.template operator()<C, Tail>() : start.template operator()<C, NoMask>();
  }
}

// 48_scores. Which instance a problem gets, of those that Score<CAPPED, SLOPED> and the masks make: `start` is called
// as start.template operator()<C, Mask, Function>(). A function without a mask is compiled as one with a window that
// all keys are in: models have a mask. So are both functions at once, under any mask: no model that we know has both.
template <class C, class Function, class Start>
void start_masked(const ScoreParams& p, Start start) {
  const bool is_window = p.left >= 0 || p.right > 0;
  if (p.causal && !is_window) {
    start.template operator()<C, Causal, Function>();
  } else if (is_window || Function::CHANGES) {
    start.template operator()<typename C::Alone, Window, Function>();
  } else if constexpr (!Function::CHANGES) {
    p.n_k % C::BC != 0 ? start.template operator()<C, Tail, Function>()
                       : start.template operator()<C, NoMask, Function>();
  }
}
template <class C, template <bool, bool> class Score, class Start>
void start_function(const ScoreParams& p, Start start) {
  if (p.softcap > 0) {
    p.alibi_slopes ? start.template operator()<typename C::Alone, Window, Score<true, true>>()
                   : start_masked<C, Score<true, false>>(p, start);
  } else {
    p.alibi_slopes ? start_masked<C, Score<false, true>>(p, start) : start_masked<C, Score<false, false>>(p, start);
  }
}

}  // namespace
}  // namespace forward
