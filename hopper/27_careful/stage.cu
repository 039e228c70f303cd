#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// And weights are packed beside the PV before.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  ladder::Counts counts = ladder::hopper::of_blocks<C>(shape);
  counts.packs_beside_products = ladder::hopper::packed_weights<C>(counts);
  counts.votes_on_scores = counts.yes_votes;  // in the first tile, and where a warp is careful
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
    .name = "27_careful",
    .previous = "26_nomax",
    .role = ladder::Role::branch,
    .idea = "After a surprise a warp looks for the maximum of each tile before it makes weights, for the rest of its "
            "queries.",
    .limit = "Where a maximum has grown by much, it often grows again, and each time a tile's weights are made twice.",
    .prediction = "-1 % to 0 % on normal inputs: a branch more. On peaky ones most of what making weights twice has "
                  "cost comes back.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
