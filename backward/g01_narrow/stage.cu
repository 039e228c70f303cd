#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict_afterwards<C>,
                                 ladder::backward::nearby<C, Sequence>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "g01_narrow",
    .previous = "94_backwards",
    .role = ladder::Role::branch,
    .idea = "Products, and what is added to the sum of dQ, end where a row of 96 columns ends.",
    .limit =
        "With 96 columns 94_backwards multiplies 32 columns of zeros in every product, and adds 8 KiB of zeros to the "
        "sum of dQ for each tile: a quarter of what the L2 cache adds. It has 0.94 of the rate of 76_joined, whose "
        "products but those of dQ end there.",
    .prediction =
        "After a trial of V in registers on top of this, and of this without what the sum saves: in turns, on an H200, "
        "bf16, 16 heads, over 76: with 96 columns 1.065 at n = 4096, 1.06 causal, 1.06 at n = 1024, and with 80 "
        "columns 1.08 at 4096, each within 1.5 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 226 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 3>>(), variant<Config<f16, 64, 128, 8, 3>>({.label = "f16"})},
});

}  // namespace
