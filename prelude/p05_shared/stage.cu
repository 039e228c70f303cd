#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

template <int BR, int BC, int WARPS>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<BR, BC, WARPS>, dim3(p.n / BR, p.batch_heads), dim3(WARPS * 32), SMEM_BYTES<BR, BC>,
         p);
}

template <int BR, int BC>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, blocks = rows / BR, tiles = blocks * (shape.n / BC);
  return {.shuffles = rows / 4 * shape.n * 3,  // a warp sums the scores of four rows at a time
          .barriers = blocks + tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = rows * (ROW_BYTES + 4)};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 0.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "00ad_shared",
    .previous = "00ac_ownrow",
    .idea = "K and V come tile by tile into shared memory: what is read from global memory serves the 16 queries of a "
            "block.",
    .limit = "00ac_ownrow has every warp read all of K and V, and leaves to the caches what its warps have in common.",
    .prediction =
        "A 16th of the bytes asked for, and within 5 % of 00ac, 13 to 15 TFLOPS: the loop has as many instructions, "
        "105 a key and 2 for its share of the copies. What waits for L1 or L2 now waits for shared memory, which is "
        "nearer, and at barriers. The larger block (32x64, 8 warps) halves the bytes again and should change nothing.",
    .min_sm = 75,
    .needs = "36 KiB of shared memory",
    .writes_lse = true,
    .uncounted = {"16", "105", "2"},
    .resources = {{.sm = 80, .registers = 64, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<16, 64, 4>("16x64, 4 warps"), variant<32, 64, 8>("32x64, 8 warps"),
                 variant<16, 32, 4>("16x32, 4 warps")},
});

}  // namespace
