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
  const uint64_t pairs = tiles * (BR / 16), products = (BC / 16) * (HEAD_DIM / 16);  // 16x16x16, of QK and of PV
  const uint64_t load_Q = HEAD_DIM / 16, load_P = BC / 16;                           // K and V: one for each product
  return {.mma = pairs * 2 * products * 2,                                           // a wmma.mma is two mma.m16n8k16
          .ldmatrix = pairs * (load_Q + load_P + 2 * products),
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
    .name = "00d_wmma",
    .previous = "00ca_wmmaqk",
    .idea = "PV on tensor cores through WMMA too; its fragments are opaque, so P and P V go through shared memory.",
    .limit = "00ca_wmmaqk multiplies P V on the FP32 units, one product per lane and instruction.",
    .prediction =
        "0.8 to 1.0 times 00ca: a loss. A warp issues 5.4 times fewer instructions, but they were not the limit. "
        "Shared memory is, and makes 1.22 times as many passes, most for 8-way conflicts: 174 FLOP each, so at one "
        "pass per SM and clock at most 45 TFLOPS on an H200; 30 to 42, as was written before 00ca came between.",
    .min_sm = 75,
    .needs = "WMMA",
    .causal = true,
    .writes_lse = true,
    .resources = {{.sm = 80, .registers = 176, .spill_bytes = 0}, {.sm = 90, .registers = 176, .spill_bytes = 0}},
    .variants = {variant<64, 32, 4>("64x32, 4 warps"), variant<32, 64, 2>("32x64, 2 warps")},
});

}  // namespace
