// For the predictions of rungs with a warpgroup that copies: what it knows of the products of one that multiplies when it asks for a
// tile, and which block has most to do. Without the standard library, as stage_words.hpp.
#pragma once
#include "harness/stage_words.hpp"

namespace ladder {

// A warpgroup's walk over `rounds` tiles of queries with `tiles` tiles of keys each. Q K^T of a tile is started before P V of the
// tile before, K is released when its product is over, V and Q when nothing runs. A tile is asked for as soon as the use of its stage
// before has been released: Q, of two stages, then K one tile ahead of V.
struct Walk {
  uint64_t rounds = 1, tiles, stages;
  uint64_t qk, pv;            // products of a tile
  bool late_queries = false;  // Q is released only when Q K^T of the next one's first tile is over

  // Products that have been issued when K or V of a tile is waited for, and that are over when it is released.
  uint64_t before(uint64_t tile) const { return tile / tiles * tiles * (qk + pv); }
  uint64_t at_K(uint64_t tile) const {
    const uint64_t here = tile % tiles;
    return before(tile) + here * qk + (here > 0 ? here - 1 : 0) * pv;
  }
  uint64_t at_V(uint64_t tile) const {
    const uint64_t here = tile % tiles;
    return before(tile) + min(here + 2, tiles) * qk + here * pv;
  }
  uint64_t after_K(uint64_t tile) const { return at_K(tile) + qk; }
  uint64_t after_V(uint64_t tile) const { return at_V(tile) + pv; }

  // Counts::wgmma_under_loads.
  uint64_t under_loads() const {
    uint64_t sum = 0, known = 0;
    const auto learn = [&](uint64_t over) { known = max(known, over); };
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t first = round * tiles;
      if (round >= 2) learn(before(first - tiles) + (late_queries ? qk : 0));
      sum += before(first) - known;
      for (uint64_t tile = first; tile <= first + tiles; ++tile) {
        if (tile < first + tiles) {
          if (tile >= stages) learn(after_K(tile - stages));
          sum += at_K(tile) - known;
        }
        if (tile == first) continue;
        if (tile - 1 >= stages) learn(after_V(tile - 1 - stages));
        sum += at_V(tile - 1) - known;
      }
    }
    return sum;
  }
};

// The same of `walkers` that share `all` rounds as evenly as they can.
inline uint64_t under_loads(Walk walk, uint64_t all, uint64_t walkers) {
  const uint64_t longer = all % walkers;
  walk.rounds = all / walkers;
  const uint64_t sum = (walkers - longer) * walk.under_loads();
  ++walk.rounds;
  return sum + longer * walk.under_loads();
}

// Counts::products_of_busiest_block, of each of its warpgroups, where clusters of two blocks take pairs of tiles of queries by turns, as
// many of a head as it has tiles of keys; under a mask, where a tile of queries sees the tiles of keys up to its own, a head's longest
// pair and its shortest one, and so on.
inline uint64_t products_of_busiest(const Walk& walk, uint64_t heads, uint64_t clusters, bool causal) {
  const uint64_t q_tiles = walk.tiles, pairs = (q_tiles + 1) / 2, per_head = causal ? (pairs + 1) / 2 : pairs;
  uint64_t most = 0;
  for (uint64_t block = 0; block < 2 * clusters; ++block) {
    uint64_t tiles = 0;
    for (uint64_t share = block / 2; share < heads * per_head; share += clusters) {
      const uint64_t low = share % per_head, high = pairs - 1 - low;
      tiles += causal ? min(2 * low + block % 2 + 1, q_tiles) : q_tiles;
      if (causal && high != low) tiles += min(2 * high + block % 2 + 1, q_tiles);
    }
    most = max(most, tiles);
  }
  return most * (walk.qk + walk.pv);
}

}  // namespace ladder
