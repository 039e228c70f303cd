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
  return {.shuffles = rows / 16 * (shape.n / 8) * 4 * 6,  // of four rows a lane, for a maximum and a sum a step
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = rows * (ROW_BYTES + 4)};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 0.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "00af_wholescores",
    .previous = "00ae_regtile",
    .idea = "Eight keys a step: each of the eight lanes of a row computes one whole score and one weight, and O is "
            "corrected once.",
    .limit = "00ae_regtile exchanges three times for every score, corrects O for every key, and computes each weight "
             "eight times.",
    .prediction = "18 to 22 TFLOPS, little more than 00ae. A key of 16 rows takes 277 instructions instead of 296: "
                  "corrections, exchanges and weights become an eighth, but a lane now needs all of Q and reads it "
                  "again for every step, so QK converts five values for four multiply-adds. The bound is 27 TFLOPS, "
                  "and shared memory is three times as busy.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .writes_lse = true,
    .uncounted = {"277", "296"},
    .resources = {{.sm = 80, .registers = 128, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<64, 64, 4>("64x64, 4 warps"), variant<32, 64, 2>("32x64, 2 warps"),
                 variant<64, 32, 4>("64x32, 4 warps")},
});

}  // namespace
