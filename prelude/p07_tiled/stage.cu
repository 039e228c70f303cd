#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

template <int BR, int BC, int WARPS>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<BR, BC, WARPS>, dim3(p.n / BR, p.batch_heads), dim3(WARPS * 32), SMEM_BYTES<BR, BC>,
         p);
}

// Shuffles are counted per 16-row group of queries and tile of BC keys, a pair.
template <int BR, int BC>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  return {.shuffles = pairs * 4 * 6,  // four rows a lane, three exchanges for the maximum and three for the sum
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * (ROW_BYTES + 4)};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 0.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "00b_tiled",
    .previous = "00af_wholescores",
    .idea = "A whole tile of keys takes one step of the recurrence: eight keys a lane, and O is corrected once for 64 "
            "keys.",
    .limit = "00af_wholescores reads all of Q again, and corrects O, for every eight keys.",
    .prediction =
        "Older than the rungs before it: 33.4 TFLOPS were measured before this step was cut out. A key of 16 rows "
        "takes 185 instructions instead of 277, as a chunk of Q that is read and converted serves eight keys; 128 of "
        "them are multiply-adds. That is 1.5x 00af, and a bound of 41 TFLOPS; 33.4 are 81 % of it.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .writes_lse = true,
    .uncounted = {"185", "277", "33.4"},
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<64, 64, 4>("64x64, 4 warps"), variant<32, 64, 2>("32x64, 2 warps"),
                 variant<64, 32, 4>("64x32, 4 warps")},
});

}  // namespace
