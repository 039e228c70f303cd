#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

constexpr uint32_t SMEM_BYTES_PER_KEY = 4;

void run(Device& device, const AttentionParams& p) {
  launch(device, attention, dim3(p.n, p.batch_heads), dim3(THREADS), SMEM_BYTES + p.n * SMEM_BYTES_PER_KEY, p);
}

ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, steps = (shape.n + GROUPS - 1) / GROUPS;  // of QK
  return {
      .shuffles = rows * WARPS * (steps * 3 + 2 + 5),  // a score's sum, the maximum, the sum of the weights
      .barriers = rows * 3,
      .gmem_bytes_read = rows * HEAD_DIM * 2 * (GROUPS + steps * GROUPS + shape.n),  // each group holds the row of Q
      .gmem_bytes_written = rows * HEAD_DIM * 2};
}

ladder::Variant variant() {
  ladder::Variant variant = ladder::make_variant("one query, 4 warps", {.warps = WARPS}, SMEM_BYTES, run,
                                                 reinterpret_cast<const void*>(attention), 0.0, predict);
  variant.smem_bytes_per_key = SMEM_BYTES_PER_KEY;
  return variant;
}

const ladder::Registration registration({
    .name = "00a_rowwise",
    .idea = "One kernel instead of three: a block per query, and its row of scores stays in shared memory.",
    .limit = "00_naive sends every score through global memory six times, and multiplies with two loads per product.",
    .prediction =
        "The scores' traffic is gone, but every query still reads all of K and V: 4 n n d bytes, one for each FLOP. At "
        "the 4 to 8 TB/s that an H200's L2 delivers that is 4 to 8 TFLOPS, 3x to 5x 00_naive.",
    .min_sm = 75,
    .needs = "4 bytes of shared memory for every key",
    .resources = {{.sm = 80, .registers = 48, .spill_bytes = 0}, {.sm = 90, .registers = 48, .spill_bytes = 0}},
    .variants = {variant()},
});

}  // namespace
