#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

template <int BR, int BC, int WARPS>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<BR, BC, WARPS>, dim3(p.n / BR, p.batch_heads), dim3(WARPS * 32), SMEM_BYTES<BR, BC>,
         p);
}

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <int BR, int BC>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t blocks_per_head = shape.n / BR, blocks = shape.batch_heads() * blocks_per_head;
  uint64_t tiles = 0;  // under the mask, block b ends at the tile that holds key (b + 1) * BR - 1
  for (uint64_t b = 0; b < blocks_per_head; ++b) tiles += shape.causal ? ((b + 1) * BR + BC - 1) / BC : shape.n / BC;
  tiles *= shape.batch_heads();
  const uint64_t pairs = tiles * (BR / 16);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 8);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * (load_Q + load_K + load_V),
          .shuffles = pairs * 2 * 4,  // two rows, two exchanges for the maximum and two for the sum
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * (ROW_BYTES + 4)};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 8.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "00g_rowgroups",
    .previous = "00f_mmaqk",
    .idea = "A warp owns two groups of 16 query rows, so that a fragment of K or V that it loads serves 32 rows.",
    .limit = "00f_mmaqk loads every fragment of K and V for 16 query rows, with 8-way conflicts.",
    .prediction = "1.4 to 1.65 times 00f, 65 to 73 TFLOPS on an H200. The emulator counts what 00f does, 672,768 "
                  "wavefronts at N = 512; but in the machine code both groups share their K and V loads, 64 LDSM "
                  "instead of 112: 410,624, at most 85 TFLOPS.",
    .min_sm = 80,
    .needs = "mma.m16n8k16",
    .causal = true,
    .writes_lse = true,
    .uncounted = {"64", "112", "410,624"},
    .resources = {{.sm = 80, .registers = 232, .spill_bytes = 0}, {.sm = 90, .registers = 216, .spill_bytes = 0}},
    .variants = {variant<64, 32, 2>("64x32, 2 warps"), variant<64, 32, 4>("64x32, 4 warps"),
                 variant<64, 128, 4>("64x128, 4 warps")},
});

}  // namespace
