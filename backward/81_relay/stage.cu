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
      .storing_threads = walks.blocks * (3 + C::WARPS),  // dQ, by turns; dK and dV
      .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float) +
                            (walks.blocks + 2 * walks.tiles) * 4};  // and turns that are passed on
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  const uint64_t turns = shape.n / 32 + 1;
  return uint64_t(shape.batch_heads()) * (shape.n * (HEAD_DIM + 2) + turns) * 4;  // the sum of dQ, LSE and D; turns
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.accepts.q = rest.accepts.kv = rest.accepts.o = ladder::element_of<typename C::T>;
  rest.workspace_bytes = workspace_bytes;
  rest.same_bits = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "81_relay",
    .previous = "80_sameorder",
    .role = ladder::Role::branch,
    .idea = "Three threads take turns at adding to dQ: one waits for its turn while another's sums are on their way.",
    .limit = "In 80_sameorder one thread adds a half of each tile, waits until the sums are there, and passes the "
             "turn on: longer than the products of a tile take.",
    .prediction = "1.06 to 1.11 times 80 on an H100, dense, at n = 4096: 0.96 to 1.00 of 75. At n = 16384 1.07 to "
                  "1.10; at n = 1024 1.05 to 1.20. A thread has one and a half tiles' time for each addition then; "
                  "what stays is that blocks of a head which begin together wait for each other once.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 64, 128, 8, 2>>(), variant<Config<bf16, 64, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
