#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR;
  const uint64_t rows = shape.batch_heads() * shape.n, blocks = shape.batch_heads() * ((shape.n + BR - 1) / BR);
  return {.shuffles = blocks * C::WARPS * shape.n * 3,    // the sums of four scores at a time
          .exponentials = blocks * BR * 8 * 2 * shape.n,  // a weight and a correction in each of a row's lanes
          .gmem_accesses = (blocks * BR * (1 + 2 * shape.n) + rows) * HEAD_DIM / 8,
          .gmem_sectors =
              shape.n % BR == 0 ? uint64_t(C::WARPS) * (32 + shape.n * 16 + 32) : 0,  // Q; K and V; O of a block
          .gmem_bytes_read = blocks * BR * HEAD_DIM * 2 * (1 + 2 * shape.n),  // each group asks for all of K and V
          .gmem_bytes_written = rows * HEAD_DIM * 2};
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant({.warps = C::WARPS}, C::SMEM_BYTES, run<C>,
                              reinterpret_cast<const void*>(flash_attention<C>), predict<C>,
                              {.label = std::move(label), .config = ladder::type_name<C>()});
}

const ladder::Registration registration({
    .name = "p04_ownrow",
    .previous = "p03_online",
    .role = ladder::Role::branch,
    .idea = "A group of eight lanes owns a query from the first key to the last: four queries per warp, and nothing to "
            "join.",
    .limit = "p03_online has the 16 groups of a block read 16 different rows of K and V at a time, each for one query.",
    .prediction = "13 to 15 TFLOPS on an H200, up to 1.2x p03. The four groups of a warp now ask for the same 128 "
                  "bytes, so L1 hands out a quarter, and L2 no longer decides. The issue of instructions does: the "
                  "loop has 219 for two keys of four queries, 2048 FLOP a key, so 17 TFLOPS if a scheduler issued in "
                  "every cycle; p03 reaches three quarters of its own bound.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 72, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<Config<4>>("16 queries, 4 warps"), variant<Config<1>>("4 queries, 1 warp"),
                 variant<Config<8>>("32 queries, 8 warps")},
});

}  // namespace
