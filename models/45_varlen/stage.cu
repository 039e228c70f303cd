#include <algorithm>

#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// The sequences in the order of the plan, or as they are; and what is there for a head of one.
template <class C>
struct Problem {
  static constexpr int64_t BR = C::BR, BC = C::BC;
  const ladder::Spec& spec;
  bool is_varlen = spec.lens_q.count > 0, is_window = spec.left >= 0 || spec.right > 0;
  bool in_twos = spec.causal && !is_window;
  int order[ladder::Lengths::MOST] = {};

  explicit Problem(const ladder::Spec& spec) : spec(spec) {
    for (int i = 0; is_varlen && i < spec.batch; ++i) order[i] = i;
    const auto work = [&](int s) { return in_twos ? 2 * n_k(s) - ladder::min(n_q(s), n_k(s)) : n_k(s); };
    if (is_varlen) std::stable_sort(order, order + spec.batch, [&](int a, int b) { return work(a) > work(b); });
  }
  int64_t n_q(int s) const { return is_varlen ? spec.lens_q.of[s] : spec.n; }
  int64_t n_k(int s) const { return is_varlen ? spec.lens_k.of[s] : spec.keys(); }
  int64_t q_tiles(int s) const { return (n_q(s) + BR - 1) / BR; }
  int64_t pairs(int s) const { return (q_tiles(s) + 1) / 2; }
  int64_t shares(int s) const { return in_twos ? (pairs(s) + 1) / 2 : pairs(s); }
  int64_t before(int s, int64_t q_tile) const {  // tiles that its first query does not see
    const int64_t query = ladder::min(q_tile * BR, n_q(s) - 1);
    return spec.left >= 0 ? ladder::max<int64_t>(query + n_k(s) - n_q(s) - spec.left, 0) / BC : 0;
  }
  int64_t up_to(int s, int64_t q_tile) const {  // of the last query; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q(s)), right = spec.causal ? 0 : spec.right;
    const int64_t end = right < 0 ? n_k(s) : ladder::min(last + n_k(s) - n_q(s) + right, n_k(s));
    return (ladder::max<int64_t>(end, 1) + BC - 1) / BC;
  }
  int64_t tiles_of_pair(int s, int64_t pair) const { return up_to(s, 2 * pair + 1) - before(s, 2 * pair); }
};

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const Problem<C> problem(spec);
  constexpr int64_t BR = C::BR, BC = C::BC;
  constexpr uint64_t WARPS = C::WARPS;
  if (spec.keys() == 0 && !problem.is_varlen) {
    const uint64_t rows = uint64_t(spec.batch_heads()) * spec.n;
    return {.gmem_accesses = rows * (HEAD_DIM + 1), .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float))};
  }
  // A block computes with the tiles of keys that it sees, and copies half of what its pair needs.
  uint64_t rows = 0, pairs = 0, tiles = 0, copied = 0, copied_rows = 0, ints = 0;
  uint64_t q_rows = 0, stores = 0;  // of a sequence among others nobody asks for a box wholly outside
  for (int s = 0; s < spec.batch; ++s) {
    rows += spec.heads * problem.n_q(s);
    pairs += spec.heads * problem.pairs(s);
    const int64_t q_tiles = 2 * problem.pairs(s), outside = q_tiles - problem.q_tiles(s);
    q_rows += spec.heads * (problem.n_q(s) + (problem.is_varlen ? outside : 0));
    stores += 2 * spec.heads * (problem.is_varlen ? (problem.n_q(s) + 15) / 16 : q_tiles * int64_t{WARPS});
    for (int64_t q_tile = 0; q_tile < q_tiles; ++q_tile) {
      const int64_t from = problem.before(s, q_tile & ~1), to = problem.up_to(s, q_tile | 1);
      tiles += spec.heads * (problem.up_to(s, q_tile) - problem.before(s, q_tile));
      copied += spec.heads * (to - from);
      copied_rows += spec.heads * (ladder::max<int64_t>(ladder::min(to * BC, problem.n_k(s)), 1) - from * BC);
    }
  }
  const int64_t most =
      spec.batch_heads() * (problem.in_twos ? ((spec.n + BR - 1) / BR + 3) / 4 : ((spec.n + BR - 1) / BR + 1) / 2);
  const int64_t clusters = ladder::min<int64_t>(most, spec.multiprocessors / 2), blocks = 2 * clusters;
  uint64_t
      unwritten = INT64_MAX,
      idle =
          0;  // bytes of the block that leaves fewest; second blocks whose tiles all lie outside, and all without work
  uint64_t busiest = 0;  // tiles of the block that computes most
  for (int64_t cluster = 0; cluster < clusters; ++cluster) {
    uint64_t rounds = 0, kv_tiles = 0, own[2] = {};
    bool works = false;
    int64_t up_to = 0, position = -1, before = 0;
    for (int64_t deal = 0;; ++deal) {
      const int64_t number = deal * clusters + (problem.is_varlen && deal % 2 == 1 ? clusters - 1 - cluster : cluster);
      while (number >= up_to && ++position < spec.batch) {
        before = up_to;
        up_to += spec.heads * problem.shares(problem.order[position]);
      }
      if (position == spec.batch) break;
      const int s = problem.order[position];
      const int64_t low = (number - before) % problem.shares(s), high = problem.pairs(s) - 1 - low;
      for (const int64_t pair : {low, high}) {
        ++rounds;
        kv_tiles += problem.tiles_of_pair(s, pair);
        for (int64_t rank = 0; rank < 2; ++rank)
          own[rank] += problem.up_to(s, 2 * pair + rank) - problem.before(s, 2 * pair + rank);
        works |= 2 * pair + 1 < problem.q_tiles(s);
        if (!problem.in_twos || high == low) break;
      }
    }
    idle += rounds == 0 ? 2 : !works;
    busiest = ladder::max(busiest, ladder::max(own[0], own[1]));
    unwritten = ladder::min<uint64_t>(unwritten, ((2 - ladder::min<uint64_t>(2, rounds)) * BR +
                                                  2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles))) *
                                                         ROW_BYTES +
                                                     (rounds == 0 ? Work::WORDS * 4 : 0));
  }
  if (problem.is_varlen) {
    // The plan's: lengths and begins. Two threads of a cluster read it, and all that store log-sum-exps the number of rows.
    const uint64_t lengths = problem.in_twos ? 4 : 2, batch = spec.batch;
    ints = batch * (lengths + 6 + batch * lengths + (batch + 1)) + 10 * clusters * batch + pairs * 2 * WARPS * 32;
  }
  const uint64_t q_warps = 2 * pairs * WARPS;
  const ladder::Walk walk{.tiles = uint64_t(spec.keys() + BC - 1) / BC,
                          .stages = C::STAGES,
                          .qk = HEAD_DIM / 16,
                          .pv = BC / 16,
                          .late_queries = true};
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
      .wgmma_under_loads =
          spec.causal || problem.is_window || problem.is_varlen ? 0 : 2 * WARPS / 4 * under_loads(walk, most, clusters),
      .products_of_busiest_block = busiest * WARPS / 4 * (walk.qk + walk.pv),
      .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = tiles * WARPS,           // whether anything has to be rescaled
      .votes_on_scores = problem.is_window ? 0 : q_warps,       // in the first tile, and where a warp is careful
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
      .exponentials_under_stores =
          problem.is_varlen ? 0 : (q_warps - blocks * WARPS) * 2 * (BC / 2 + 2),  // those of the next first tile
      .barriers = 2 * blocks + q_warps / 4,            // of the cluster, and one of a warpgroup
      .bulk_copies = 4 * pairs + 2 * copied + stores,  // panels of Q, of K and V, of a warp's O
      .gmem_accesses = rows + ints + (problem.is_varlen ? 5 * spec.batch : 0),  // the log-sum-exps
      .gmem_bytes_read = (q_rows + copied_rows) * ROW_BYTES + ints * sizeof(int),
      .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)) + (problem.is_varlen ? 5 * sizeof(int) * spec.batch : 0),
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = unwritten,  // the second Q, and stages
      .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const Problem<C> problem(spec);
  uint64_t q_warps = 0;
  for (int i = 0; i < spec.batch; ++i) q_warps += spec.heads * problem.pairs(i) * 2 * C::WARPS;
  return {.votes = q_warps * (spec.keys() / C::BC + 1),  // where a warp looks first, one more
          .exponentials = q_warps * 16 * C::BC,
          .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::VARLEN,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.most_per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = most_of_data<C>;
  rest.workspace_bytes = [](const ladder::Shape& spec) {
    return spec.lens_q.count > 0 ? spec.batch * sizeof(Sequence) : uint64_t{0};
  };
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "45_varlen",
    .previous = "44_told",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Two ideas that need each other: a plan that deals out sequences of many lengths, and tensor maps "
                   "over all of them."},
    .idea = "Sequences of several lengths lie one behind the other, and a launch takes them all, those with most work "
            "first.",
    .limit = "All sequences of a batch have one length. Shorter ones are padded, and padding is copied and computed.",
    .prediction =
        "In turns, over FlashAttention-3 in bf16, 16 heads, ten sequences of 37, 577, 1024, 4932, 113, 8192, 2042, "
        "501, 3771 and 127 tokens: 1.12 dense, 1.08 causal. Shares dealt to and fro leave the busiest cluster 0.7 % "
        "above the mean, and causal, where they are fewer and larger, 5.4 %; tiles that are not full cost under 2 %. "
        "Where all sequences have one length the rate is 44's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
