#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t GROUPS = C::GROUPS;
  const uint64_t rows = shape.batch_heads() * shape.n, steps = (shape.n + GROUPS - 1) / GROUPS;  // of QK
  return {
      .shuffles = rows * C::WARPS * (steps * 3 + 5 + 5),  // a score's sum, the maximum, the sum of the weights
      .exponentials = rows * shape.n,
      .barriers = rows * 2,
      .gmem_accesses = rows * HEAD_DIM * ((GROUPS + steps * GROUPS) / 8 + shape.n + 1),  // Q and K by eights
      .gmem_sectors =
          shape.n % GROUPS == 0 ? C::WARPS * (8 + steps * 32 + shape.n * 2 + 2) : 0,  // Q, K, V, O of a block
      .gmem_bytes_read = rows * HEAD_DIM * 2 * (GROUPS + steps * GROUPS + shape.n),   // each group holds the row of Q
      .gmem_bytes_written = rows * HEAD_DIM * 2};
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant(
      {.warps = C::WARPS}, C::SMEM_BYTES, run<C>, reinterpret_cast<const void*>(attention<C>), predict<C>,
      {.label = std::move(label), .config = ladder::type_name<C>(), .smem_bytes_per_key = C::SMEM_BYTES_PER_KEY});
}

const ladder::Registration registration({
    .name = "p02_coalesced",
    .previous = "p01_rowwise",
    .role = ladder::Role::branch,
    .idea = "Eight lanes read a row of K together, 16 bytes each, so that a warp's load uses whole lines.",
    .limit = "p01_rowwise reads with a warp from 32 rows of K at a time: L1 looks up 32 lines for 64 bytes.",
    .prediction = "L1 is no longer in the way: 8 lines for 512 products of QK, where p01 has it look up 33 for 32. But "
                  "every query still reads all of K and V: 4 n n d bytes, one for each FLOP. At the 4 to 8 TB/s that "
                  "an H200's L2 delivers that is 4 to 8 TFLOPS, 4x to 9x p01.",
    .min_sm = 75,
    .needs = "4 bytes of shared memory for every key",
    .resources = {{.sm = 80, .registers = 40, .spill_bytes = 0}, {.sm = 90, .registers = 40, .spill_bytes = 0}},
    .variants = {variant<Config<4>>("one query, 4 warps")},
});

}  // namespace
