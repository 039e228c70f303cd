#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<bf16>(std::move(rest),
                                       ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false>>,
                                 ladder::models::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "54_softcap",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A second way to make weights, beside the one that it must fall back on; and ALiBi goes, for a "
                   "shorter kernel."},
    .idea = "Where the scores of a tile are small beside the cap, tanh is a polynomial of degree 3, and the weights "
            "are made of the products at once.",
    .limit = "A softcap takes a tanh of each score, from the unit that makes the exponentials, and before the first of "
             "them.",
    .prediction = "In turns, in bf16, causal, 16 heads, n = 8192, a softcap of 50: 0.90 to 0.97 of the same rung's "
                  "rate without, where 48 has 0.68. Per score the polynomial takes three instructions more than the "
                  "factor and the maximum did, and the look at it half a one; a warp's 64 take 450 clocks to issue "
                  "then, and its exponentials 512, so these are what it waits for, as without a softcap. But the "
                  "instructions take power. Without a softcap the rate is 48's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 24,
                   .reason = "With a softcap the warps that multiply keep up to six registers in memory; without one, "
                             "and without a mask, the thread that copies keeps four numbers of its schedule there."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
