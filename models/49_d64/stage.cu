#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0 || (spec.softcap > 0 && spec.alibi);
  const bool is_alone = is_window || (!spec.causal && (spec.softcap > 0 || spec.alibi));
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
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.few_tiles = 800;  // six for each SM of an H200
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "49_d64",
    .previous = "48_scores",
    .role = ladder::Role::variant,
    .more_lines = {ladder::MoreLines::is_new, "Heads of 64 columns: tiles half as wide, and rings twice as deep."},
    .idea = "Heads of 64 columns: tiles are half as large, four of K and of V are on their way, and a pair shares them "
            "by rows.",
    .limit = "A kernel for 128 columns does not take 64, and with half of the columns a pair has no panel for each "
             "block to bring.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n = 1024, 4096, 16384 "
                  "all 1.00, within 4 %. A tile has half of the products and all of the exponentials: 1024 clocks of "
                  "either, so that each hides the other at best, and two warpgroups will not hide them well. 1750 "
                  "clocks a tile, where 48 has 2700 with twice the products.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
