#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.wgmma_under_fences = products.under_fences();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "75_handover",
    .previous = "74_initial",
    .role = ladder::Role::line,
    .idea = "A tile's dQ is handed over when the next tile's products have been started.",
    .limit = "In 74_initial warps wait until their dQ lies in shared memory before they start the next tile's "
             "products: an eighth of their time.",
    .prediction = "Known from a trial, so no prediction: 1.05 times 74 at n = 4096, 1.04 under a mask, by operations "
                  "per clock, on an H100.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
