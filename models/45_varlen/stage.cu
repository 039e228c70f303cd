#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest.accepts = ladder::accepts_any_d<typename C::Element>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM,
                                                            PANEL_COLS + 8);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.workspace_bytes = [](const ladder::Shape& spec) {
    return spec.lens_q.count > 0 ? spec.batch * sizeof(Sequence) : uint64_t{0};
  };
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "45_varlen",
    .previous = "44_told",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Two ideas that need each other: a plan that deals out sequences of many lengths, and tensor maps "
                   "over all of them."},
    .idea = "Sequences of several lengths lie one behind the other, and a launch takes them all, those with most work "
            "first.",
    .limit = "All sequences of a batch have one length. Shorter ones are padded, and padding is copied and computed.",
    .prediction = "In turns, over FlashAttention-3 in bf16, 16 heads, ten sequences of 37, 577, 1024, 4932, 113, "
                  "8192, 2042, 501, 3771 and 127 tokens: 1.12 dense, 1.08 causal. Shares dealt to and fro leave the "
                  "busiest cluster 0.7 % above the mean, and causal, where they are fewer and larger, 5.4 %; tiles "
                  "that are not full cost under 2 %. Where all sequences have one length the rate is 44's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
