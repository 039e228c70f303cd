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
  rest.workspace_bytes = workspace_bytes<C>;
  rest.largest_score = 0x1p18f;
  rest.keys_of_one_sign = 1;  // not for their sum: its chapter says why, and a claim asks for 65536 of one sign
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f06_logarithm",
    .previous = "f02_two",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Without exponentials and sums of weights the softmax is another, and so is who waits for whom."},
    .idea = "The bits of a number of e4m3 are nearly eight times its logarithm, so a weight is a score times a number, "
            "rounded to a byte; and a column of ones in V adds the weights up.",
    .limit = "f02_two makes an exponential of each score, a byte of each exponential, and a sum of all: as long as the "
             "products take. For a second accumulator of all columns it has no room.",
    .prediction =
        "On an NVIDIA H200, in turns, 16 heads, over f02: n = 8192 dense, batch 4, 1.5; causal, batch 16, 1.4; n = "
        "1024 dense, batch 16, 1.25; each within 8 %. A warpgroup's softmax is some 250 instructions a tile and no "
        "exponential, less than the 528 clocks of the other one's products. All trials are right: the weights are off "
        "by 1.2 times as much as rounding to e4m3 makes them.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 196 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
