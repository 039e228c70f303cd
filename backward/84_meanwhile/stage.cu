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
  const uint64_t later = pairs - 2 * walks.walking;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),                   // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * QUERY_SLICES + later * (KEY_SLICES + QUERY_SLICES),  // dV; dQ, dK
          .wgmma_beside_exponentials = later * (KEY_SLICES + QUERY_SLICES),                  // dQ, dK
          .barriers = 2 * walks.blocks,                                                      // and none for a tile
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {  // the list; the sum of dQ, LSE and D
  return spec.batch * sizeof(Sequence) +
         ladder::q_tiles_of(spec, C::BR) * spec.heads * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts =
      ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM, 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "84_meanwhile",
    .previous = "86_later",
    .role = ladder::Role::branch,
    .idea = "A tile's dQ and dK are made under the next tile's exponentials.",
    .limit = "In 86_later the tensor cores have dP alone beside the exponentials, which took a third of 83's time.",
    .prediction = "Known from a trial, so no prediction: on an NVIDIA H200, in operations per clock, 1.10 times 83 at "
                  "n = 4096, dense and causal, and 1.09 at n = 1024.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 179 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 6>>(), variant<Config<f16, 64, 128, 8, 6>>({.label = "f16"})},
});

}  // namespace
