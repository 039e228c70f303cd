// For a stage.cu of past_fa2, from 09_rescale on: what warps of several 16-row groups of queries load, multiply and wait for. A rung says
// what of this it changes.
#pragma once
#include "harness/stages/stage.hpp"

namespace ladder::past_fa2 {

constexpr uint64_t HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2;

// A block's tile of queries, and those of K and V that it meets. Warp instructions are counted per 16-row group of queries and tile of
// BC keys, a pair.
template <class C>
struct Tiles {
  explicit Tiles(const Shape& shape)
      : blocks(shape.batch_heads() * shape.n / C::BR), of_block(shape.n / C::BC), tiles(blocks * of_block) {}

  uint64_t blocks, of_block, tiles, warp_tiles = tiles * C::WARPS, groups = blocks * C::BR / 16,
                                    pairs = groups * of_block;
  static constexpr uint64_t WARP_GROUPS = C::BR / C::WARPS / 16;  // of 16 rows
};

// 09_rescale: O is rescaled by a vote, and the weights are made beside PV.
template <class C>
Counts rescaled(const Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const Tiles<C> of(shape);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  return {.mma = of.pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = of.pairs * load_Q + of.warp_tiles * (load_K + load_V),  // K and V once per warp
          .fragments_in_pairs = of.pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          // QK of a tile runs under its V, PV under the next K: as many products, and 16 copies for each key.
          .products_under_copies = (2 * of.tiles - of.blocks) * BC * 16 * of.WARP_GROUPS * BC,
          // V under the corrections, the next K under the weights.
          .exponentials_under_copies = (of.tiles * 2 + (of.tiles - of.blocks) * (BC / 2)) * BC * 16 * of.WARP_GROUPS,
          .shuffles = (of.pairs + of.groups) * 2 * 2,  // two rows, two exchanges: a tile's maxima, the sums at the end
          .votes = of.warp_tiles,                      // whether anything has to be rescaled
          .yes_votes = of.blocks * C::WARPS,           // in the first tile
          .exponentials = of.pairs * 16 * (BC + 4),    // weights; a correction in each of a row's four lanes
          .products_after_exponentials = of.warp_tiles * (BC / 16),  // a slice of PV behind its weights
          .barriers = of.tiles * 2,
          .gmem_accesses = of.blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = (BR + 2 * shape.n + 2 * BR) * ROW_BYTES / 32,  // of a block; O's are half used
          .gmem_bytes_read = (of.blocks * BR + of.tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = of.blocks * BR * ROW_BYTES};
}

// From 10_mbarrier on a tile has a slot: PV of the one before runs under it, and the weights.
template <class C>
Counts in_slots(const Shape& shape) {
  constexpr uint64_t BC = C::BC;
  const Tiles<C> of(shape);
  const uint64_t copies = (of.tiles - of.blocks) * 2 * BC * 16;  // each key is 16 of K and 16 of V
  Counts counts = rescaled<C>(shape);
  counts.products_under_copies = copies * of.WARP_GROUPS * BC;
  counts.exponentials_under_copies = copies * of.WARP_GROUPS * (BC / 2);
  counts.arrivals_awaited_at_once = NONE;  // or all would wait for the slowest
  counts.barriers = of.blocks;
  return counts;
}

// From 13_tma on one thread asks for a tile: two copies, of K and of V.
template <class C>
Counts by_one_thread(const Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const Tiles<C> of(shape);
  Counts counts = in_slots<C>(shape);
  counts.products_under_copies = (of.tiles - of.blocks) * 2 * of.WARP_GROUPS * BC;
  counts.exponentials_under_copies = (of.tiles - of.blocks) * 2 * of.WARP_GROUPS * (BC / 2);
  counts.loads_awaited_by_asker = counts.bulk_copies = of.blocks + 2 * of.tiles;  // all of them: Q; K and V
  counts.gmem_sectors = 2 * BR * ROW_BYTES / 32;                                  // of a block; half used
  return counts;
}

// From 14_ring on it is on its way under all of the tiles before it in the ring, but for the first product of the one that asks.
template <class C>
Counts around_a_ring(const Shape& shape) {
  const Tiles<C> of(shape);
  const uint64_t ahead = C::SLOTS - 1;
  uint64_t under_copy = 0;  // of a product's size
  for (uint64_t tile = 0; tile < of.of_block; ++tile) under_copy += tile < ahead ? 2 * tile : 2 * ahead - 1;
  Counts counts = by_one_thread<C>(shape);
  counts.products_under_copies = of.blocks * 2 * under_copy * of.WARP_GROUPS * C::BC;  // under K and V
  return counts;
}

// From 15_relative on the maxima of the first tile are those of all, until a score has outgrown one.
template <class C>
Counts relative(const Shape& shape) {
  const Tiles<C> of(shape);
  Counts counts = around_a_ring<C>(shape);
  counts.exponentials_under_copies = 0;                           // those of a copy are not foretold
  counts.shuffles = of.groups * 2 * 2 * 2;                        // the maxima of the first tile, the sums at the end
  counts.exponentials = (of.pairs * C::BC + of.groups * 4) * 16;  // weights; the corrections of the first tile
  counts.integer_maxima = of.pairs * 32 * 2 * (C::BC / 8);        // all scores, two at a time
  return counts;
}

}  // namespace ladder::past_fa2
