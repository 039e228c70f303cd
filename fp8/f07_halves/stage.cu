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
  rest.keys_of_rising_weights = 2048;  // as in f02_two
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "f07_halves",
    .previous = "f06_logarithm",
    .role = ladder::Role::branch,
    .untried = true,
    .more_lines = {ladder::MoreLines::other,
                   "Half a tile at a time is another loop, and what is put aside of O has lines of its own."},
    .idea = "QK of the next 64 keys, and PV of those before, run under the softmax of these; O makes room for both in "
            "shared memory, eight tiles of keys at a time.",
    .limit = "f06_logarithm has the registers of one tile of scores. So QK of the next tile starts when these are "
             "bytes, and while a warpgroup looks for maxima only PV of the tile before is on its way.",
    .prediction =
        "On an NVIDIA H200, in turns, 16 heads, over f06: n = 8192 dense, batch 4, 1.2; causal, batch 16, 1.15; n = "
        "1024 dense, batch 16, 1.1; each within 6 %. A trial of f06 that looked for no maximum, and was wrong, had "
        "1.20 of its rate, causal: so time goes where a warpgroup waits for itself, and here it has products of its "
        "own under all of its softmax. Each half is some 180 instructions of a warp, of 1056 clocks of products a "
        "tile.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in e4m3, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 195 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168}},
    .variants = {variant<Config<bf16, 128, 128, 8, 3>>(), variant<Config<f16, 128, 128, 8, 3>>({.label = "f16"})},
});

}  // namespace
