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
                 first = walks.queries * C::WARPS / 4;              // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / SLICE + C::BC / SLICE),      // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / SLICE),  // PV, but of the last tile
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
  rest.keys_of_one_sign = 1024;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f01_e4m3",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Another problem: all three inputs are bytes, V is turned before, and P has other registers."},
    .idea = "Queries, keys, values and weights are e4m3, and tensor cores do twice the products in a clock.",
    .limit = "48_scores keeps the tensor cores busy most of the time, and in bf16 they do no more.",
    .prediction = "On an NVIDIA H200, in turns, 16 heads, over 48_scores in bf16: n = 8192, batch 16, dense 1.40, "
                  "causal 1.33, within 8 %; that is some 1140 and 1040 TFLOPS. n = 1024, batch 128, dense 1.2. A tile "
                  "of 128 x 128 takes 1024 clocks of products and 1024 of exponentials, and a warpgroup's round, in "
                  "which these stand one behind the other, 1500. Turning V takes 0.15 ms of batch 16, n = 8192, and as "
                  "much at n = 1024, where all else takes an eighth.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
