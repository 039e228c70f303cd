#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = 4 * first,                                // in the first tile
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<bf16>(ladder::MODELS | ladder::WINDOW, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "43_window",
    .previous = "42_grouped",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Windows, and with them rows of a tile that see none of its keys: every maximum is taken anew, "
                   "beside the bounds of each walk."},
    .idea = "A query sees so many keys before its own and so many behind it, and tiles outside of that are neither "
            "copied nor computed.",
    .limit = "A query of a long text sees all keys before it. Models let every other layer see the last few thousand "
             "alone.",
    .prediction =
        "In turns, over FlashAttention-3 in bf16, 16 heads, causal, n = 32768: 1.15 with a window of 256, 1.12 with "
        "1024, 1.08 with 4096. In a window of 256 a tile of queries computes three tiles of keys where two are seen, "
        "and what a tile of queries costs beside its products, the first QK and softmax and the last PV, lies beside "
        "three steps and no more: 320 TFLOPS of what is seen. Without a window the rate is 42's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 8,
                   .reason = "In a window a consumer's schedule is more than its registers hold."}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
