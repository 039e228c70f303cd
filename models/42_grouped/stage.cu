#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = 4 * first,                                // in the first tile
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<bf16>(ladder::MODELS, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "42_grouped",
    .previous = "41_rows",
    .role = ladder::Role::branch,
    .idea = "Heads of queries side by side share a head of keys and values, which the L2 cache then brings once for "
            "all of them.",
    .limit = "Each head of queries has keys and values of its own. Models keep four to eight times fewer of these.",
    .prediction =
        "The same rate as 41 where each head has its own keys. In turns, over FlashAttention-3 in bf16, dense and "
        "causal: 1.10 and 1.05 with 32 heads over 8 at n = 4096, 1.10 and 1.09 at 16384, 1.10 and 1.08 with 64 "
        "over 8, twice, at 8192. Sharing makes nothing faster but what memory holds: the kernel waits for "
        "products, not for K and V, so the rate is that of as many heads of keys, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
