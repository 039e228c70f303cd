#include "backward/stage.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::gradients::predict_meanwhile<C>,
                                 ladder::gradients::variant<C>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "84_meanwhile",
    .previous = "86_later",
    .role = ladder::Role::branch,
    .idea = "A tile's dQ and dK are made under the next tile's exponentials.",
    .limit = "In 86_later the tensor cores have dP alone beside the exponentials, which took a third of 83's time.",
    .prediction = "Known from a trial, so no prediction: on an NVIDIA H200, in operations per clock, 1.10 times 83 at "
                  "n = 4096, dense and causal, and 1.09 at n = 1024.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 179 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 6>>(), variant<Config<f16, 64, 128, 8, 6>>({.label = "f16"})},
});

}  // namespace
