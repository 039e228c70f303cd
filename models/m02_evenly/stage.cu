#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Of the tiles of queries blocks take one at a time, under a mask a long walk and a short one.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  return ladder::models::by_strips<C>(
      spec, HEAD_DIM, {spec, C::BR, C::BC, 1, spec.causal && !ladder::models::is_window(spec), 1, true});
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "m02_evenly",
    .previous = "96_done",
    .role = ladder::Role::branch,
    .idea = "Heads of 64 columns under a mask: even shares, and the thread that copies divides no more.",
    .limit = "A head of 512 queries is three tiles, one share of two and one of one; with 132 blocks half of them get "
             "nothing but the larger ones.",
    .prediction =
        "After trials: 1.02 for quotients alone at n = 512, and 1.32 with shares dealt to and fro besides. In turns, "
        "on "
        "an H200, over 96 in bf16, 16 heads and 16384 tokens in all, causal: 1.32 at n = 512, 1.02 at 1000 and 1024, "
        "1.01 at 4096, 1.00 at 16384; dense 1.01 at 1024; within 2 %. Over cuDNN, causal, 1.05 at 512 and 1.01 at "
        "1024, "
        "within 2 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
