#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<bf16>(std::move(rest), ladder::MODELS | ladder::WINDOW, HEAD_DIM);
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, ladder::models::predict_votes<C, HEAD_DIM>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "43_window",
    .previous = "42_grouped",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Windows, and with them rows of a tile that see none of its keys: every maximum is taken anew, "
                   "beside the bounds of each walk."},
    .idea = "A query sees so many keys before its own and so many behind it, and tiles outside of that are neither "
            "copied nor computed.",
    .limit =
        "A query of a long text sees all keys before it. Models let every other layer see the last few thousand alone.",
    .prediction =
        "In turns, over FlashAttention-3 in bf16, 16 heads, causal, n = 32768: 1.15 with a window of 256, 1.12 with "
        "1024, 1.08 with 4096. In a window of 256 a tile of queries computes three tiles of keys where two are seen, "
        "and what a tile of queries costs beside its products, the first QK and softmax and the last PV, lies beside "
        "three steps and no more: 320 TFLOPS of what is seen. Without a window the rate is 42's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 8,
                   .reason = "In a window a consumer's schedule is more than its registers hold."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
