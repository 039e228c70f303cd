#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM, PANEL_COLS + 8);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "82_nearby",
    .previous = "76_joined",
    .role = ladder::Role::branch,
    .idea = "In a window a key is seen by the queries near it alone: a walk begins and ends with them.",
    .limit = "In 76_joined a walk goes on to the last query. Of 16384 tokens that see the 1024 before them, seven "
             "eighths of a walk would be masked.",
    .prediction =
        "In turns, bf16, n = 16384, 16 heads, causal: with a window of 1024 a call takes 5.5 to 6.8 times less time "
        "than 76's without one, with one of 4096 1.9 to 2.3 times less. A walk has 19 tiles of queries, or 67, where "
        "it has 130 on average; what D and the zeros cost stays. Over FlashAttention-3's gradients in the same window: "
        "0.96 to 1.06, and 0.97 to 1.04. Without a window 76's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
