#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = 4 * first,                                // in the first tile
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {
      .features = ladder::CAUSAL, .q = ladder::Element::bf16, .kv = ladder::Element::bf16, .o = ladder::Element::bf16};
  rest.from_first_key = true;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "40_bf16",
    .previous = "38_seam",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "bf16: another type of every operand, and scores that may be 2^127. And the two roles become "
                   "functions, as in every kernel from here on."},
    .idea = "In bf16, whose weights end at 2^127 and not at 65504, a maximum has room to be stale.",
    .limit = "Weights are f16. A score may outgrow the maximum of the first tile by some 12 log2 units; where it does, "
             "a warp looks at every score first, for these queries and for the next.",
    .prediction =
        "In turns, over FlashAttention-3 in bf16: 1.10 dense and 1.08 causal at n = 8192, 1.12 and 1.05 at n = 1024, "
        "with a sink the same within 2 %; peaky 1.00 at n = 8192, dense, and 0.93 at n = 1024, causal, for a warp "
        "forgets between its queries that scores are extreme (trials of 32 and 34 in bf16 had 1.10 to 1.16, 1.08 to "
        "1.10, 1.15, 1.06, 1.01 and 0.92). Over 38's rate in f16: 1.04 dense, 1.03 causal, by the clock.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
