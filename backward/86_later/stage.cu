#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  const uint64_t left = products.pairs * (D_SLICES + C::BR / 16) + products.later * (C::BR / 16);  // dP, dV; dK
  return products.counts(left, 2 * products.blocks);  // and none for a tile
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
    .name = "86_later",
    .previous = "85_resident",
    .role = ladder::Role::branch,
    .idea = "A tile's dQ is made during the next tile, and nobody meets at a barrier.",
    .limit = "In 85_resident each tile ends at a barrier of all warps, for each warpgroup's dQ needs the other's dS.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads, on an NVIDIA H200: 1.01 to 1.06 times 85, dense and "
                  "causal. No warp waits for the slowest one in each tile any more, and while dS is made the tensor "
                  "cores have dV and dQ. In trials 64 queries alone gave 0.955 of 83, on an H100, and with dQ and dK "
                  "under the exponentials 1.036; this rung is on the way from the one to the other.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 146 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 4>>(), variant<Config<f16, 64, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
