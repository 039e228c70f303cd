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
  const uint64_t pairs = tiles * (BR / 16), products = (BC / 16) * (HEAD_DIM / 16);  // 16x16x16, of QK
  const uint64_t load_Q = HEAD_DIM / 16;                                             // K: one for each product
  return {.mma = pairs * products * 2,                                               // a wmma.mma is two mma.m16n8k16
          .ldmatrix = pairs * (load_Q + products),
          .shuffles = pairs * 4 * 6,  // four rows a lane, three exchanges for the maximum and three for the sum
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
    .name = "00ca_wmmaqk",
    .previous = "00c_causal",
    .idea = "QK on tensor cores through WMMA; its fragments are opaque, so S goes through shared memory.",
    .limit = "00c_causal multiplies on the FP32 units, one product per lane and instruction.",
    .prediction =
        "1.2 to 1.5 times 00c. For 16x64 scores a warp issues 6,230 instructions instead of 11,900: that alone would "
        "allow 1.9 times 00c. But shared memory makes 1.5 times as many passes, most for 8-way conflicts: 212 FLOP "
        "each, so at one pass per SM and clock at most 55 TFLOPS on an H200. That is the limit now; 40 to 50.",
    .min_sm = 75,
    .needs = "WMMA, 50 KiB of shared memory",
    .causal = true,
    .writes_lse = true,
    .uncounted = {"6,230", "11,900"},
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<64, 32, 4>("64x32, 4 warps"), variant<32, 64, 2>("32x64, 2 warps")},
});

}  // namespace
