#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t groups = shape.batch_heads() * shape.n / 16, pairs = groups * (shape.n / BC);
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t warp_tiles = tiles * WARPS;  // K and V are read once per warp, whatever its M_TILES
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .fragments_in_pairs = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .products_under_copies = (tiles - blocks) * 2 * (BR / WARPS / 16) * BC,  // PV, under the next K and V
          .exponentials_under_copies = (tiles - blocks) * 2 * (BR / WARPS / 16) * (BC / 2),  // and the weights
          .loads_awaited_by_asker = blocks + 2 * tiles,                                      // all of them
          .arrivals_awaited_at_once = ladder::NONE,    // or all would wait for the slowest
          .shuffles = pairs * 2 * 2 + groups * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
          .votes = warp_tiles,                         // whether anything has to be rescaled
          .yes_votes = blocks * WARPS,                 // in the first tile
          .exponentials = pairs * 16 * (BC + 4),       // weights; a correction in each of a row's four lanes
          .products_after_exponentials = warp_tiles * (BC / 16),  // a slice of PV behind its weights
          .barriers = blocks,
          .bulk_copies = blocks + 2 * tiles,  // Q; K and V
          .gmem_accesses = blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = 2 * BR * ROW_BYTES / 32,  // of a block; half used
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "13_tma",
    .previous = "12_wide",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::is_new,
                   "TMA: tensor maps, copies of whole boxes by one thread, and mbarriers that count bytes."},
    .idea = "One thread asks the copy engine (TMA) for a whole tile, instead of every thread for its share of it.",
    .limit = "Each warp spends 8 cp.async on every tile of K and V, and keeps their addresses in registers that the "
             "products need.",
    .prediction =
        "+5 % to +8 %: without copies and barriers the products ran a tenth faster, and both copies and waiting for "
        "places are one thread's business now. The registers of the copies' addresses end the spilling.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 128 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<256, 64, 8>>(), variant<Config<128, 64, 4>>()},
});

}  // namespace
