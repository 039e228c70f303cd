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
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 8);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * (load_Q + load_K + load_V),
          .shuffles = pairs * 2 * 4,  // two rows, two exchanges for the maximum and two for the sum
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 8.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "01_base",
    .previous = "00g_rowgroups",
    .idea = "The base of part 1: dense only, without causal mask and log-sum-exp; S, P and O stay in registers.",
    .limit = "00g_rowgroups carries a mask and a log-sum-exp, and none of the steps to come is about them.",
    .prediction =
        "10x to 20x 00_naive: tensor cores instead of FP32 units and O(n d) bytes instead of O(n n); held back by "
        "8-way bank conflicts on every ldmatrix, so 30 to 60 TFLOPS on an H200. Against 00g_rowgroups, which came to "
        "stand before it later: 1.0 to 1.03 times, for dense it chooses a softmax without the mask in each tile.",
    .min_sm = 80,
    .needs = "mma.m16n8k16",
    .resources = {{.sm = 80, .registers = 240, .spill_bytes = 0}, {.sm = 90, .registers = 240, .spill_bytes = 0}},
    .variants = {variant<64, 32, 2>("64x32, 2 warps"), variant<64, 128, 4>("64x128, 4 warps")},
});

}  // namespace
