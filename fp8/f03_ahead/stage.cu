#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, is_window ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4;
  return {.wgmma = 2 * pairs * (HEAD_DIM + C::BC) / SLICE,  // by slices of d and of keys, and halves of keys and of d
          .wgmma_left_running = 0,
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
    .name = "f03_ahead",
    .previous = "f02_two",
    .role = ladder::Role::lost,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "Scores are made and weighed in halves of a tile, each with registers, a mask and a sum of its own."},
    .idea = "QK of the next 64 keys runs while the exponentials of these 64 are made.",
    .limit = "In f02_two a warpgroup has registers for the scores of one tile, so it makes no exponentials while it "
             "waits for QK.",
    .prediction = "On an NVIDIA H200, in turns, 16 heads, over f02: n = 8192, dense 1.33, causal 1.30, within 10 %; n "
                  "= 1024, batch 128, dense 1.20. A tile of 128 x 128 takes f02 2500 clocks, of which 1056 are "
                  "exponentials. Both warpgroups then wait for QK, which takes 512 if they ask together. Here each has "
                  "scores to weigh while its products run. Four times a tile it still waits for a product to end, adds "
                  "and asks for the next one. So we think of 1800 clocks, and of a clock that is a twentieth slower, "
                  "since more is done in it. At n = 1024 V is turned and tiles of queries end as often as before.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
