#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 keys, and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles;
  const uint64_t later = pairs - 2 * walks.walking;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),                 // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + QUERY_SLICES) + later * QUERY_SLICES,  // dP, dV; dK
          .barriers = 2 * walks.blocks,                                                    // and none for a tile
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {  // the list; the sum of dQ, LSE and D
  return spec.batch * sizeof(Sequence) +
         ladder::q_tiles_of(spec, C::BR) * spec.heads * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts =
      ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM, 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
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
