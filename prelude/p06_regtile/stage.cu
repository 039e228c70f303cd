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
  return {.shuffles = rows / 16 * shape.n * 4 * 3,  // a warp has 16 rows, a lane four of them
          .barriers = blocks + tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = rows * (ROW_BYTES + 4)};
}

template <int BR, int BC, int WARPS>
ladder::Variant variant(std::string label) {
  return ladder::make_variant(std::move(label), {BR, BC, WARPS}, SMEM_BYTES<BR, BC>, run<BR, BC, WARPS>,
                              reinterpret_cast<const void*>(flash_attention<BR, BC, WARPS>), 0.0, predict<BR, BC>);
}

const ladder::Registration registration({
    .name = "00ae_regtile",
    .previous = "00ad_shared",
    .idea = "Register tiles: a lane has four rows, so each value of K or V that it reads and converts serves four "
            "products.",
    .limit =
        "00ad_shared reads and converts a value for each product: of 107 instructions a key, 33 are multiply-adds.",
    .prediction =
        "17 to 21 TFLOPS. A key of 16 rows takes 296 instructions, where 00ad takes 4 x 107: the 32 conversions and "
        "the loads are paid once, so at most 25 TFLOPS. What is left beside 132 multiply-adds: 76 multiplications, "
        "most of them corrections of O by 1. But 221 registers let an SM hold 8 warps instead of 24.",
    .min_sm = 75,
    .needs = "48 KiB of shared memory",
    .writes_lse = true,
    .uncounted = {"107", "33", "296", "32", "132", "76", "1", "221", "24"},
    .resources = {{.sm = 80, .registers = 224, .spill_bytes = 0}, {.sm = 90, .registers = 224, .spill_bytes = 0}},
    .variants = {variant<64, 64, 4>("64x64, 4 warps"), variant<32, 64, 2>("32x64, 2 warps"),
                 variant<64, 32, 4>("64x32, 4 warps")},
});

}  // namespace
