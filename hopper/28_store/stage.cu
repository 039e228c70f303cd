#include "harness/stages/stage.hpp"
#include "harness/stages/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  const ladder::Walk walk{.tiles = uint64_t(shape.n / BC), .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16};
  return {.wgmma = pairs * (HEAD_DIM / 16 + BC / 16),             // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - warps / 4) * (BC / 16),  // PV of each tile but the last, beside a softmax
          .wgmma_beside_exponentials = (pairs - warps / 4) * (BC / 16),  // all of them
          .wgmma_under_loads = WARPS / 4 * under_loads(walk, blocks, blocks),
          .shuffles = warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = warp_tiles,            // whether anything has to be rescaled
          .votes_on_scores = warps,       // in the first tile, and where a warp is careful
          .yes_votes = warps,             // in the first tile
          .exponentials = (warp_tiles * BC + warps * 4) * 16,             // weights; the corrections of the first tile
          .packs_beside_products = (warp_tiles - warps) * 32 * (BC / 4),  // weights, beside the PV before
          .barriers = blocks * (1 + WARPS / 4),                           // and one of a warpgroup, named
          .bulk_copies = blocks + 2 * tiles + 2 * warps,                  // Q; K and V; a warp's O, of two panels
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES,
          .unused_smem_bytes = uint64_t(ladder::max<int64_t>(0, C::STAGES - shape.n / C::BC)) * 2 * BC * ROW_BYTES};
}

// A warp may make the weights of one tile twice, and is careful from then on.
template <class C>
ladder::Counts most_of_data(const ladder::Launched& shape) {
  const uint64_t q_tiles = shape.batch_heads() * shape.n / C::BR;
  return {.exponentials = q_tiles * C::WARPS * 16 * C::BC};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = most_of_data<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "28_store",
    .previous = "27_careful",
    .role = ladder::Role::branch,
    .idea = "O goes through shared memory on its way out: stmatrix lays out a warp's rows, and the copy engine stores "
            "them.",
    .limit = "Each lane writes O in stores of 4 bytes, each of which touches eight rows.",
    .prediction = "0 % to +1 % at n = 8192, where storing is one part in 64 of a block's work.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
