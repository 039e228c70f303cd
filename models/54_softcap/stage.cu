
#include "common/emulator/emulator.hpp"
#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const bool is_alone = is_window || (!spec.causal && spec.softcap > 0);
  const ladder::Forward walks(spec, C::BR, C::BC, is_alone ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers =
              (is_alone ? 1 : 2) * walks.blocks + first};  // of the cluster, where there is one, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts =
      ladder::accepts_any_d<bf16>(ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "54_softcap",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A second way to make weights, beside the one that it must fall back on; and ALiBi goes, for a "
                   "shorter kernel."},
    .idea = "Where the scores of a tile are small beside the cap, tanh is a polynomial of degree 3, and the weights "
            "are made of the products at once.",
    .limit = "A softcap takes a tanh of each score, from the unit that makes the exponentials, and before the first of "
             "them.",
    .prediction = "In turns, in bf16, causal, 16 heads, n = 8192, a softcap of 50: 0.90 to 0.97 of the same rung's "
                  "rate without, where 48 has 0.68. Per score the polynomial takes three instructions more than the "
                  "factor and the maximum did, and the look at it half a one; a warp's 64 take 450 clocks to issue "
                  "then, and its exponentials 512, so these are what it waits for, as without a softcap. But the "
                  "instructions take power. Without a softcap the rate is 48's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 24,
                   .reason = "With a softcap the warps that multiply keep up to six registers in memory; without one, "
                             "and without a mask, "
                             "the thread that copies keeps four numbers of its schedule there."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
