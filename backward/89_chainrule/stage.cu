#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  ladder::Counts counts = ladder::backward::predict<C, C::HEAD_DIM>(shape);
  if (shape.sink) counts.barriers += shape.batch_heads();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::scores<C, Sequence>(std::move(rest));
  return ladder::make_variant<C>(run<C>, gradients<C, false, Score<true>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "89_chainrule",
    .previous = "83_d64",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A new problem, of heads of 64 columns and of 128 in one text: a sink has a kernel of its own, and "
                   "a query without keys is found by its place, for its LSE is its sink."},
    .idea = "A score's gradient passes the function that was applied to the score: dS is multiplied by its derivative.",
    .limit = "In 83_d64 a score is scale * QK and nothing else. Models cap it, take something from it by distance, or "
             "have a sink beside the keys.",
    .prediction =
        "In turns, bf16, n = 16384, 16 heads, causal, over 82_nearby without a function in the same heat: with a "
        "softcap of 50 0.80 to 0.88, with slopes 0.92 to 0.98, with a sink 0.99 to 1.01. A tile of 64 x 128 scores "
        "takes 82 some 3500 clocks. The exponentials already take as long as the products beside them, so what a score "
        "costs besides shows: a tanh is another one, 512 clocks, and seven instructions more are 450, some of them "
        "under it; a slope is three. d = 64, n = 8192, 64 heads that share 8 of keys, a window of 128 and a sink, as "
        "gpt-oss has them: 0.97 to 1.00 of 83_d64 without the sink.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, tanh.approx, 194 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 8, .reason = "a derivative beside each score"}},
    .variants = {variant<Config<bf16, 128, 64, 128, 8, 2>>(),
                 variant<Config<bf16, 64, 128, 128, 8, 2>>({.label = "d <= 64"}),
                 variant<Config<f16, 128, 64, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<f16, 64, 128, 128, 8, 2>>({.label = "f16, d <= 64"})},
});

}  // namespace
