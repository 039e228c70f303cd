#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  ladder::Counts counts = ladder::models::predict<C, HEAD_DIM>(spec);
  counts.wgmma += ladder::models::walks<C>(spec).tiles * C::WARPS / 4 * spec.alibi;  // the slope is one more slice of d
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.from_first_key = false;
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "55_slopes",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Two ideas: the tensor cores add the slope, and a row begins at its own key; and the other "
                   "functions of scores go."},
    .idea = "The tensor cores add ALiBi's slope to the scores, and a row begins at its own key, where the slope leaves "
            "most.",
    .limit = "A function changes every score, and since near keys come last, tile by tile the maximum rises and O is "
             "scaled again.",
    .prediction = "In turns, in bf16, causal, 16 heads, n = 8192, with ALiBi over the same rung without: 0.94, between "
                  "0.92 and 0.97. A ninth slice of QK is 128 clocks for a tile of 128 x 128 scores, beside the 2625 "
                  "that 48 takes for it: 0.95. A maximum that rises after the first tiles is none at all, as the "
                  "emulator counts, so nothing else is left of the 1021 clocks that ALiBi costs in 48. Over 48 with "
                  "ALiBi 1.31. Without ALiBi the rate is 48's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 208 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 40,
                   .reason = "The thread that copies has 24 registers, and keeps numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
