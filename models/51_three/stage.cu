#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool in_twos = spec.causal && spec.left < 0 && spec.right <= 0 && !(spec.softcap > 0 && spec.alibi);
  const ladder::Forward walks(spec, C::BR, C::BC, 1, in_twos);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
          .votes_on_scores = spec.left >= 0 || spec.right > 0 || spec.softcap > 0 ? 0 : 4 * first,
          .yes_votes = ladder::NONE,          // a first maximum is looked for, and changes nothing
          .barriers = walks.blocks + first};  // of the block, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "51_three",
    .previous = "49_d64",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "A block of three warpgroups works alone, so all that two blocks of a cluster said to each other goes, too."},
    .idea = "A third warpgroup of queries: while one multiplies, two make exponentials.",
    .limit = "Half as wide a tile has half of the products and all of the exponentials, and two warpgroups wait for "
             "each other.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n = 1024 0.98, 4096 "
                  "1.05, 16384 1.07, within 4 %. A tile of 128 x 128 takes 1640 clocks at n = 16384, where 49 takes "
                  "2150: products and exponentials take 1024 each, and of three warpgroups one is mostly multiplying. "
                  "At n = 1024 a sixth tile of 192 queries is two thirds empty.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
