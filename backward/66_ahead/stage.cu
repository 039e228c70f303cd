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
      .wgmma_left_running = pairs * (QUERY_SLICES + KEY_SLICES) + (pairs - 2 * walks.blocks) * D_SLICES,  // dV, dQ; S
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
    .name = "66_ahead",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other, "Besides its idea, parts that it says and 65 spells out."},
    .idea = "The next tile's S is started behind dQ, before anybody waits for dQ.",
    .limit = "In 65_bulkreduce both warpgroups bring dQ away at the same time, and nothing multiplies meanwhile.",
    .prediction = "1.02 to 1.07 times 65, dense at n = 4096. Between dQ and the next S both warpgroups store dQ at "
                  "the same time, about 200 clocks of 2800, and those the tensor cores win back.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>(), variant<Config<64, 128, 8, 3>>({.label = "3 stages"})},
});

}  // namespace
