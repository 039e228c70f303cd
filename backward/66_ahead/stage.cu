#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  return products.counts(
      products.pairs * (C::BR / 16 + C::BC / 16) + (products.pairs - 2 * products.blocks) * D_SLICES,  // dV, dQ; S
      products.blocks + products.tiles);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "66_ahead",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold, "Besides its idea, parts that it says and 65 spells out."},
    .idea = "The next tile's S is started behind dQ, before anybody waits for dQ.",
    .limit = "In 65_bulkreduce both warpgroups bring dQ away at the same time, and nothing multiplies meanwhile.",
    .prediction = "1.02 to 1.07 times 65, dense at n = 4096. Between dQ and the next S both warpgroups store dQ at the "
                  "same time, about 200 clocks of 2800, and those the tensor cores win back.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>(), variant<Config<64, 128, 8, 3>>({.label = "3 stages"})},
});

}  // namespace
