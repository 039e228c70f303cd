#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;  // V, once
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict_afterwards<C>,
                                 ladder::backward::nearby<C, Sequence>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "g02_kept",
    .previous = "g01_narrow",
    .role = ladder::Role::branch,
    .idea = "With 96 columns V has room in registers, and dP reads half as much of shared memory.",
    .limit =
        "In g01_narrow each product of dP reads 2 KiB of V and 2 KiB of dO from shared memory in 32 clocks, all that "
        "it gives. dK and dV of 96 columns leave 32 registers of a lane, and V is 24.",
    .prediction =
        "After a trial of it: in turns, on an H200, bf16, 16 heads, over g01: 1.03 with 96 columns at n = 4096, "
        "dense and causal, and at 1024, and with 80 columns at 4096, each within 1 %. Over FlashAttention-3's "
        "gradients, in this "
        "order, 1.02, 1.015, 1.00 and 1.06, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 226 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 3>>(), variant<Config<f16, 64, 128, 8, 3>>({.label = "f16"})},
});

}  // namespace
