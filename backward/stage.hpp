// For a stage.cu of gradients as models ask for them, from 73_lengths on: what is multiplied, what the workspace holds,
// and which problems these take.
#pragma once
#include "harness/stage.hpp"
#include "harness/tiles.hpp"

namespace ladder::gradients {

// Products are counted per warpgroup, 64 keys, and tile of queries: S and dP; dV and dK; dQ. Of these dP, dV and dK run
// on beside other work. Blocks that take turns say how often a turn is passed on, and nothing of barriers.
template <class C>
Counts predict(const Shape& shape) {
  constexpr uint64_t D_SLICES = C::HEAD_DIM / 16, QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles, turns = C::IN_TURN ? walks.blocks + 2 * walks.tiles : 0;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),
          .barriers = C::IN_TURN ? 0 : 2 * walks.blocks + walks.tiles,
          .gmem_bytes_reduced = walks.tiles * C::BR * C::HEAD_DIM * sizeof(float) + turns * 4};
}
// The same where a tile's dQ and dK are made under the next tile's exponentials, from 84_meanwhile on. No tile has a
// barrier of its own.
template <class C>
Counts predict_meanwhile(const Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles, later = pairs - 2 * walks.walking;
  Counts counts = predict<C>(shape);
  counts.wgmma_left_running = pairs * QUERY_SLICES + later * (KEY_SLICES + QUERY_SLICES);  // dV; dQ, dK
  counts.wgmma_beside_exponentials = later * (KEY_SLICES + QUERY_SLICES);                  // dQ, dK
  counts.barriers = C::IN_TURN ? 0 : 2 * walks.blocks;
  return counts;
}

// The list, eight words for each sequence; of each tile of queries and each head the sum of dQ, LSE and D; and three
// words of turns, where blocks take them.
template <class C>
uint64_t workspace_bytes(const Shape& spec) {
  const uint64_t of_tile = C::BR * (C::HEAD_DIM + 2) + (C::IN_TURN ? 3 : 0);
  return (spec.batch * 8 + q_tiles_of(spec, C::BR) * spec.heads * of_tile) * 4;
}

// Of several lengths a box may not begin behind the columns.
template <class C>
Variant variant(Variant rest, uint32_t features = MODELS | WINDOW | VARLEN) {
  rest.accepts = accepts_any_d<typename C::T>(features, C::HEAD_DIM, C::HEAD_DIM - 64 + 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.same_bits = C::IN_TURN;
  rest.recorded = true;
  return rest;
}

}  // namespace ladder::gradients
