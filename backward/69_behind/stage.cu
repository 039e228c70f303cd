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
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),       // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),           // dP; dV; dK
          .wgmma_under_fences = walks.tiles * C::WARPS * 32 * 2 * QUERY_SLICES,  // dV, under dS; dK, under dQ
          .barriers = walks.blocks + walks.tiles,
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 2) * sizeof(float);  // the sum of dQ, LSE and D
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "69_behind",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .idea = "dK behind dQ instead of before it, so that a product runs while dQ leaves.",
    .limit = "In 65_bulkreduce dQ is the last product of a tile, and nothing multiplies while both warpgroups bring it "
             "away.",
    .prediction = "Known from a trial, so no prediction: 1.03 to 1.05 times 65, at all lengths and under a mask.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
