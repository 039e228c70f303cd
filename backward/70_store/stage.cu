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
      .wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),       // S, dP; dV, dK; dQ
      .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),           // dP; dV; dK
      .wgmma_under_fences = walks.tiles * C::WARPS * 32 * 2 * QUERY_SLICES,  // dV, under dS; dK, under dQ
      .barriers = 2 * walks.blocks + walks.tiles,
      .bulk_copies = (2 + 2 * C::WARPS) * walks.blocks + 5 * walks.tiles,  // K, V; dK, dV; Q, dO, LSE and D; dQ twice
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
    .name = "70_store",
    .previous = "69_behind",
    .role = ladder::Role::branch,
    .idea = "dK and dV leave through shared memory, and the copy engine writes them.",
    .limit =
        "At a block's end 69_behind writes dK and dV from registers, 4 bytes a lane, and nothing multiplies meanwhile.",
    .prediction = "1.03 to 1.07 times 69, dense at n = 1024. A block's 512 instructions that write eight half sectors "
                  "each take 8 clocks of a path that all warps share, or 15 as 64's reductions did: 4000 to 8000 "
                  "clocks, where a block's 16 tiles take 58000. Through shared memory it is 1500. At n = 4096 a block "
                  "has four times as many tiles: 1.01 to 1.02, and causal twice that.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
