#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const uint64_t rows = uint64_t(spec.batch_heads()) * spec.n;
  if (spec.keys() == 0)
    return {.gmem_accesses = rows * (HEAD_DIM + 1), .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float))};
  constexpr int64_t BR = C::BR, BC = C::BC;
  constexpr uint64_t WARPS = C::WARPS;
  const int64_t n_q = spec.n, n_k = spec.keys(), heads = spec.batch_heads();
  const int64_t q_tiles = (n_q + BR - 1) / BR, pairs = (q_tiles + 1) / 2;
  const auto keys = [&](int64_t q_tile) {  // of the last query of a tile; of one that sees none, the first, masked
    const int64_t last = ladder::min((q_tile + 1) * BR, n_q);
    return spec.causal ? ladder::max<int64_t>(last + n_k - n_q, 1) : n_k;
  };
  const auto tiles_of_pair = [&](int64_t pair) { return (keys(ladder::min(2 * pair + 1, q_tiles - 1)) + BC - 1) / BC; };
  // A block computes with the tiles of keys up to its own, and copies half of what the later one of its pair needs.
  uint64_t tiles = 0, copied = 0, copied_rows = 0;
  for (int64_t q_tile = 0; q_tile < 2 * pairs; ++q_tile) {
    const int64_t kv_tiles = tiles_of_pair(q_tile / 2);
    tiles += heads * ((keys(ladder::min(q_tile, q_tiles - 1)) + BC - 1) / BC);
    copied += heads * kv_tiles;
    copied_rows += heads * ladder::min(kv_tiles * BC, n_k);
  }
  const uint64_t shares = heads * (spec.causal ? (pairs + 1) / 2 : pairs);  // two pairs or one
  const uint64_t clusters = ladder::min<uint64_t>(shares, spec.multiprocessors / 2), blocks = 2 * clusters;
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
        for (int64_t rank = 0; rank < 2; ++rank)
          own[rank] += (keys(ladder::min<int64_t>(2 * pair + rank, q_tiles - 1)) + BC - 1) / BC;
        works |= 2 * pair + 1 < uint64_t(q_tiles);
        if (!spec.causal || high == low) break;
      }
    }
    idle += !works;
    busiest = ladder::max(busiest, ladder::max(own[0], own[1]));
    unwritten = ladder::min<uint64_t>(
        unwritten,
        ((rounds < 2 ? BR : 0) + 2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, kv_tiles))) * ROW_BYTES);
  }
  const uint64_t q_warps = heads * 2 * pairs * WARPS;
  const ladder::Walk walk{.tiles = uint64_t(spec.keys() + BC - 1) / BC,
                          .stages = C::STAGES,
                          .qk = HEAD_DIM / 16,
                          .pv = BC / 16,
                          .late_queries = true};
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
      .wgmma_under_loads = spec.causal ? 0 : 2 * WARPS / 4 * under_loads(walk, shares, clusters),
      .products_of_busiest_block = busiest * WARPS / 4 * (walk.qk + walk.pv),
      .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = tiles * WARPS,           // whether anything has to be rescaled
      .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
      .yes_votes = q_warps,             // in the first tile
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
      .exponentials_under_stores = (q_warps - blocks * WARPS) * 2 * (BC / 2 + 2),  // those of the next first tile
      .barriers = 2 * blocks + q_warps / 4,                                   // of the cluster, and one of a warpgroup
      .bulk_copies = 4 * uint64_t(heads) * pairs + 2 * copied + 2 * q_warps,  // panels of Q, of K and V, of a warp's O
      .gmem_accesses = rows,                                                  // the log-sum-exps
      .gmem_bytes_read = (rows + copied_rows) * ROW_BYTES,
      .gmem_bytes_written = rows * (ROW_BYTES + sizeof(float)),
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = unwritten,  // the second Q, and stages
      .idle_blocks = idle};
}

// A warp may make the weights of one tile twice for each of its tiles of queries. O is corrected at rest before the last product alone.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& spec) {
  const uint64_t q_warps = spec.batch_heads() * (((spec.n + C::BR - 1) / C::BR + 1) / 2) * 2 * C::WARPS;
  return {.exponentials = q_warps * 16 * C::BC, .corrections_at_rest = q_warps * 32};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = most_of_data<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, Mask::none>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "42_grouped",
    .previous = "41_rows",
    .role = ladder::Role::branch,
    .idea = "Heads of queries side by side share a head of keys and values, which the L2 cache then brings once for "
            "all of them.",
    .limit = "Each head of queries has keys and values of its own. Models keep four to eight times fewer of these.",
    .prediction =
        "The same rate as 41 where each head has its own keys. In turns, over FlashAttention-3 in bf16, dense and "
        "causal: 1.10 and 1.05 with 32 heads over 8 at n = 4096, 1.10 and 1.09 at 16384, 1.10 and 1.08 with 64 "
        "over 8, twice, at 8192. Sharing makes nothing faster but what memory holds: the kernel waits for "
        "products, not for K and V, so the rate is that of as many heads of keys, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
