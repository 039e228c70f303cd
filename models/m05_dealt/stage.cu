#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Blocks take tiles of queries one at a time.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  return ladder::models::by_strips<C>(spec, HEAD_DIM, {spec, C::BR, C::BC});
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "m05_dealt",
    .previous = "m02_evenly",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold, "Who takes which tile is a struct of its own, which m02 says as a part."},
    .idea = "From round to round a block takes the next share of a head and not the same one, and the last heads are "
            "dealt out tile by tile, the longest first.",
    .limit =
        "A head of 1024 queries is three shares, and 3 divides 132: a block gets the same one of each head, though the "
        "first is smaller. Of 4096 there are five shares for a block and a third of one, which takes as long as six.",
    .prediction =
        "By a count of products a strip of 64 queries and 1.5 tiles of keys for a seam, which says 1.09, 1.09, 1.11, "
        "1.10 and "
        "1.15, and 1.09 dense, for the busiest block, less what the clock takes. In turns, on an H200, over m02 in "
        "bf16, "
        "16 heads and 16384 tokens in all, causal: 1.05 at n = 512, 1.07 at 1024, 1.09 at 2048, 1.08 at 4096, 1.06 at "
        "16384; dense 1.06 at 1024; within 3 %. Over cuDNN, causal, 1.04 at 512, 1.08 at 1024, within 3 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
