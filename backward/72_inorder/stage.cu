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
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
          .barriers = 2 * walks.blocks + walks.tiles,
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
    .name = "72_inorder",
    .previous = "71_longest",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Turns in global memory: who waits, who passes on, and who numbers the blocks."},
    .idea = "Blocks add to dQ in turn, so two runs give the same bits.",
    .limit = "In 71_longest a block adds its share of dQ when it has it, and sums of f32 in another order have other "
             "last bits: two runs of the same training step differ.",
    .prediction = "0.93 to 0.99 times 71, dense at n = 4096, batch 4; causal 0.92 to 0.98; at n = 1024 0.92 to 0.98, "
                  "dense and causal. Counted by a list of 132 SMs: if a turn is handed on in less time than a tile "
                  "takes, what is left to wait for is where blocks of one head begin together, 1 % dense and 3 % "
                  "causal at n = 4096; drawing a number costs half a microsecond of a block's 40 to 150. If handing "
                  "on takes longer than a tile, about 2.3 microseconds, every tile waits, and we miss on the low side.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 64, 128, 8, 2>>(), variant<Config<bf16, 64, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
