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
    .name = "00f_mmaqk",
    .previous = "00e_mmapv",
    .idea = "QK with mma.sync and ldmatrix too: S stays in registers, and only Q, K and V pass through shared memory.",
    .limit = "00e_mmapv stores S from opaque fragments, only to read it back in a layout that is known.",
    .prediction =
        "1.0 to 1.05 times 00e: S was the last 16,384 of 689,152 wavefronts at N = 512. Of those left, 97 % are 8-way "
        "conflicts of fragment loads. 199 FLOP for each are at most 52 TFLOPS on an H200; 43 to 49.",
    .min_sm = 80,
    .needs = "mma.m16n8k16",
    .causal = true,
    .writes_lse = true,
    .resources = {{.sm = 80, .registers = 128, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<64, 32, 4>("64x32, 4 warps"), variant<32, 64, 2>("32x64, 2 warps")},
});

}  // namespace
