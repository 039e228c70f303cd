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
  return {
      .wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
      .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
      // dV, under dS; the next tile's S and dP, under dQ
      .wgmma_under_fences = C::WARPS * 32 * (walks.tiles * QUERY_SLICES + (walks.tiles - walks.walking) * 2 * D_SLICES),
      .barriers = 2 * walks.blocks + walks.tiles,
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
    .name = "75_handover",
    .previous = "74_initial",
    .role = ladder::Role::line,
    .idea = "A tile's dQ is handed over when the next tile's products have been started.",
    .limit = "In 74_initial warps wait until their dQ lies in shared memory before they start the next tile's "
             "products: an eighth of their time.",
    .prediction = "Known from a trial, so no prediction: 1.05 times 74 at n = 4096, 1.04 under a mask, by operations "
                  "per clock, on an H100.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
