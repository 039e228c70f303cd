#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  // A pair of blocks takes a tile of queries of each of two heads, one by one, or two tiles of one head.
  const bool has_twins = spec.causal && spec.heads / spec.key_heads() % 2 == 0;
  const ladder::Forward walks(spec, C::BR, C::BC, has_twins ? 1 : 2, spec.causal && !has_twins);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;  // of each tile of queries the first tile of keys
  const uint64_t blocks = has_twins ? ladder::min<uint64_t>(walks.queries, spec.multiprocessors / 2 * 2) : walks.blocks;
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers = 2 * blocks + first};                       // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(ladder::MODELS | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "56_twins",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "Pairs share keys and not queries, which turns the walk round; and windows and functions of scores go."},
    .idea =
        "Under a mask two blocks take the same queries of two heads that share keys, and all blocks walk equally far.",
    .limit = "Under a mask one block of a pair sees a tile of keys less than the other and waits for it, and in the "
             "last round half of the clusters have nothing to do.",
    .prediction = "After trials. In turns, on an H100, over 48 in bf16, causal: 1.05 with 32 heads over 8 at n = 4096, "
                  "1.04 at 16384, 1.04 with 64 over 8, twice, at 8192, within 2 %. A pair of tiles of queries is 33 "
                  "tiles of keys there instead of 34, and no cluster stands idle in a half-empty last round: counting "
                  "says 1.055. Without a mask, and with a head of keys for each of queries, 48's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
