#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warp and tile of queries, in either of the two walks.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t PRODUCT = C::BR / 8 * (HEAD_DIM / 16), LOAD_B = C::BR / 16 * D_SLICES;
  const ladder::Backward walks(shape, C::BR, C::BR);
  const uint64_t pairs = walks.tiles * C::WARPS;
  return {.mma = pairs * (4 + 3) * PRODUCT,  // S, dP, dV, dK; S, dP, dQ
          .ldmatrix = pairs * (4 * (D_SLICES + LOAD_B) + 3 * LOAD_B)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<1>);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, key_gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "62_transposed",
    .previous = "61_recomputed",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "mma.sync for five products, from a kernel of scalar loops: little of it remains."},
    .idea = "All products by mma.sync. S and dP transposed, keys as rows: a lane holds P^T and dS^T as the next "
            "product wants them.",
    .limit = "61_recomputed multiplies on the CUDA cores, and each of its loads of a row serves four others.",
    .prediction = "100 to 170 TFLOPS on an H200, dense, six to ten times 61. 02_swizzle, which copies and multiplies "
                  "in turns too, has 237 with 16 rows a warp; here seven products are computed and five counted, 5/7 "
                  "of that is 169, and each tile of 64 waits for its copies twice as often as one of 128.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, 64.5 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
