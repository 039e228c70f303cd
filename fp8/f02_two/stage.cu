#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, is_window ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;  // of each tile of queries the first tile of keys
  return {.wgmma = pairs *
                   (HEAD_DIM / SLICE + 2 * C::BC / SLICE),  // QK by slices of d, PV by slices of keys and halves of d
          .wgmma_left_running = (pairs - first) * (C::BC / SLICE),  // PV's first half, but of the last tile
          .yes_votes = ladder::NONE,                        // a first maximum is looked for, and changes nothing
          .barriers = (is_window ? 1 : 2) * walks.blocks};  // of the cluster, where there is one
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return uint64_t(spec.batch) * spec.key_heads() * HEAD_DIM * padded<C>(spec.keys());
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::MODELS | ladder::WINDOW,
                  .min_d = 16,
                  .max_d = HEAD_DIM,
                  .d_step = 16,
                  .q = ladder::Element::e4m3,
                  .kv = ladder::Element::e4m3,
                  .o = ladder::element_of<typename C::Element>};
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.largest_score = 0x1p18f;
  rest.keys_of_rising_weights = 2048;  // its chapter says why
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f02_two",
    .previous = "f01_e4m3",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "PV goes into an accumulator of its own, in halves, and so the weights beside it are made in halves."},
    .idea = "Each tile of keys is summed up anew, half of the columns at a time, and added to O in f32.",
    .limit = "f01_e4m3 adds all keys into one accumulator. A tensor core keeps 14 bits of it, so that among many keys "
             "of one sign it stops growing.",
    .prediction =
        "On an NVIDIA H200, in turns, n = 8192, 16 heads, batch 16, over f01: dense 0.95, causal 0.95, within 4 %. An "
        "addition for each number of O and tile, as many as scores, makes a warpgroup's round a twentieth longer; to "
        "rescale O costs nothing any more. All trials are right, those of one sign at 3280 keys too.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 24,
                   .reason = "O, half of a tile's, scores and two sets of weights are 192 of its 232 registers: a "
                             "thread that multiplies keeps five numbers in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
