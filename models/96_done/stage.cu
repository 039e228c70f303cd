#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Of the tiles of queries blocks take one at a time, under a mask a long walk and a short one.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  return ladder::models::by_strips<C>(spec, HEAD_DIM,
                                      {spec, C::BR, C::BC, 1, spec.causal && !ladder::models::is_window(spec)});
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "96_done",
    .previous = "52_turns",
    .role = ladder::Role::branch,
    .idea = "A warpgroup is done when its own 64 queries see no more keys, and lets the block's last tiles pass.",
    .limit =
        "Of 192 queries the last ones see up to two tiles of keys more than the first, and behind a text's end are "
        "queries that nobody has asked.",
    .prediction = "In turns, on an H200, over 52 in bf16, 16 heads, 16384 tokens in all: causal 1.10 at n = 1024, 1.04 "
                  "at 4096, 1.01 at 16384; dense 1.03 at 1024, and from 4096 on the same; within 2 %. At 1024 1.05 of "
                  "cuDNN under a mask, within 3 %. There 96 tiles of keys were multiplied for a head, 64 queries at a "
                  "time, and 74 are now; dense 144, and 130. Half of that is left, for who is done waits for the "
                  "others.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
