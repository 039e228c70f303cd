#include "harness/stages/stage.hpp"
#include "harness/stages/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const auto [q_tiles, pairs, heads, tiles, copied, shares, clusters, blocks, rounds, idle] =
      ladder::coupled(shape, BR);
  const uint64_t q_warps = heads * 2 * pairs * WARPS;
  const ladder::Walk walk{.tiles = q_tiles, .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16};
  return {.wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
          .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
          .wgmma_under_loads = shape.causal ? 0 : 2 * WARPS / 4 * under_loads(walk, shares, clusters),
          .products_of_busiest_block = WARPS / 4 * products_of_busiest(walk, heads, clusters, shape.causal),
          .products_under_copies =
              (heads * pairs - clusters) * 2 * WARPS * 2 * (HEAD_DIM / 16),  // QK, under O's two panels
          .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = tiles * WARPS,           // whether anything has to be rescaled
          .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
          .yes_votes = q_warps,             // in the first tile
          .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
          .packs_beside_products = (tiles * WARPS - q_warps) * 32 * (BC / 4),  // weights, beside the PV before
          .barriers = 2 * blocks + q_warps / 4,                                // of the cluster, and one of a warpgroup
          .bulk_copies = heads * 2 * pairs + 2 * copied + 2 * q_warps,  // Q; a panel of K and V; two of a warp's O
          .gmem_bytes_read = (heads * q_tiles * BR + copied * BC) * ROW_BYTES,
          .gmem_bytes_written = heads * q_tiles * BR * ROW_BYTES,
          .multicast_bytes = copied * 2 * BC * ROW_BYTES,
          .unused_smem_bytes = ((rounds < 2 ? BR : 0) +  // the second Q, and stages
                                2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, rounds * q_tiles))) *
                               ROW_BYTES,
          .idle_blocks = idle};
}

// A warp may make the weights of one tile twice, and is careful from then on.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& shape) {
  const uint64_t q_tiles = shape.batch_heads() * ((shape.n / C::BR + 1) / 2) * 2;
  return {.exponentials = q_tiles * C::WARPS * 16 * C::BC};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = most_of_data<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "32_drain",
    .previous = "31_masked",
    .role = ladder::Role::variant,
    .idea = "A warp waits for its O to leave shared memory when the first product of its next queries runs already.",
    .limit = "Between two tiles of queries a warp waits until the copy engine has read its O, and no product of its "
             "warpgroup runs.",
    .prediction = "Up to 4 % at n = 512, where a head has four tiles of keys; 1 % at n = 2048, nothing at n = 8192. "
                  "No count changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
