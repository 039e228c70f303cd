#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.wgmma_under_fences = products.under_fences();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                                ladder::VARLEN, HEAD_DIM, PANEL_COLS + 8);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "76_joined",
    .previous = "73_lengths",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port, "What 74 and 75 found, for the gradients that models ask for."},
    .idea = "What models ask of gradients, at the speed of 75: S and dP begin with -LSE and -D, and dQ is handed over "
            "behind the next tile's products.",
    .limit = "In 73_lengths a lane loads LSE when S is there, and D when dP is there, and waits for each. And it waits "
             "until its dQ lies in shared memory before it starts the next tile's products.",
    .prediction =
        "In turns, bf16, n = 4096, batch 4, 16 heads: 1.05 to 1.09 times 73 dense, 1.03 to 1.07 causal. In f16 the "
        "same two changes brought 7 % and 5 % over 71, and the loop has as many instructions as 75's. Over "
        "FlashAttention-3's gradients in bf16, 32 heads of queries and 8 of keys, ten sequences of 37, 577, 1024, "
        "4932, 113, 8192, 2042, 501, 3771 and 127 tokens: 1.00 to 1.09 dense, 1.02 to 1.13 causal.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
