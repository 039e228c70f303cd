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
    .name = "64_warpgroups",
    .previous = "63_onewalk",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "wgmma for five products, with a producer, barriers and layouts of its own: little of 63 remains."},
    .idea = "All five products by wgmma: two warpgroups have 64 keys each, a third copies queries ahead, and dS alone "
            "changes hands.",
    .limit = "63_onewalk multiplies by mma.sync, at two thirds of wgmma's rate, and computes nothing while it copies.",
    .prediction =
        "0.55 to 0.75 times FlashAttention-3's backward pass on an H200, dense at n = 4096. A tile of 64 queries and "
        "128 keys takes 2600 clocks of the tensor cores. Its 256 reductions of a warp, each of them eight half "
        "sectors, take about 2000 of a path that both warpgroups share, and come when both have nothing else to do.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, red.f32, 161 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
