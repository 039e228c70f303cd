#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, C::COLUMNS> products(shape);
  // dP, dV and dK, as in 76. How often barriers are met hangs on how many blocks run, and so do additions to a ticket.
  ladder::Counts counts = products.counts(products.pairs * (C::D_SLICES + 2 * C::QUERY_SLICES), 0);
  counts.wgmma_under_fences = products.under_fences();
  counts.gmem_bytes_reduced = 0;
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
    .name = "94_onward",
    .previous = "76_joined",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Each role has a loop around it, and keys are taken by one thread and told to the others."},
    .idea = "A block takes keys after keys: dK and dV leave from where dS and dQ were, while the next K and V are on "
            "their way.",
    .limit =
        "In 76_joined a block looks up its keys, waits for K, V and the first queries, and at its end until dK and "
        "dV have left: 9100 clocks for each tile of keys, by what a counter says of n = 1024 and n = 4096, beside "
        "3345 for each tile of queries.",
    .prediction =
        "In turns, bf16, 16 heads, 16384 tokens, over 76: n = 1024 1.06 to 1.11 dense, 1.09 to 1.16 causal; n = 4096 "
        "1.015 to 1.04 dense, 1.03 to 1.07 causal; n = 16384 1.00 to 1.02, both. That is what comes out if a seam "
        "costs "
        "2000 to 4000 clocks and nothing else changes. Over FlashAttention-4: n = 1024 1.02 to 1.08 dense, 1.02 to "
        "1.10 causal; n = 4096 0.99 to 1.03 dense, 1.03 to 1.09 causal; n = 16384 stays behind, 0.95 to 0.98.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 64}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 64, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 64, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
