#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t PRODUCT = C::BR / 8 * (HEAD_DIM / 16), LOAD_B = C::BR / 16 * D_SLICES;
  const ladder::Backward walks(shape, C::BR, C::BR);
  const uint64_t pairs = walks.tiles * C::WARPS;
  return {.mma = pairs * 5 * PRODUCT,  // S, dP, dV, dK, dQ
          .ldmatrix = pairs * (2 * (D_SLICES + LOAD_B) + 3 * LOAD_B + C::BR / 16),
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 1>);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "63_onewalk",
    .previous = "62_transposed",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Two kernels become one. Most of what differs besides are parts that it says from here on."},
    .idea = "One walk over queries: a block keeps dK and dV, and adds its share of dQ to a sum in f32 by reductions.",
    .limit = "62_transposed walks twice and computes S and dP in both walks: seven products where five are enough.",
    .prediction = "1.15 to 1.35 times 62 on an H200, dense. Five products for seven are 1.4 at most, and 180 ldmatrix "
                  "for 256. What comes instead: dS through shared memory with a third barrier, and for each tile 8192 "
                  "reductions, 32 KiB that L2 adds up.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, red.f32, 72.5 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
