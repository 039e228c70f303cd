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
      std::move(rest), ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence, 1>, ladder::VARLEN, C::COLUMNS,
      C::COLUMNS < HEAD_DIM ? PANEL_COLS + 8 : 104);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "95_onward",
    .previous = "94_byturns",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Each role has a loop around it, and keys are taken by one thread and told to the others."},
    .idea = "A block takes keys after keys: dK and dV leave from where dS and dQ were, while the next K and V are on "
            "their way.",
    .limit = "In 94_byturns a block looks up its keys, waits for K, V and the first queries, and at its end until dK "
             "and dV have left. At n = 1024 that is a seventh of its time, by an estimate from a trial on an H100.",
    .prediction =
        "In turns, bf16, 16 heads, 16384 tokens, over 94: n = 1024 1.05 to 1.11 dense, 1.08 to 1.17 causal; n = 4096 "
        "1.01 to 1.04 dense, 1.02 to 1.06 causal; n = 16384 0.99 to 1.02, both. A seam between two tiles of keys costs "
        "about 6 us now, of 39 at n = 1024, and is to cost 2. Over FlashAttention-4 at n = 1024: 1.03 to 1.10 dense, "
        "1.04 to 1.14 causal.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 64, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 64, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
