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
  const int64_t q_tiles = (n_q + BR - 1) / BR, pairs = (q_tiles + 1) / 2;
  const auto up_to = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q);
    return ((spec.causal ? ladder::min(ladder::max<int64_t>(last + n_k - n_q, 1), n_k) : n_k) + BC - 1) / BC;
  };
  const auto tiles_of_pair = [&](int64_t pair) { return up_to(2 * pair + 1); };
  // A block computes with the tiles of keys that it sees, and copies half of what its pair needs.
  uint64_t tiles = 0, copied = 0, copied_rows = 0, left = 0;  // tiles of queries whose block lets tiles of keys pass
  for (int64_t q_tile = 0; q_tile < 2 * pairs; ++q_tile) {
    const int64_t kv_tiles = tiles_of_pair(q_tile / 2);
    tiles += heads * up_to(q_tile);
    copied += heads * kv_tiles;
    left += heads * (up_to(q_tile) < kv_tiles);
    copied_rows += heads * ladder::min(kv_tiles * BC, n_k);
  }
  const uint64_t shares = heads * (spec.causal ? (pairs + 1) / 2 : pairs);  // two pairs or one
  const uint64_t clusters = ladder::min<uint64_t>(shares, spec.multiprocessors / 2), blocks = 2 * clusters;
  constexpr ladder::Walk WALK{
      .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16, .early_queries = true, .queries = 1};
  uint64_t unwritten = INT64_MAX,
           idle = 0;  // bytes of the block that leaves fewest; second blocks whose tiles all lie outside
  uint64_t busiest = 0, under_loads = 0;  // tiles of the block that computes most; products of all blocks
  uint64_t later = 0;                     // tiles of keys, but for those of a block's first queries
  for (uint64_t cluster = 0; cluster < clusters; ++cluster) {
    ladder::UnderLoads loads(WALK);
    uint64_t kv_tiles = 0, own[2] = {};
    bool works = false;
    for (uint64_t share = cluster; share < shares; share += clusters) {
      const int64_t per_head = shares / heads, low = share % per_head, high = spec.causal ? pairs - 1 - low : low;
      for (const uint64_t pair : {high, low}) {  // the longer one first
        kv_tiles += tiles_of_pair(pair);
        loads.round(tiles_of_pair(pair));
        for (int64_t rank = 0; rank < 2; ++rank) {
          if (own[rank] > 0) later += up_to(2 * pair + rank);
          own[rank] += up_to(2 * pair + rank);
        }
        works |= 2 * pair + 1 < uint64_t(q_tiles);
        if (high == low) break;
      }
    }
    idle += !works;
    busiest = ladder::max(busiest, ladder::max(own[0], own[1]));
    under_loads += 2 * loads.sum;
    unwritten =
        ladder::min<uint64_t>(unwritten, 2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles)) * ROW_BYTES);
  }
  const uint64_t q_warps = heads * 2 * pairs * WARPS;
  const uint64_t sinks = spec.sink ? heads * 2 * pairs : 0;  // read for each tile of queries
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_under_loads =
          spec.causal ? 0 : WARPS / 4 * under_loads,  // of a pair under a mask one copies for the other
      .products_of_busiest_block = busiest * WARPS / 4 * (WALK.qk + WALK.pv),
      .products_under_copies = later * WARPS * (WALK.qk + WALK.pv) * PANELS / 2,  // the last two panels of a warp's O
      .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = tiles * WARPS,           // whether anything has to be rescaled
      .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
      .barriers = 2 * blocks + left * WARPS / 4,  // of the cluster, and of a warpgroup that lets tiles pass
      .bulk_copies =
          PANELS * (2 * uint64_t(heads) * pairs + copied + q_warps),  // panels of Q, of K and V, of a warp's O
      .gmem_accesses = rows + sinks,                                  // the log-sum-exps
      .gmem_bytes_read = (rows + copied_rows) * ROW_BYTES + sinks * sizeof(float),
      .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = unwritten,  // stages
      .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const uint64_t q_warps = spec.batch_heads() * (((spec.n + C::BR - 1) / C::BR + 1) / 2) * 2 * C::WARPS;
  return {.votes = q_warps * (spec.keys() / C::BC + 1),  // where a warp looks first, one more
          .exponentials = q_warps * 16 * C::BC,
          .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {
      .features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED | ladder::SINK,
      .min_d = HEAD_DIM,
      .max_d = HEAD_DIM,
      .q = ladder::Element::bf16,
      .kv = ladder::Element::bf16,
      .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.most_per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "57_room",
    .previous = "53_d256",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Rings of half as large stages, so that O has room; and windows and functions of scores go."},
    .idea = "O has a place of its own, so the next Q is asked for as soon as the last product has read this one.",
    .limit = "O leaves from the place of Q, and only then the next Q comes. Meanwhile nobody multiplies.",
    .prediction =
        "After trials. In turns, on an H100, over 53 in bf16, 8 heads, batch * n = 16384: at n = 1024 1.05 "
        "dense and 1.06 causal, at 4096 1.02 and 1.04, at 16384, dense, 1.00, within 2 %. At n = 1024 a tile "
        "of queries takes 44000 clocks, and its sixteen tiles of keys at their usual rate 34000. Of the 10000 "
        "between, Q's way is a fifth.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 224 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 64, 8, 2>>()},
});

}  // namespace
