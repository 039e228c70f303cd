#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

template <int BR, int WARPS>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<BR, WARPS>, dim3((p.n + BR - 1) / BR, p.batch_heads), dim3(WARPS * 32), 0, p);
}

template <int BR, int WARPS>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, blocks = shape.batch_heads() * ((shape.n + BR - 1) / BR);
  return {.shuffles = blocks * WARPS * shape.n * 3,                           // the sums of four scores at a time
          .gmem_bytes_read = blocks * BR * HEAD_DIM * 2 * (1 + 2 * shape.n),  // each group asks for all of K and V
          .gmem_bytes_written = rows * (HEAD_DIM * 2 + 4)};
}

template <int BR, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {.warps = WARPS}, 0, run<BR, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, WARPS>), 0.0, predict<BR, WARPS>);
}

const ladder::Registration registration({
    .name = "00ac_ownrow",
    .previous = "00ab_online",
    .idea =
        "A group of eight lanes owns a query from the first key to the last: four queries a warp, and nothing to join.",
    .limit =
        "00ab_online has the 16 groups of a block read 16 different rows of K and V at a time, each for one query.",
    .prediction = "13 to 15 TFLOPS on an H200, up to 1.2x 00ab. The four groups of a warp now ask for the same 128 "
                  "bytes, so L1 hands out a quarter, and L2 no longer decides. The issue of instructions does: the "
                  "loop has 219 for two keys of four queries, 2048 FLOP a key, so 17 TFLOPS if a scheduler issued in "
                  "every cycle; 00ab reaches three quarters of its own bound.",
    .min_sm = 75,
    .needs = "nothing special",
    .writes_lse = true,
    .uncounted = {"219", "2048"},
    .resources = {{.sm = 80, .registers = 64, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<16, 4>("16 queries, 4 warps"), variant<4, 1>("4 queries, 1 warp"),
                 variant<32, 8>("32 queries, 8 warps")},
});

}  // namespace
