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
    .idea =
        "Tiles of K and V in shared memory: what is read serves BR queries, and the recurrence takes BC keys a step.",
    .limit = "00ab_online reads all of K and V for every query: 4 n n d bytes, one per FLOP.",
    .prediction =
        "A tile of 64 queries reads K and V a 64th as often, so memory no longer counts and the FP32 units do: of a "
        "hundred instructions about 65 are the multiply-adds, the others mostly conversions from f16, so at most 45 "
        "TFLOPS on an H200; 20 to 30 with the waits for shared memory.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .writes_lse = true,
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<64, 64, 4>("64x64, 4 warps"), variant<32, 64, 2>("32x64, 2 warps")},
});

}  // namespace
