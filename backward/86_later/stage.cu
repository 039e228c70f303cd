#include "backward/stage.hpp"
#include "kernel.cuh"

namespace {

// dV and, but for the first tile's, dK run on; no tile has a barrier of its own.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles, later = pairs - 2 * walks.walking;
  ladder::Counts counts = ladder::gradients::predict<C>(shape);
  counts.wgmma_left_running = pairs * (D_SLICES + QUERY_SLICES) + later * QUERY_SLICES;  // dP, dV; dK
  counts.barriers = 2 * walks.blocks;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>,
                                 ladder::gradients::variant<C>(std::move(rest)));
}

const ladder::Registration registration({
    .name = "86_later",
    .previous = "85_resident",
    .role = ladder::Role::branch,
    .idea = "A tile's dQ is made during the next tile, and nobody meets at a barrier.",
    .limit = "In 85_resident each tile ends at a barrier of all warps, for each warpgroup's dQ needs the other's dS.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads, on an NVIDIA H200: 1.01 to 1.06 times 85, dense and "
                  "causal. No warp waits for the slowest one in each tile any more, and while dS is made the tensor "
                  "cores have dV and dQ. In trials 64 queries alone gave 0.955 of 83, on an H100, and with dQ and dK "
                  "under the exponentials 1.036; this rung is on the way from the one to the other.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 146 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 4>>(), variant<Config<f16, 64, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
