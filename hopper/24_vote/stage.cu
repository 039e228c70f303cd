#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::hopper::of_blocks<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "24_vote",
    .previous = "23_producer",
    .role = ladder::Role::branch,
    .idea =
        "A lane compares its own scores with the row's maximum; lanes exchange maxima only when one has outgrown it.",
    .limit = "The four lanes of a row exchange their maxima in every tile, though hardly ever is one of them new.",
    .prediction = "+3 % to +6 %: the exchanges wait for one another, and the exponentials for them, while a warp has "
                  "little else to issue. Where maxima keep growing, nothing: then all is done as before.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
