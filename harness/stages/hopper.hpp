// For a stage.cu of hopper, from 22_overlap on: what warpgroups multiply, for which from 23_producer on a third one copies, and what is
// counted besides. A rung says what of this it changes.
#pragma once
#include "harness/stages/stage.hpp"
#include "harness/stages/walk.hpp"

namespace ladder::hopper {

constexpr uint64_t HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2;

// Weights of all tiles but the first of a walk, packed beside the PV before: a warp says yes once, in its first tile, and votes in each.
template <class C>
uint64_t packed_weights(const Counts& counts) {
  return (counts.votes - counts.yes_votes) * 32 * (C::BC / 4);
}

// A block has a tile of queries; from 24_vote on rows exchange maxima in its first tile of keys alone. wgmma is counted per warpgroup, 64
// queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
Counts of_blocks(const Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  const Walk walk{.tiles = uint64_t(shape.n / BC), .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16};
  return {
      .wgmma = pairs * (HEAD_DIM / 16 + BC / 16),                    // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (pairs - warps / 4) * (BC / 16),         // PV of each tile but the last, beside a softmax
      .wgmma_beside_exponentials = (pairs - warps / 4) * (BC / 16),  // all of them
      .wgmma_under_loads = WARPS / 4 * under_loads(walk, blocks, blocks),
      .shuffles = warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = warp_tiles,            // whether anything has to be rescaled
      .yes_votes = warps,             // in the first tile
      .exponentials = (warp_tiles * BC + warps * 4) * 16,  // weights; the corrections of the first tile
      .barriers = blocks,
      .bulk_copies = blocks + 2 * tiles,  // Q; K and V
      .gmem_accesses = blocks * BR * ROW_BYTES / 4,
      .gmem_sectors = 2 * BR * ROW_BYTES / 32,  // of a block; half used
      .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
      .gmem_bytes_written = blocks * BR * ROW_BYTES,
      .unused_smem_bytes = uint64_t(max<int64_t>(0, C::STAGES - shape.n / C::BC)) * 2 * BC * ROW_BYTES};  // short heads
}

// Before that, from 22_overlap on, each tile has maxima of its own, which rows exchange beside a product, but for the first tile.
template <class C>
Counts with_maxima(const Shape& shape) {
  Counts counts = of_blocks<C>(shape);
  counts.shuffles = (counts.votes + counts.yes_votes) * 2 * 2;  // two rows, two exchanges: a tile's maxima, the sums
  counts.shuffles_beside_products = (counts.votes - counts.yes_votes) * 2 * 2;
  counts.exponentials = counts.votes * 16 * (C::BC + 4);  // weights; a correction in each of a row's four lanes
  return counts;
}

// From 27_careful on a warp may make the weights of one tile twice, and is careful from then on.
template <class C>
Counts tile_made_twice(const Launched& shape) {
  return {.exponentials = uint64_t(shape.batch_heads() * shape.n / C::BR) * C::WARPS * 16 * C::BC};
}
// The same of pairs of tiles of queries (30_cluster).
template <class C>
Counts pairs_tile_made_twice(const Launched& shape) {
  return {.exponentials = uint64_t(shape.batch_heads() * ((shape.n / C::BR + 1) / 2) * 2) * C::WARPS * 16 * C::BC};
}
// From 33_remember on it stays careful with its next queries, too.
template <class C>
Counts remembered(const Launched& shape) {
  return {.exponentials = surprises(shape, C::BR) * 2 * C::WARPS * 16 * C::BC};
}
// From 34_under on O is corrected at rest before the last product alone.
template <class C>
Counts remembered_under(const Launched& shape) {
  Counts counts = remembered<C>(shape);
  counts.corrections_at_rest = coupled(shape, C::BR).pairs * shape.batch_heads() * 2 * C::WARPS * 32;
  return counts;
}

// From 31_masked on pairs of blocks take pairs of tiles of queries. Shuffles are counted per warp and tile of queries. `late_queries`: Q
// is released when QK of the next queries' first tile is over.
template <class C>
Counts in_pairs(const Launched& shape, bool late_queries) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const auto [q_tiles, pairs, heads, tiles, copied, shares, clusters, blocks, rounds, idle] = coupled(shape, BR);
  const uint64_t q_warps = heads * 2 * pairs * WARPS;
  const Walk walk{
      .tiles = q_tiles, .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16, .late_queries = late_queries};
  return {
      .wgmma = tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),           // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // PV, but of the last tile
      .wgmma_beside_exponentials = (tiles * WARPS - q_warps) / 4 * (BC / 16),  // all of them
      .wgmma_under_loads = shape.causal ? 0 : 2 * WARPS / 4 * under_loads(walk, shares, clusters),
      .products_of_busiest_block = WARPS / 4 * products_of_busiest(walk, heads, clusters, shape.causal),
      .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
      .votes = tiles * WARPS,           // whether anything has to be rescaled
      .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
      .yes_votes = q_warps,             // in the first tile
      .exponentials = (tiles * WARPS * BC + q_warps * 4) * 16,             // weights; the first tile's corrections
      .packs_beside_products = (tiles * WARPS - q_warps) * 32 * (BC / 4),  // weights, beside the PV before
      .barriers = 2 * blocks + q_warps / 4,                                // of the cluster, and one of a warpgroup
      .bulk_copies = heads * 2 * pairs + 2 * copied + 2 * q_warps,         // Q; a panel of K and V; two of a warp's O
      .gmem_bytes_read = (heads * q_tiles * BR + copied * BC) * ROW_BYTES,
      .gmem_bytes_written = heads * q_tiles * BR * ROW_BYTES,
      .multicast_bytes = copied * 2 * BC * ROW_BYTES,
      .unused_smem_bytes = ((rounds < 2 ? BR : 0) + 2 * BC * (C::STAGES - min<uint64_t>(C::STAGES, rounds * q_tiles))) *
                           ROW_BYTES,  // the second Q, and stages
      .idle_blocks = idle};
}
template <class C>
Counts in_pairs(const Launched& shape) {
  return in_pairs<C>(shape, false);
}
// From 32_drain on O's two panels leave under the next QK.
template <class C>
Counts drained(const Launched& shape) {
  const Coupled all = coupled(shape, C::BR);
  Counts counts = in_pairs<C>(shape);
  counts.products_under_copies = (all.heads * all.pairs - all.clusters) * 2 * C::WARPS * 2 * (HEAD_DIM / 16);
  return counts;
}
// From 36_bits on integers tell the larger of two scores, where a warp is careful and nowhere else.
template <class C>
Counts by_integers(const Launched& shape) {
  Counts counts = drained<C>(shape);
  counts.integer_maxima = NONE;
  return counts;
}

}  // namespace ladder::hopper
