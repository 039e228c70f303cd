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
  // Tiles that are copied for blocks; what a block does not compute with it passes by.
  uint64_t copied = 0;
  const int64_t side = shape.n / C::BC;
  for (int64_t first = 0; first < side; first += C::BLOCKS)
    copied += uint64_t(shape.batch_heads()) * C::BLOCKS * C::BC / C::BR * (shape.causal ? side - first : side);
  return {
      .wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
      .wgmma_left_running = pairs * (QUERY_SLICES + KEY_SLICES) + (pairs - 2 * walks.blocks) * D_SLICES,  // dV, dQ; S
      .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float),
      .multicast_bytes = copied * C::BLOCKS * C::Q_BYTES};
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
    .name = "67_pair",
    .previous = "66_ahead",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::other, "Clusters: copies into both blocks, and barriers that count two."},
    .idea = "Two blocks with neighbouring keys walk over the same queries, and each brings half of a tile to both.",
    .limit = "Every block of 66_ahead copies all queries for itself, beside the dQ that goes back to the same L2.",
    .prediction = "1.01 to 1.06 times 66, dense at n = 4096. A tile takes 16 KiB from L2 for each block in place of "
                  "32, and 32 KiB go there as before. In hopper/30_cluster the same brought 4 to 5 %, most of it by "
                  "power. Causal at n = 1024 it loses: the second block of a pair passes two tiles of 16, 12, 8 or 4.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
