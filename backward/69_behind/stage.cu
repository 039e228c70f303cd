#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.barriers = products.blocks + products.tiles;
  counts.wgmma_under_fences = products.tiles * C::WARPS * 32 * 2 * (C::BR / 16);  // dV, under dS; dK, under dQ
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "69_behind",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .idea = "dK behind dQ instead of before it, so that a product runs while dQ leaves.",
    .limit = "In 65_bulkreduce dQ is the last product of a tile, and nothing multiplies while both warpgroups bring it "
             "away.",
    .prediction = "Known from a trial, so no prediction: 1.03 to 1.05 times 65, at all lengths and under a mask.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
