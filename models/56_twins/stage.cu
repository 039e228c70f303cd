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
  // A pair of blocks takes a tile of queries of each of two heads, or two tiles of one head.
  const bool has_twins = spec.causal && spec.heads / spec.key_heads() % 2 == 0;
  const int64_t in_a_row = has_twins ? 1 : 2, q_tiles = (n_q + BR - 1) / BR,
                pairs = (q_tiles + in_a_row - 1) / in_a_row;
  const auto up_to = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q);
    return ((spec.causal ? ladder::min(ladder::max<int64_t>(last + n_k - n_q, 1), n_k) : n_k) + BC - 1) / BC;
  };
  const auto tiles_of_pair = [&](int64_t pair) { return up_to(in_a_row * (pair + 1) - 1); };
  // A block computes with the tiles of keys that it sees, and copies half of what its pair needs.
  uint64_t tiles = 0, copied = 0, copied_rows = 0;
  for (int64_t q_tile = 0; q_tile < in_a_row * pairs; ++q_tile) {
    const int64_t kv_tiles = tiles_of_pair(q_tile / in_a_row);
    tiles += heads * up_to(q_tile);
    copied += heads * kv_tiles;
    copied_rows += heads * ladder::min(kv_tiles * BC, n_k);
  }
  // Of twins all pairs, one by one; else two pairs of a head, or one.
  const bool in_twos = spec.causal && !has_twins;
  const int64_t lists = has_twins ? heads / 2 : heads, in_list = in_twos ? (pairs + 1) / 2 : pairs;
  const uint64_t shares = lists * in_list;
  const uint64_t clusters = ladder::min<uint64_t>(shares, spec.multiprocessors / 2), blocks = 2 * clusters;
  const int64_t section = ladder::min<int64_t>(ladder::max<int64_t>(4 * clusters / in_list, 1), lists);
  const auto longer_of = [&](int64_t share) {  // pair; of twins the only one, in a list to and fro
    if (!has_twins) return spec.causal ? pairs - 1 - share % in_list : share % in_list;
    const int64_t before = share / (pairs * section) * section, place = share - before * pairs;
    const int64_t sections_left = (lists - before + section - 1) / section;
    const int64_t row = place / ladder::min(section, lists - before);
    return sections_left % 2 == 0 ? row : pairs - 1 - row;
  };
  uint64_t unwritten = INT64_MAX,
           idle = 0;  // bytes of the block that leaves fewest; second blocks whose tiles all lie outside
  constexpr ladder::Walk WALK{.stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16, .late_queries = true};
  uint64_t busiest = 0, under_loads = 0;  // tiles of the block that computes most; products of all blocks
  for (uint64_t cluster = 0; cluster < clusters; ++cluster) {
    ladder::UnderLoads loads(WALK);
    uint64_t rounds = 0, kv_tiles = 0, own[2] = {};
    bool works = false;
    for (uint64_t turn = 0; turn * clusters < shares; ++turn) {
      const uint64_t to_and_fro = turn % 2 == 0 || !has_twins ? cluster : clusters - 1 - cluster;
      const uint64_t share = turn * clusters + to_and_fro;
      if (share >= shares) continue;
      const int64_t longer = longer_of(share), shorter = in_twos ? pairs - 1 - longer : longer;
      for (const int64_t pair : {longer, shorter}) {
        ++rounds;
        kv_tiles += tiles_of_pair(pair);
        loads.round(tiles_of_pair(pair));
        for (int64_t rank = 0; rank < 2; ++rank) own[rank] += up_to(in_a_row * pair + rank * (in_a_row - 1));
        works |= in_a_row * (pair + 1) - 1 < q_tiles;
        if (longer == shorter) break;
      }
    }
    idle += !works;
    busiest = ladder::max(busiest, ladder::max(own[0], own[1]));
    under_loads += 2 * loads.sum;
    unwritten = ladder::min<uint64_t>(
        unwritten,
        ((rounds < 2 ? BR : 0) + 2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles))) * ROW_BYTES);
  }
  const uint64_t q_tiles_done = heads * in_a_row * pairs, q_warps = q_tiles_done * WARPS;
  const uint64_t sinks = spec.sink ? q_tiles_done : 0;                      // read for each tile of queries
  return {.wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
          .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
          .wgmma_under_loads =
              spec.causal ? 0 : WARPS / 4 * under_loads,  // of a pair under a mask one copies for the other
          .products_of_busiest_block = busiest * WARPS / 4 * (WALK.qk + WALK.pv),
          .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = tiles * WARPS,           // whether anything has to be rescaled
          .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
          .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
          .exponentials_under_stores = (q_warps - blocks * WARPS) * 2 * (BC / 2 + 2),  // those of the next first tile
          .barriers = 2 * blocks + q_warps / 4,                  // of the cluster, and one of a warpgroup
          .bulk_copies = 2 * (q_tiles_done + copied + q_warps),  // panels of Q, of K and V, of a warp's O
          .gmem_accesses = rows + sinks,                         // the log-sum-exps
          .gmem_bytes_read = (rows + copied_rows) * ROW_BYTES + sinks * sizeof(float),
          .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
          .multicast_bytes = copied * 2 * BC * ROW_BYTES,
          .unused_smem_bytes = unwritten,  // the second Q, and stages
          .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const uint64_t rows = spec.causal && spec.heads / spec.key_heads() % 2 == 0 ? C::BR : 2 * C::BR;
  const uint64_t q_warps = spec.batch_heads() * ((spec.n + rows - 1) / rows) * rows / 16;
  return {.votes = q_warps * (spec.keys() / C::BC + 1),  // where a warp looks first, one more
          .exponentials = q_warps * 16 * C::BC,
          .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {
      .features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED | ladder::SINK,
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
    .name = "56_twins",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "Pairs share keys and not queries, which turns the walk round; and windows and functions of scores go."},
    .idea =
        "Under a mask two blocks take the same queries of two heads that share keys, and all blocks walk equally far.",
    .limit = "Under a mask one block of a pair sees a tile of keys less than the other and waits for it, and in the "
             "last round half of the clusters have nothing to do.",
    .prediction = "After trials. In turns, on an H100, over 48 in bf16, causal: 1.05 with 32 heads over 8 at n = 4096, "
                  "1.04 at 16384, 1.04 with 64 over 8, twice, at 8192, within 2 %. A pair of tiles of queries is 33 "
                  "tiles of keys there instead of 34, and no cluster stands idle in a half-empty last round: counting "
                  "says 1.055. Without a mask, and with a head of keys for each of queries, 48's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
