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
  const uint64_t blocks_per_head = shape.n / BR, blocks = shape.batch_heads() * blocks_per_head;
  uint64_t tiles = 0;  // under the mask, block b ends at the tile that holds key (b + 1) * BR - 1
  for (uint64_t b = 0; b < blocks_per_head; ++b) tiles += shape.causal ? ((b + 1) * BR + BC - 1) / BC : shape.n / BC;
  tiles *= shape.batch_heads();
  const uint64_t pairs = tiles * (BR / 16);
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
    .name = "00c_causal",
    .previous = "00b_tiled",
    .idea = "Causal: tiles of the future are skipped, and the tile on the diagonal is masked.",
    .limit = "00b_tiled computes the scores of keys that a causal query may not see.",
    .prediction =
        "Causal at N = 8192: a block visits 64.5 of 128 tiles on average, so 1.98x less time than dense and, with half "
        "the FLOPs counted, as many TFLOPS. Dense: a compare per score that is never needed, below 2 %.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .causal = true,
    .writes_lse = true,
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<64, 64, 4>("64x64, 4 warps"), variant<32, 64, 2>("32x64, 2 warps"),
                 variant<64, 32, 4>("64x32, 4 warps")},
});

}  // namespace
