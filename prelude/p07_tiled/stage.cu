#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// Shuffles are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  return {.shuffles = pairs * 4 * 6,  // four rows per lane, three exchanges for the maximum and three for the sum
          .barriers = tiles * 2,
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p07_tiled",
    .previous = "p06_regtile",
    .idea =
        "A whole tile of keys takes one step of the recurrence: a lane computes whole scores of eight keys, and O is "
        "corrected once for 64 keys.",
    .limit = "p06_regtile exchanges three times for every score, corrects O for every key, and computes each weight "
             "eight times.",
    .prediction =
        "1.4 to 1.6 times p06, 31 to 36 TFLOPS. A key of 16 rows takes 185 instructions instead of 296, 128 of them "
        "multiply-adds: what p06 did for every key is done once for 64 keys, and a chunk of Q or K that is read and "
        "converted serves 4 x 8 scores. That bounds it at 41 TFLOPS, and p06 came to 88 % of its own bound.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>(), variant<Config<32, 64, 2>>(), variant<Config<64, 32, 4>>()},
});

}  // namespace
