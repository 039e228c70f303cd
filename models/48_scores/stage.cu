#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, Score<false, false>>,
                                 ladder::models::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "48_scores",
    .previous = "47_edges",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "Functions of scores: a softcap, ALiBi, and a head's sink; sequences of several lengths go."},
    .idea = "What becomes of a score before the softmax is a function that the kernel is compiled with, and each head "
            "may have a sink.",
    .limit = "A score is a product and a factor. Models cap it, take something from it by distance, and add one that "
             "belongs to no key.",
    .prediction = "In turns, in bf16, causal, 16 heads, over the same rung without: at n = 8192 a softcap 0.88, ALiBi "
                  "0.93, a sink 1.00. A tile of 128 x 128 scores takes 1024 clocks of the unit for exponentials, and a "
                  "tanh for each takes as many again, beside 2048 of products; ALiBi is three instructions a score. "
                  "Without any of them the rate is 47's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
