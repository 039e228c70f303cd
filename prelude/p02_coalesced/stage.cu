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
      .shuffles = rows * WARPS * (steps * 3 + 5 + 5),  // a score's sum, the maximum, the sum of the weights
      .barriers = rows * 2,
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
    .name = "00aa_coalesced",
    .previous = "00a_rowwise",
    .idea = "Eight lanes read a row of K together, 16 bytes each, so that a warp's load uses whole lines.",
    .limit = "00a_rowwise reads with a warp from 32 rows of K at a time: L1 looks up 32 lines for 64 bytes.",
    .prediction =
        "L1 is no longer in the way: 8 lines for 512 products of QK, where 00a has it look up 33 for 32. But every "
        "query still reads all of K and V: 4 n n d bytes, one for each FLOP. At the 4 to 8 TB/s that an H200's L2 "
        "delivers that is 4 to 8 TFLOPS, 4x to 9x 00a.",
    .min_sm = 75,
    .needs = "4 bytes of shared memory for every key",
    .uncounted = {"8", "512", "33", "32", "4"},
    .resources = {{.sm = 80, .registers = 40, .spill_bytes = 0}, {.sm = 90, .registers = 40, .spill_bytes = 0}},
    .variants = {variant()},
});

}  // namespace
