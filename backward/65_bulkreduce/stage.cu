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
          .wgmma_left_running = pairs * (D_SLICES + QUERY_SLICES + KEY_SLICES),  // dP; dV; dQ
          .barriers = walks.blocks + walks.tiles,
          .bulk_copies = 2 * walks.blocks + 5 * walks.tiles,  // K, V; Q, dO, LSE and D; dQ twice
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
    .name = "65_bulkreduce",
    .previous = "64_warpgroups",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other, "Besides its idea, parts that it says and 64 spells out."},
    .idea = "dQ goes through shared memory in the order of the registers, and a warp has the copy engine add it to the "
            "sum, 16 KiB at a time.",
    .limit = "Each lane of 64_warpgroups adds its 32 elements of dQ by itself, by instructions that touch eight half "
             "sectors.",
    .prediction =
        "1.2 to 1.5 times 64, dense at n = 4096. 256 instructions of a tile, of eight clocks each in a path that the "
        "warpgroups share, become 64 stores of 16 bytes a lane and two requests, and nobody who multiplies waits for "
        "the sums. At n = 1024 1.1 to 1.4: there a fifth of the time goes into the kernels before and behind.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
