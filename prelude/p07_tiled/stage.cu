#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Shuffles are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  return {.shuffles = pairs * 4 * 6,  // four rows per lane, three exchanges for the maximum and three for the sum
          .exponentials = pairs * 16 * (BC + 8),  // weights; a correction in each of a row's eight lanes
          .barriers = tiles * 2,
          .gmem_accesses = (2 * blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16,
          .gmem_sectors = (2 * BR + 2 * shape.n) * ROW_BYTES / 32,  // of a block
          // stores of Q; of K and V; QK, P on its way out, PV
          .smem_wavefronts = blocks * BR * 2 + tiles * (BC * 4 + C::WARPS * (256 + 8 * BC + BC / 2 + 12 * BC)),
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES,
          // a load of weights: two groups of rows at a time in the same bank, twice
          .conflicts = pairs * BC * 2};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.largest_score = 0x1p14f;  // a key's sum has its lane's order, and rounds as no other's: p11_lse
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p07_tiled",
    .previous = "p06_regtile",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A step of the recurrence takes a whole tile of keys, so that every loop over keys is cut in two; "
                   "half of it computes nothing that is right."},
    .idea = "A whole tile of keys takes one step of the recurrence: a lane computes whole scores of eight keys, and O "
            "is corrected once for 64 keys.",
    .limit = "p06_regtile exchanges three times for every score, corrects O for every key, and computes each weight "
             "eight times.",
    .prediction = "A tile of 64 queries reads K and V a 64th as often, so memory no longer counts and the FP32 units "
                  "do: of a hundred instructions about 65 are the multiply-adds, the others mostly conversions from "
                  "f16, so at most 45 TFLOPS on an H200; 20 to 30 with the waits for shared memory.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>(), variant<Config<32, 64, 2>>(), variant<Config<64, 32, 4>>()},
});

}  // namespace
