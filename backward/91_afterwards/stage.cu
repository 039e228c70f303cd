#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict_afterwards<C>,
                                 ladder::backward::nearby<C, Sequence>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "91_afterwards",
    .previous = "82_nearby",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port, "What 84 found, for rows of 128 columns."},
    .idea = "A tile's dQ and dK are made in the next tile's step, with rows of 128 columns, too.",
    .limit = "In 82_nearby the warpgroups meet at a tile's dS, start dQ and dK, and wait for both: between dV and dQ, "
             "and between dK and the next S, nothing multiplies.",
    .prediction =
        "After a trial of its walk in 82, without verdicts, bf16, 16 heads and 16384 tokens, over 76: 1.02 at "
        "n = 1024, 1.01 to 1.02 causal, 1.02 at 4096, 1.015 causal. We say the same of this text, within 1 %, and "
        "1.02, within 1.5 %, at 16384, dense and causal. In f16 as in bf16, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 226 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 3>>(), variant<Config<f16, 64, 128, 8, 3>>({.label = "f16"})},
});

}  // namespace
