#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain<bf16>(std::move(rest), ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                       ladder::MODELS | ladder::VARLEN);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "73_lengths",
    .previous = "68_models",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port, "What 45, 70 and 71 found, for the gradients that models ask for."},
    .idea = "Sequences of several lengths lie one behind the other, and a launch takes them all, those with the "
            "longest walks first.",
    .limit = "All sequences of a batch have one length. Shorter ones are padded, and padding is copied and computed.",
    .prediction =
        "In turns, over FlashAttention-3's gradients in bf16, 32 heads of queries and 8 of keys, ten sequences of 37, "
        "577, 1024, 4932, 113, 8192, 2042, 501, 3771 and 127 tokens: 0.94 to 1.02 dense, 0.96 to 1.05 causal. By a "
        "list of 132 SMs the last one ends 0.6 % after the mean dense and 1.1 % causal; in the order given it would be "
        "3.8 % and 8.1 %. Over 68, where all have one length, n = 4096, batch 4, 16 heads: 1.03 to 1.06 dense, 1.08 to "
        "1.12 causal, from the loop of 69, the end of 70 and the order of 71.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
