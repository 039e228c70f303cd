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
                 first = walks.queries * C::WARPS / 4;  // of each tile of queries the first tile of keys
  return {
      .wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
      // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
      .votes_on_scores = spec.left >= 0 || spec.right > 0 || spec.softcap > 0 ? 0 : 4 * first,
      .yes_votes = ladder::NONE,  // a first maximum is looked for, and changes nothing
      .products_in_turns = 4 * (pairs - first) * (HEAD_DIM / 16 + C::BC / 16),  // but of the first tile, and the last
      .barriers = 2 * walks.blocks + pairs};                                    // of the block, and one of a warpgroup
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
    .name = "52_turns",
    .previous = "51_three",
    .role = ladder::Role::branch,
    .idea = "Warpgroups start their products by turns, so that one multiplies while the others make exponentials.",
    .limit = "Three warpgroups that start when they are ready come to the tensor cores together, and wait together.",
    .prediction = "Known from a trial: in turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n "
                  "= 1024 1.29, 4096 1.13, 16384 1.18, within 4 %; over 51 1.18, 1.27, 1.23.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
