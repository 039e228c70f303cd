#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::past_fa2::rescaled<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "09_rescale",
    .previous = "08_fragorder",
    .role = ladder::Role::line,
    .idea = "O is rescaled only when a maximum has grown by a factor of 2^8, and the weights are made just before PV.",
    .limit = "08 multiplies all 128 accumulators of a lane by a correction that is 1 in nearly every tile, before PV "
             "may begin.",
    .prediction = "Written after trials of its two halves, which alone were worth 0 % and -4 %. Together +5 % to +8 %: "
                  "the branch ends the softmax, and what follows it is weights and products only, which ptxas can mix.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 16, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<128, 64, 4>>()},
});

}  // namespace
