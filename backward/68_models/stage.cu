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

template <class C>
uint64_t workspace_bytes(const ladder::Shape& shape) {  // the sum of dQ, LSE and D
  const uint64_t tiles = (shape.n + C::BR - 1) / C::BR;
  return uint64_t(shape.batch_heads()) * tiles * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16,
                  .formula = "backward"};
  rest.workspace_bytes = workspace_bytes<C>;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "68_models",
    .previous = "66_ahead",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What 40 to 42 found, for gradients: bf16, any lengths, heads that share keys, strides."},
    .idea =
        "What models ask for: bf16, any lengths of both sides, heads of queries that share keys, rows in any strides.",
    .limit = "66_ahead takes f16, as many keys as queries, a multiple of 128, and all of them in a row.",
    .prediction = "0.97 to 1.00 times 66 where both take the problem but for its type, at n = 4096, dense. The loop "
                  "has one comparison more for each tile, and two more copies. With 8 heads of keys for 32 of queries "
                  "a block has four times as long a walk, so that its ends weigh a quarter: 1.02 to 1.08 times the "
                  "same without groups, at n = 1024.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
