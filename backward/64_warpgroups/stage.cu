#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  return products.counts(products.pairs * (D_SLICES + C::BR / 16 + C::BC / 16),  // dP; dV; dQ
                         products.blocks + products.tiles);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "64_warpgroups",
    .previous = "63_onewalk",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "wgmma for five products, with a producer, barriers and layouts of its own: little of 63 remains."},
    .idea = "All five products by wgmma: two warpgroups have 64 keys each, a third copies queries ahead, and dS alone "
            "changes hands.",
    .limit = "63_onewalk multiplies by mma.sync, at two thirds of wgmma's rate, and computes nothing while it copies.",
    .prediction =
        "0.55 to 0.75 times FlashAttention-3's backward pass on an H200, dense at n = 4096. A tile of 64 queries and "
        "128 keys takes 2600 clocks of the tensor cores. Its 256 reductions of a warp, each of them eight half "
        "sectors, take about 2000 of a path that both warpgroups share, and come when both have nothing else to do.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, red.f32, 161 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
