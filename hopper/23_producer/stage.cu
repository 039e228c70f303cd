#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.corrections_at_rest = 32};
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::hopper::with_maxima<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "23_producer",
    .previous = "22_overlap",
    .role = ladder::Role::line,
    .idea = "A third warpgroup does nothing but ask for tiles, and gives its registers to the two that multiply.",
    .limit = "A thread that multiplies asks for tiles too, and its warpgroup waits when a stage is not yet empty.",
    .prediction = "+5 % to +10 %: a warpgroup that multiplies never waits for the other one any more, so that the two "
                  "drift apart, one in its softmax while the other multiplies.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
