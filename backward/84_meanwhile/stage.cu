#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  const uint64_t beside = products.later * (C::BC / 16 + C::BR / 16);  // dQ, dK
  ladder::Counts counts =
      products.counts(products.pairs * (C::BR / 16) + beside, 2 * products.blocks);  // dV; none for a tile
  counts.wgmma_beside_exponentials = beside;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
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
