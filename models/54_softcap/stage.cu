#include <algorithm>

#include "common/emulator/emulator.hpp"
#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const uint64_t rows = uint64_t(spec.batch_heads()) * spec.n;
  if (spec.keys() == 0) {
    const uint64_t sinks = spec.sink ? rows : 0;
    return {.gmem_accesses = rows * (HEAD_DIM + 1) + sinks,
            .gmem_bytes_read = sinks * sizeof(float),
            .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float))};
  }
  constexpr int64_t BR = C::BR, BC = C::BC;
  constexpr uint64_t WARPS = C::WARPS;
  const int64_t n_q = spec.n, n_k = spec.keys(), heads = spec.batch_heads();
  const bool is_window = spec.left >= 0 || spec.right > 0, in_twos = spec.causal && !is_window;
  const bool is_alone = is_window || (!spec.causal && spec.softcap > 0);
  const int64_t together = is_alone ? 1 : C::BLOCKS;  // blocks that share K and V
  const int64_t q_tiles = (n_q + BR - 1) / BR, pairs = (q_tiles + together - 1) / together;
  const auto before = [&](int64_t q_tile) {  // tiles that its first query does not see
    const int64_t query = std::min(q_tile * BR, n_q - 1);
    return spec.left >= 0 ? std::max<int64_t>(query + n_k - n_q - spec.left, 0) / BC : 0;
  };
  const auto up_to = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = std::min((q_tile + 1) * BR, n_q), right = spec.causal ? 0 : spec.right;
    return (right < 0 ? n_k + BC - 1 : std::clamp<int64_t>(last + n_k - n_q + right, 1, n_k) + BC - 1) / BC;
  };
  const auto tiles_of_pair = [&](int64_t pair) { return up_to(together * (pair + 1) - 1) - before(together * pair); };
  // Of them the first one, and those with a mask: where a softcap is changed before the weights are made.
  const auto edges = [&](int64_t q_tile) {
    const int64_t first = q_tile * BR, last = std::min(first + BR, n_q) - 1, right = spec.causal ? 0 : spec.right;
    const int64_t begin =
        !is_alone || spec.left < 0 ? is_alone : std::max<int64_t>(last + n_k - n_q - spec.left, 0) / BC + 1;
    const int64_t end = (right < 0 ? n_k : std::min(first + 1 + n_k - n_q + right, n_k)) / BC;
    uint64_t count = 0;
    for (int64_t tile = before(q_tile); tile < up_to(q_tile); ++tile)
      count += tile == before(q_tile) || tile < begin || tile >= end;
    return count;
  };
  // A block computes with the tiles of keys that it sees, and copies half of what its pair needs, or alone all.
  uint64_t tiles = 0, changed = 0, copied = 0, copied_rows = 0;
  for (int64_t q_tile = 0; q_tile < together * pairs; ++q_tile) {
    const int64_t first = q_tile / together * together;
    tiles += heads * (up_to(q_tile) - before(q_tile));
    if (spec.softcap > 0) changed += heads * edges(q_tile);
    copied += heads * tiles_of_pair(q_tile / together);
    copied_rows += heads * (std::min(up_to(first + together - 1) * BC, n_k) - before(first) * BC);
  }
  const uint64_t shares = heads * (in_twos ? (pairs + 1) / 2 : pairs);  // two pairs or one
  const uint64_t clusters = std::min<uint64_t>(shares, spec.multiprocessors / together), blocks = together * clusters;
  uint64_t unwritten = INT64_MAX,
           idle = 0;     // bytes of the block that leaves fewest; second blocks whose tiles all lie outside
  uint64_t busiest = 0;  // tiles of the block that computes most
  for (uint64_t cluster = 0; cluster < clusters; ++cluster) {
    uint64_t rounds = 0, kv_tiles = 0, own[2] = {};
    bool works = false;
    for (uint64_t share = cluster; share < shares; share += clusters) {
      const int64_t per_head = shares / heads, low = share % per_head, high = pairs - 1 - low;
      for (const uint64_t pair : {low, high}) {
        ++rounds;
        kv_tiles += tiles_of_pair(pair);
        for (int64_t rank = 0; rank < together; ++rank)
          own[rank] += up_to(together * pair + rank) - before(together * pair + rank);
        works |= together * (pair + 1) - 1 < uint64_t(q_tiles);
        if (!in_twos || high == low) break;
      }
    }
    idle += !works;
    busiest = std::max({busiest, own[0], own[1]});
    unwritten = std::min<uint64_t>(
        unwritten,
        ((rounds < 2 ? BR : 0) + 2 * BC * (C::STAGES - std::min<uint64_t>(C::STAGES, kv_tiles))) * ROW_BYTES);
  }
  const uint64_t q_warps = heads * together * pairs * WARPS;
  const uint64_t numbers = heads * together * pairs * spec.sink;  // a head's sink, for each tile of queries
  const ladder::Walk walk{.tiles = uint64_t(spec.keys() + BC - 1) / BC,
                          .stages = C::STAGES,
                          .qk = HEAD_DIM / 16,
                          .pv = BC / 16,
                          .late_queries = true};
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
      .wgmma_under_loads = spec.causal || is_window ? 0 : together * WARPS / 4 * under_loads(walk, shares, clusters),
      .products_of_busiest_block = busiest * WARPS / 4 * (walk.qk + walk.pv),
      .shuffles = q_warps * 2 * 2 * 2,     // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = (tiles + changed) * WARPS,  // whether anything has to be rescaled, or is far
      .votes_on_scores = is_window || spec.softcap > 0 ? 0 : q_warps,  // in the first tile, and where a warp is careful
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,         // weights; the corrections of the first tile
      .exponentials_under_stores =
          spec.softcap > 0 ? 0 : (q_warps - blocks * WARPS) * 2 * (BC / 2 + 2),  // those of the next first tile
      .barriers = (is_alone ? 1 : 2) * blocks + q_warps / 4,  // of the cluster, and one of a warpgroup
      .bulk_copies = 2 * together * uint64_t(heads) * pairs + 4 * copied / together +
                     2 * q_warps,       // panels of Q, of K and V, of a warp's O
      .gmem_accesses = rows + numbers,  // the log-sum-exps
      .gmem_bytes_read = (rows + 2 * copied_rows / together) * ROW_BYTES + numbers * sizeof(float),
      .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = unwritten,  // the second Q, and stages
      .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries, and under a softcap vote twice more on each tile. O is
// corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const bool is_alone = spec.left >= 0 || spec.right > 0 || (!spec.causal && spec.softcap > 0);
  const int64_t together = is_alone ? 1 : C::BLOCKS, q_tiles = (spec.n + C::BR - 1) / C::BR;
  const uint64_t q_warps = spec.batch_heads() * ((q_tiles + together - 1) / together) * together * C::WARPS;
  return {.votes = q_warps * ((spec.keys() + C::BC - 1) / C::BC) * (spec.softcap > 0 ? 3 : 1),
          .exponentials = q_warps * 16 * C::BC,
          .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::SOFTCAP | ladder::SINK,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  // Maxima may rise, or scores of the tile are far under a softcap: one vote more says so of weights in vain, one of a tanh for each.
  rest.most_per_rescale = {.shuffles = 2 * 2, .exponentials = 16 * C::BC + 2 * 32};
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none, Score<false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "54_softcap",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A second way to make weights, beside the one that it must fall back on; and ALiBi goes, for a "
                   "shorter kernel."},
    .idea = "Where the scores of a tile are small beside the cap, tanh is a polynomial of degree 3, and the weights "
            "are made of the products at once.",
    .limit = "A softcap takes a tanh of each score, from the unit that makes the exponentials, and before the first of "
             "them.",
    .prediction =
        "In turns, in bf16, causal, 16 heads, n = 8192, a softcap of 50: 0.90 to 0.97 of the same rung's rate without, "
        "where 48 has 0.68. Per score the polynomial takes three instructions more than the factor and the maximum "
        "did, and the look at it half a one; a warp's 64 take 450 clocks to issue then, and its exponentials 512, so "
        "these are what it waits for, as without a softcap. But the instructions take power. Without a softcap the "
        "rate is 48's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 24,
                   .reason = "With a softcap the warps that multiply keep up to six registers in memory; without one, "
                             "and without a mask, "
                             "the thread that copies keeps four numbers of its schedule there."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
