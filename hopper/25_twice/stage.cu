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
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "25_twice",
    .previous = "24_vote",
    .role = ladder::Role::branch,
    .idea = "A lane has two sets of weights, so that one is packed while PV still reads the other.",
    .limit =
        "Weights stay in S until PV of the tile before is done, and are packed while no product of the warpgroup runs.",
    .prediction = "0 % to +2 %: packing is a small part of the softmax, and the other warpgroup covers most of it. But "
                  "scores stay in S until they are no longer needed, which is what the next rung is about.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
