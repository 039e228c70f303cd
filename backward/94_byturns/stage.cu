#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, C::COLUMNS> products(shape);
  // dP and dV; dK under dQ, which one warpgroup makes.
  ladder::Counts counts =
      products.counts(products.pairs * (C::D_SLICES + C::QUERY_SLICES) + products.tiles * C::QUERY_SLICES,
                      2 * products.blocks + products.tiles);
  counts.wgmma -= products.tiles * C::KEY_SLICES;
  counts.wgmma_under_fences = products.under_fences();
  counts.gmem_bytes_reduced = products.tiles * C::BR * HEAD_DIM * sizeof(float);
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(
      std::move(rest), ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>, ladder::VARLEN, C::COLUMNS,
      C::COLUMNS < HEAD_DIM ? PANEL_COLS + 8 : 104);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "94_byturns",
    .previous = "76_joined",
    .role = ladder::Role::branch,
    .idea =
        "The warpgroups take turns at dQ: each makes all of every second tile's, so an instruction's operands serve "
        "twice as many columns, and a warpgroup waits for the other at every second tile.",
    .limit = "In 76_joined each warpgroup makes half of a tile's dQ: 64 x 64, for which it reads 32 times 128 bytes in "
             "32 clocks, all that shared memory can give. And the two meet at every tile's dS.",
    .prediction =
        "In turns, bf16, 16 heads, 16384 tokens, over 76: n = 16384 1.03 to 1.08 dense, 1.03 to 1.07 causal; n = 4096 "
        "1.02 to 1.07 dense, 1.02 to 1.06 causal; n = 1024 1.01 to 1.05, both. Shared memory moves 4 % less, and "
        "FlashAttention-4, which has one warpgroup make all of dQ under a mask, was 1.05 times 76 at n = 16384. Over "
        "FlashAttention-4: n = 16384 0.99 to 1.03, n = 4096 1.00 to 1.05, n = 1024 0.97 to 1.01.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 64, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 64, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
