// The parts of a forward kernel for models.
#pragma once

namespace {

constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8 while a warp is careful
constexpr float NO_KEY = -0x1p100f;    // a row's maximum before its first key; in log2 units, as all maxima
// Of a lane's weights of a row and tile: times values of 2^50 they fit into O's f32.
constexpr float SUM_LIMIT = 0x1p64f;

// Which scores are masked: those of keys past the end; under a causal mask, which ends with the last key for the last query, also
// those of keys after a query's own; in a window those of keys far after it, and far before it.
enum class Mask { none, tail, causal, window };

// Which keys queries see: i is the one of key i + n_k - n_q.
template <Mask MASK>
struct Seen {
  int n_q, n_k, left, right;  // of a window: as many as there are, where it has no such side

  __device__ __forceinline__ Seen(const ScoreParams& p)
      : n_q(p.n_q), n_k(p.n_k), left(p.left < 0 ? n_k : p.left), right(p.right < 0 ? n_q : p.right) {}
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
// ZERO, the number of key 0's tile, copied or not; QUERY, the first; HEAD, its SLOPE and SINK, f32; MORE, or else this is the end.
struct Work {
  enum Word { BEGIN, END, WHOLE_BEGIN, WHOLE_END, ZERO, QUERY, HEAD, MORE, SLOPE, SINK, WORDS = 12 };
  uint32_t address;

  __device__ __forceinline__ int operator[](Word word) const { return int(ld_shared_b32(address + word * 4)); }
  __device__ __forceinline__ float number(Word word) const {
    return __uint_as_float(ld_shared_b32(address + word * 4));
  }
  __device__ __forceinline__ void tell(const int (&words)[WORDS]) const {
    for (int i = 0; i < WORDS; i += 4)
      st_shared_v4(address + i * 4,
                   {uint32_t(words[i]), uint32_t(words[i + 1]), uint32_t(words[i + 2]), uint32_t(words[i + 3])});
  }
};

// Which queries next, and which keys they see. A head is `shares` of work, and clusters take those of all heads by
// turns (c, c + clusters, ...). A share is a pair of tiles of queries, or one tile where a block works alone, or under a mask two
// pairs: a head's longest and its shortest, its second longest and its second shortest ..., two by two equally long. A pair begins at an even tile; its
// second one may lie outside: it reads zeros and stores nothing.
template <class C, Mask MASK>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  const ScoreParams& p;
  Seen<MASK> seen;
  int pairs, shares;
  int head, share, heads_on, shares_on;  // this share of this head; and how much further on the next one is
  int turn = -1, round = -1, q_tile = 0;
  int first = 0, kv_tiles = 0,
      skipped = 0;  // what the pair copies; tiles of K and V are numbered since the block began

  __device__ __forceinline__ Schedule(const ScoreParams& p) : p(p), seen(p) {
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    pairs = (p.n_q + BLOCKS * BR - 1) / (BLOCKS * BR);
    shares = MASK == Mask::causal ? (pairs + 1) / 2 : pairs;
    head = cluster / shares, heads_on = clusters / shares;  // the only divisions
    share = cluster % shares, shares_on = clusters % shares;
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
      head += heads_on, share += shares_on;
      if (share >= shares) share -= shares, ++head;
      turn = -1;
    }
    ++turn;
    const int pair = MASK == Mask::causal && turn == 0 ? pairs - 1 - share : share;
    q_tile = pair * BLOCKS + cluster_rank();
    skipped = tiles_before(pair * BLOCKS);
    kv_tiles = tiles_up_to(pair * BLOCKS + BLOCKS - 1) - skipped;
    return head < p.batch * p.heads;
  }
  __device__ __forceinline__ int key_of(int tile) const { return (tile - first + skipped) * BC; }  // the tile's first
  __device__ __forceinline__ void tell(Work work, float scale) const {
    const int zero = first - skipped, of = head % p.heads;
    const float slope = p.alibi_slopes == nullptr ? 0 : ld_global_f32(p.alibi_slopes + of) / scale;
    const float sink = p.sinks == nullptr ? NO_KEY : fmaxf(ld_global_f32(p.sinks + of) * LOG2E, NO_KEY);
    work.tell({zero + tiles_before(q_tile), zero + tiles_up_to(q_tile),
               MASK == Mask::window ? zero + seen.first_of(last_query(q_tile)) / BC + 1 : 0,
               zero + min(seen.end_of(q_tile * BR), seen.n_k) / BC,  // a second block may lie outside
               zero, q_tile * BR, head, true, __float_as_int(slope), __float_as_int(sink)});
  }
};

// A lane's share of two rows: their scores S become weights P = 2^(S * scale_log2 - max). `max` is the same in a row's
// four lanes; a careful warp looks first whether a score has outgrown it, and so does every warp on the first tile, and
// where a row may meet its first key. Otherwise the sum of the weights tells: too large or infinite, and they are made
// again.
template <class T, int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / 16][4];
  float scale_log2;                     // exp(s * softmax_scale) = 2^(s * scale_log2)
  float max[2], sum[2], correction[2];  // [lane_row]; max in log2 units
  bool careful;                         // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                         // O, by `correction`, before the next PV

  // A sink is a score that is there before all others, and belongs to no key. One of a row's four lanes counts its weight, 1.
  __device__ __forceinline__ void begin(float sink, bool counts) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) max[lane_row] = sink, sum[lane_row] = counts && sink > NO_KEY;
    careful = false;
  }
  __device__ __forceinline__ void raise_max(float (&to)[2]) {  // if that is more: a row's, over its four lanes
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      to[lane_row] = fmaxf(quad_max(to[lane_row]), max[lane_row]);
      correction[lane_row] = ex2_approx(max[lane_row] - to[lane_row]);  // 1 where nothing has grown
      max[lane_row] = to[lane_row];
      sum[lane_row] *= correction[lane_row];
    }
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks) {
    looks |= careful || is_first;
    rescale = false;
    float tile_sum[2];
    if (looks) {
      float largest_of[2] = {lane_max(S, 0) * scale_log2, lane_max(S, 1) * scale_log2};
      rescale = vote_any(is_first || fmaxf(largest_of[0] - max[0], largest_of[1] - max[1]) > RESCALE_ABOVE);
      if (rescale) raise_max(largest_of);
    }
    exp2_weights<T>(S, P, scale_log2, max, tile_sum);
    if (!looks && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT)) {
      rescale = careful = true;  // from now on
      const float before[2] = {max[0], max[1]};
      float largest_of[2] = {max[0] + lane_max(S, 0), max[1] + lane_max(S, 1)};
      raise_max(largest_of);
      const float more[2] = {max[0] - before[0], max[1] - before[1]};
      exp2_weights<T>(S, P, 1.0f, more, tile_sum);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
};

// Without any key O is 0.
__global__ void __launch_bounds__(128) no_keys(ScoreParams p) {
  const int query = blockIdx.x % p.n_q, head = blockIdx.x / p.n_q % p.heads, sequence = blockIdx.x / p.n_q / p.heads;
  const ForwardParams::Strides& strides = p.O_strides;
  bf16* const O_row = p.O + sequence * strides.batch + head * strides.head + query * strides.row;
  st_global_bf16(O_row + threadIdx.x, to_bf16(0.0f));
  if (p.LSE != nullptr && threadIdx.x == 0)
    st_global_f32(p.LSE + blockIdx.x, p.sinks == nullptr ? -INFINITY : ld_global_f32(p.sinks + head));
}

}  // namespace
