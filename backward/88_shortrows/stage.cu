#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  const uint64_t beside = products.later * (C::BC / 16 + C::BR / 16);                  // dQ, dK
  ladder::Counts counts = products.counts(products.pairs * (C::BR / 16) + beside, 0);  // dV
  counts.wgmma_beside_exponentials = beside;
  counts.gmem_bytes_reduced += products.turns_bytes();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence, 3>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM);
  rest.conflict_ways = 1.0;
  rest.same_bits = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "88_shortrows",
    .previous = "84_meanwhile",
    .role = ladder::Role::port,
    .idea = "84's walk with 87's turns: gradients of heads of up to 64 columns have the same bits in each run.",
    .limit = "In 84_meanwhile a block adds its share of dQ when it has it: two runs of the same training step differ. "
             "87_inturn's do not, but it has 128 columns.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads, over 84: 0.86 to 0.94 dense, 0.83 to 0.93 causal. An "
                  "addition is half as large as 87's, and a tile takes half of its time: so passing a turn on costs a "
                  "larger part of it. With 32 heads of queries on 8 of keys 0.87 to 0.96 dense.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 179 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 6>>(), variant<Config<f16, 64, 128, 8, 6>>({.label = "f16"})},
});

}  // namespace
