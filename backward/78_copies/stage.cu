#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t PRODUCT = C::BR / 8 * (HEAD_DIM / 16), LOAD_B = C::BR / 16 * D_SLICES;
  const ladder::Backward walks(shape, C::BR, C::BR);
  const uint64_t pairs = walks.tiles * C::WARPS;
  constexpr uint64_t COPIES = 2 * C::BR * ROW_CHUNKS + C::BR / 2;  // of 16 bytes, for a tile: Q, dO; D, LSE
  return {.mma = pairs * 5 * PRODUCT,                              // S, dP, dV, dK, dQ
          .ldmatrix = pairs * (2 * (D_SLICES + LOAD_B) + 3 * LOAD_B + C::BR / 16),
          .products_under_copies = (walks.tiles - walks.blocks) * COPIES * 5 * PRODUCT,
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "78_copies",
    .previous = "77_laneorder",
    .role = ladder::Role::branch,
    .idea = "The next tile of queries is copied while this one is worked on: cp.async, a ring of two.",
    .limit = "77_laneorder copies a tile through registers, and nothing is multiplied until it is there.",
    .prediction =
        "Known from a trial, so no prediction: 1.10 times 77 on an H100 at n = 1024 and 1.14 times at n = 4096, dense.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, red.f32, 105 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
