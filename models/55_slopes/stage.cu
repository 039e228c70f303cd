#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const bool is_alone = is_window || (!spec.causal && spec.alibi);
  const ladder::Forward walks(spec, C::BR, C::BC, is_alone ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;  // of each tile of queries the first tile of keys
  return {.wgmma = pairs *
                   (HEAD_DIM / 16 + spec.alibi + C::BC / 16),  // QK by slices of d, and the slope; PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers =
              (is_alone ? 1 : 2) * walks.blocks + first};  // of the cluster, where there is one, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "55_slopes",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Two ideas: the tensor cores add the slope, and a row begins at its own key; and the other "
                   "functions of scores go."},
    .idea = "The tensor cores add ALiBi's slope to the scores, and a row begins at its own key, where the slope leaves "
            "most.",
    .limit = "A function changes every score, and since near keys come last, tile by tile the maximum rises and O is "
             "scaled again.",
    .prediction = "In turns, in bf16, causal, 16 heads, n = 8192, with ALiBi over the same rung without: 0.94, "
                  "between 0.92 and 0.97. A ninth slice of QK is 128 clocks for a tile of 128 x 128 scores, beside "
                  "the 2625 that 48 takes for it: 0.95. A maximum that rises after the first tiles is none at all, as "
                  "the emulator counts, so nothing else is left of the 1021 clocks that ALiBi costs in 48. Over 48 "
                  "with ALiBi 1.31. Without ALiBi the rate is 48's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 208 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 40,
                   .reason = "The thread that copies has 24 registers, and keeps numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
