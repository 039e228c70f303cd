#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// And weights are packed beside the PV before.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  ladder::Counts counts = ladder::hopper::of_blocks<C>(shape);
  counts.packs_beside_products = ladder::hopper::packed_weights<C>(counts);
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {// and the tile's weights are made again
                      .shuffles = 2 * 2,
                      .exponentials = 2 * 32 + 16 * C::BC,
                      .corrections_at_rest = 32};
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "26_nomax",
    .previous = "25_twice",
    .role = ladder::Role::line,
    .idea = "Weights are made against the old maximum, unseen; their sum tells if it was too low, and the tile is done "
            "again.",
    .limit = "Each lane looks for the largest of its scores in every tile before it may take the first exponential.",
    .prediction = "+5 % to +7 %: a maximum for every two scores is a quarter of what the softmax issues, and it stands "
                  "before all the rest. Where scores keep growing it loses: such a tile costs its exponentials twice.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
