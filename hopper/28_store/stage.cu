#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// A warpgroup has a barrier of its own, named, and a warp copies its O, two panels: nobody stores by lanes.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  ladder::Counts counts = ladder::hopper::of_blocks<C>(shape);
  counts.packs_beside_products = ladder::hopper::packed_weights<C>(counts);
  counts.votes_on_scores = counts.yes_votes;  // in the first tile, and where a warp is careful
  counts.barriers *= 1 + C::WARPS / 4;
  counts.bulk_copies += 2 * counts.yes_votes;
  counts.gmem_accesses = counts.gmem_sectors = 0;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = ladder::hopper::tile_made_twice<C>;
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
