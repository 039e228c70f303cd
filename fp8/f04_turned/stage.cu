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
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::MODELS | ladder::WINDOW,
                  .min_d = 16,
                  .max_d = HEAD_DIM,
                  .d_step = 16,
                  .q = ladder::Element::e4m3,
                  .kv = ladder::Element::e4m3,
                  .o = ladder::element_of<typename C::Element>};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.largest_score = 0x1p18f;
  rest.keys_of_rising_weights = 2048;  // f03_ahead's chapter says why
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f04_turned",
    .previous = "f03_ahead",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::rebuilt, "A role more, and a ring: V as it comes, and what turns it on its way."},
    .idea = "V is turned in the kernel, by two warps of the warpgroup that copies.",
    .limit = "f03_ahead turns V in a launch before, which reads and writes all of it while nobody multiplies.",
    .prediction =
        "On an NVIDIA H200, in turns, 16 heads, over f03: n = 1024, batch 128, dense 1.07, causal 1.12; n = 8192, "
        "dense 0.99, causal 1.01, within 4 %. The launch before moves 537 MB at n = 1024, batch 128, in 0.14 ms, where "
        "all else takes 1.5 ms, and half of it under a mask; per FLOP an eighth of that at n = 8192. Turning takes a "
        "tile's bytes twice more through shared memory, 256 of some 1800 clocks, and that costs two in a hundred.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, ldmatrix, stmatrix, TMA, mbarrier, 224 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 20,
                   .reason = "A thread that copies or turns has 40 registers, and walks over the work by itself: it "
                             "keeps five numbers in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
