#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

constexpr uint32_t SMEM_BYTES_PER_KEY = 4;

// Shared memory that nobody uses leaves less to L1: both are parts of one store.
template <uint32_t UNUSED_BYTES = 0>
void run(Device& device, const AttentionParams& p) {
  const uint32_t n = p.n, batch_heads = p.batch_heads, smem_bytes = SMEM_BYTES + UNUSED_BYTES + n * SMEM_BYTES_PER_KEY;
  launch(device, attention, dim3(n, 1, batch_heads), dim3(THREADS), smem_bytes, p);
}

ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, scores = rows * shape.n;
  return {.shuffles = rows * WARPS * (5 + 5),  // the maximum, the sum of the weights
          .barriers = rows * 2,
          // Every score reads a row of Q and of K; every output a column of V.
          .gmem_bytes_read = scores * shape.d * 2 * 2 + scores * shape.d * 2,
          .gmem_bytes_written = rows * shape.d * 2};
}

ladder::Variant variant(std::string label, decltype(&run<>) run_it = run<>, uint32_t unused_bytes = 0) {
  ladder::Variant variant = ladder::make_variant(std::move(label), {.warps = WARPS}, SMEM_BYTES + unused_bytes, run_it,
                                                 reinterpret_cast<const void*>(attention), 0.0, predict);
  variant.smem_bytes_per_key = SMEM_BYTES_PER_KEY;
  return variant;
}

const ladder::Registration registration({
    .name = "00a_rowwise",
    .previous = "00_naive",
    .idea = "One kernel instead of three: a block per query, and its row of scores stays in shared memory.",
    .limit = "00_naive sends every score through global memory six times, and needs room for n x n of them.",
    .prediction =
        "Memory is won, not time: 0.9 TFLOPS on an H200, 0.6 times 00_naive. A warp's load of K now touches 32 lines, "
        "which L1 looks up one a cycle, where 00_naive's touches 16: 33 + 3 cycles for 32 products of QK and of PV "
        "instead of 18 + 3.",
    .min_sm = 75,
    .needs = "4 bytes of shared memory for every key",
    .max_d = 256,
    .any_d = true,
    .uncounted = {"16", "33", "3", "32", "18"},
    .resources = {{.sm = 80, .registers = 32, .spill_bytes = 0}, {.sm = 90, .registers = 32, .spill_bytes = 0}},
    .variants = {variant("one query, 4 warps"), variant("5 KiB unused", run<5120>, 5120)},
});

}  // namespace
