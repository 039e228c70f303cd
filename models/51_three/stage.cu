#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys; shuffles per warp and tile of queries.
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
  const bool in_twos = spec.causal && spec.left < 0 && spec.right <= 0 && !(spec.softcap > 0 && spec.alibi);
  const int64_t q_tiles = (n_q + BR - 1) / BR;
  const auto before = [&](int64_t q_tile) {  // tiles that its first query does not see
    const int64_t query = ladder::min(q_tile * BR, n_q - 1);
    return spec.left >= 0 ? ladder::max<int64_t>(query + n_k - n_q - spec.left, 0) / BC : 0;
  };
  const auto up_to = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q), right = spec.causal ? 0 : spec.right;
    return (right < 0 ? n_k + BC - 1 : ladder::min(ladder::max<int64_t>(last + n_k - n_q + right, 1), n_k) + BC - 1) /
           BC;
  };
  const auto kv_tiles_of = [&](int64_t q_tile) { return up_to(q_tile) - before(q_tile); };
  uint64_t tiles = 0, copied_rows = 0;
  for (int64_t q_tile = 0; q_tile < q_tiles; ++q_tile) {
    tiles += heads * kv_tiles_of(q_tile);
    copied_rows += heads * (ladder::min(up_to(q_tile) * BC, n_k) - before(q_tile) * BC);
  }
  const uint64_t shares = heads * (in_twos ? (q_tiles + 1) / 2 : q_tiles);  // two tiles of queries or one
  const uint64_t blocks = ladder::min<uint64_t>(shares, spec.multiprocessors);
  constexpr ladder::Walk WALK{.stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16, .late_queries = true};
  uint64_t unwritten = INT64_MAX;         // bytes of the block that leaves fewest
  uint64_t busiest = 0, under_loads = 0;  // tiles of the block that computes most; products of all blocks
  for (uint64_t block = 0; block < blocks; ++block) {
    ladder::UnderLoads loads(WALK);
    uint64_t rounds = 0, kv_tiles = 0;
    for (uint64_t share = block; share < shares; share += blocks) {
      const int64_t per_head = shares / heads, low = share % per_head, high = q_tiles - 1 - low;
      for (const int64_t q_tile : {in_twos ? high : low, low}) {  // the longer one first
        ++rounds;
        kv_tiles += kv_tiles_of(q_tile);
        loads.round(kv_tiles_of(q_tile));
        if (!in_twos || high == low) break;
      }
    }
    busiest = ladder::max(busiest, kv_tiles);
    under_loads += loads.sum;
    unwritten = ladder::min<uint64_t>(
        unwritten, (rounds < 2 ? BR : 0) * ROW_BYTES +
                       2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles)) * ROW_BYTES);
  }
  const uint64_t q_warps = heads * q_tiles * WARPS;
  // A head's slope and its sink, for each tile of queries; a tanh for each score.
  const uint64_t numbers = heads * q_tiles * (spec.alibi + spec.sink);
  const uint64_t functions = spec.softcap > 0 ? tiles * WARPS * BC * 16 : 0;
  return {.wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
          .wgmma_under_loads = WARPS / 4 * under_loads,
          .products_of_busiest_block = busiest * WARPS / 4 * (WALK.qk + WALK.pv),
          .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = tiles * WARPS,           // whether anything has to be rescaled
          .votes_on_scores = spec.left >= 0 || spec.right > 0 || spec.softcap > 0
                                 ? 0
                                 : q_warps,  // in the first tile, and where a warp is careful
          .exponentials =
              (tiles * WARPS * BC + q_warps * 4) * 16 + functions,  // weights; the corrections of the first tile
          .exponentials_under_stores =
              spec.softcap > 0 ? 0 : (q_warps - blocks * WARPS) * (BC / 2 + 2),  // those of the next first tile
          .barriers = blocks + q_warps / 4,                                      // of the block, and one of a warpgroup
          .bulk_copies = uint64_t(heads) * q_tiles + 2 * tiles + q_warps,        // of Q, of K and V, of a warp's O
          .gmem_accesses = rows + numbers,                                       // the log-sum-exps
          .gmem_bytes_read = (rows + 2 * copied_rows) * ROW_BYTES + numbers * sizeof(float),
          .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
          .unused_smem_bytes = unwritten};  // the second Q, and stages
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const uint64_t q_warps = spec.batch_heads() * ((spec.n + C::BR - 1) / C::BR) * C::WARPS;
  return {.votes = q_warps * (spec.keys() / C::BC + 1),  // where a warp looks first, one more
          .exponentials = q_warps * 16 * C::BC,
          .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK,
                  .min_d = HEAD_DIM,
                  .max_d = HEAD_DIM,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.most_per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "51_three",
    .previous = "49_d64",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "A block of three warpgroups works alone, so all that two blocks of a cluster said to each other goes, too."},
    .idea = "A third warpgroup of queries: while one multiplies, two make exponentials.",
    .limit = "Half as wide a tile has half of the products and all of the exponentials, and two warpgroups wait for "
             "each other.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n = 1024 0.98, 4096 "
                  "1.05, 16384 1.07, "
                  "within 4 %. A tile of 128 x 128 takes 1640 clocks at n = 16384, where 49 takes 2150: products and "
                  "exponentials take 1024 "
                  "each, and of three warpgroups one is mostly multiplying. At n = 1024 a sixth tile of 192 queries is "
                  "two thirds empty.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<192, 128, 12, 4>>()},
});

}  // namespace
