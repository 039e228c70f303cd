#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict_afterwards<C>,
                                 ladder::backward::nearby<C, Sequence>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "94_backwards",
    .previous = "91_afterwards",
    .role = ladder::Role::branch,
    .idea =
        "The launches before and after the walk go through all rows backwards: what was written last is read first.",
    .limit =
        "In 91_afterwards a launch writes zeros for the sum of dQ, and -LSE and -D, from the first row to the last, "
        "and the walk begins with the first; the walk ends with the last rows, and dQ is made of the first. At "
        "n = 1024 the sum alone has 134 MB, and the L2 cache 50.",
    .prediction =
        "After a trial in the text before, without verdicts, bf16, 16 heads and 16384 tokens: 1.015 of 91 at n = 1024, "
        "1.028 causal. We say the same, within 1 %; at 4096 1.01, causal 1.015, and at 16384 1.00, each within 1 %: "
        "what is won is the time of 40 MB twice, some 20 us of 720, 2200 and 8000. Over FlashAttention-3's gradients "
        "1.01 at n = 1024 and 0.98 causal, within 1 %; at least 1.00 at 4096 and 16384, dense and causal.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 226 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 3>>(), variant<Config<f16, 64, 128, 8, 3>>({.label = "f16"})},
});

}  // namespace
