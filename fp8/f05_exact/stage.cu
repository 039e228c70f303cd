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
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / SLICE + C::BC / 16),      // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers = (is_window ? 1 : 2) * walks.blocks};       // of the cluster, where there is one
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::MODELS | ladder::WINDOW,
                  .min_d = 16,
                  .max_d = HEAD_DIM,
                  .d_step = 16,
                  .q = ladder::Element::s8,
                  .kv = ladder::Element::s8,
                  .o = ladder::element_of<typename C::Element>};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.largest_score = 0x1p18f;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f05_exact",
    .previous = "f01_e4m3",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Another problem: each row of Q and K has a scale, and V and P have 16 bits, so that nothing is "
                   "turned, and softmax and PV are those of models/ again."},
    .idea = "Queries and keys are int8, with a scale for each row, and their products add up exactly.",
    .limit = "f01_e4m3 has 4 bits of each number and 14 of each sum, and one scale for a whole head.",
    .prediction =
        "On an NVIDIA H200, in turns, n = 8192, 16 heads: over f01_e4m3 dense and causal 0.82; over 48_scores in bf16 "
        "dense 0.93, causal 0.91, within 6 %; that is some 760 and 710 TFLOPS. So it is slower than both, and for "
        "whom scores must be right. A tile of 128 x 128 takes 1536 clocks of products, 512 of QK and 1024 of PV. A "
        "warp's step has 500 instructions in its machine code, where f01's has 332: 64 conversions to f32, of two "
        "clocks each, 64 products with K's scales, and 32 loads of these are new. With 64 exponentials of eight "
        "clocks, and two warps to a scheduler, that is 2030 clocks a tile, 1560 in f01; and QK, which both "
        "warpgroups await together, makes 2540 of them. The same sum makes 2070 for f01, which takes 2075.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in int8 and f16, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 128, 128, 8, 2>>(), variant<Config<bf16, 128, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
