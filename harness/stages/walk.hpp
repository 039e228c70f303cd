// For the predictions of rungs: what a warpgroup that copies knows of the products of one that multiplies when it asks for a tile, and
// which block or multiprocessor has most to do. Without the standard library, as stage_words.hpp.
#pragma once
#include "harness/stages/stage_words.hpp"

namespace ladder {

// A warpgroup's walk over `rounds` tiles of queries with `tiles` tiles of keys each. Q K^T of a tile is started before P V of the
// tile before, K is released when its product is over, V and Q when nothing runs. A tile is asked for as soon as the use of its stage
// before has been released: Q, then K one tile ahead of V.
struct Walk {
  uint64_t rounds = 1, tiles = 0, stages;
  uint64_t qk, pv;  // products of a tile
  // Q, which has two stages, is released only when Q K^T of the next one's first tile is over.
  bool late_queries = false;

  // Counts::wgmma_under_loads
  uint64_t under_loads() const {
    constexpr uint64_t MOST_STAGES = 8;
    // Products that have been issued when K or V of a tile is waited for, and that are over when it is released; those that who asks
    // has been told of.
    uint64_t after_K[MOST_STAGES] = {}, after_V[MOST_STAGES] = {}, after_Q[2] = {}, known = 0, sum = 0;
    // Where another use has been released before.
    const auto wait = [&](uint64_t issued, bool is_told, uint64_t over) {
      if (is_told) known = max(known, over);
      sum += issued - known;
    };
    const auto load = [&](uint64_t tile, uint64_t issued, uint64_t own, uint64_t* after) {
      wait(issued, tile >= stages, after[tile % stages]);
      after[tile % stages] = issued + own;
    };
    for (uint64_t round = 0, issued = 0; round < rounds; ++round) {
      wait(issued, round >= 2, after_Q[round % 2]);
      const uint64_t first = round * tiles;
      for (uint64_t i = 0; i <= tiles; ++i) {
        if (i < tiles) load(first + i, issued + i * qk + (i > 0 ? i - 1 : 0) * pv, qk, after_K);
        if (i > 0) load(first + i - 1, issued + min(i + 1, tiles) * qk + (i - 1) * pv, pv, after_V);
      }
      issued += tiles * (qk + pv);
      after_Q[round % 2] = issued + (late_queries ? qk : 0);
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

// Where clusters of two blocks take pairs of tiles of queries by turns, as many of a head as it has tiles of keys; under a mask, where a
// tile of queries sees the tiles of keys up to its own, two pairs at a time, a head's longest and its shortest.
struct Coupled {
  uint64_t q_tiles, pairs, heads;
  uint64_t tiles,
      copied;  // of keys: a block computes with those up to its own, and copies half of what its pair's later one needs
  uint64_t shares, clusters;  // two pairs or one
  uint64_t blocks, rounds;    // of the first cluster
  uint64_t idle;              // second blocks whose tiles all lie outside; under a mask they have an earlier pair, too
};
inline Coupled coupled(const Launched& shape, uint64_t br) {
  const uint64_t q_tiles = shape.n / br, pairs = (q_tiles + 1) / 2, heads = shape.batch_heads();
  const uint64_t shares = heads * (shape.causal ? (pairs + 1) / 2 : pairs);
  const uint64_t clusters = min<uint64_t>(shares, shape.multiprocessors / 2);
  const uint64_t rounds = (shares + clusters - 1) / clusters * (shape.causal && pairs > 1 ? 2 : 1);
  Coupled all{q_tiles, pairs, heads, 0, 0, shares, clusters, 2 * clusters, rounds, 0};
  for (uint64_t q_tile = 0; q_tile < 2 * pairs; ++q_tile) {
    const uint64_t kv_tiles = shape.causal ? min((q_tile / 2 + 1) * 2, q_tiles) : q_tiles;
    all.tiles += heads * (shape.causal ? min(q_tile + 1, kv_tiles) : kv_tiles);
    all.copied += heads * kv_tiles;
  }
  for (uint64_t cluster = 0; cluster < clusters; ++cluster) {
    bool works = shape.causal && q_tiles > 1;
    for (uint64_t pair = cluster; pair < pairs * heads; pair += clusters) works |= pair % pairs * 2 + 1 < q_tiles;
    all.idle += !works;
  }
  return all;
}

// The most tiles whose weights a warp in each block makes twice, if from then on it is careful, with its next queries, too.
inline uint64_t surprises(const Launched& shape, uint64_t br) {
  const Coupled all = coupled(shape, br);
  const uint64_t couples = (all.pairs + 1) / 2;
  uint64_t sum = 0;
  for (uint64_t cluster = 0; cluster < all.clusters; ++cluster) {
    uint64_t rounds = 0;
    for (uint64_t share = cluster; share < all.shares; share += all.clusters)
      rounds += shape.causal && share % couples * 2 + 1 < all.pairs ? 2 : 1;
    sum += (rounds + 1) / 2;
  }
  return sum;
}

// Counts::products_of_busiest_block of these, of each of its warpgroups.
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

// Counts::products_of_busiest_sm of blocks that begin one after the other, each with so many products.
class BusiestSm {
 public:
  explicit BusiestSm(uint32_t multiprocessors) : sms_(min<uint64_t>(multiprocessors, MOST_SMS)) {}

  uint64_t most = 0;

  void block(uint64_t products) {
    uint64_t* first_free = busy_until_;
    for (uint64_t sm = 1; sm < sms_; ++sm) {
      if (busy_until_[sm] < *first_free) first_free = &busy_until_[sm];
    }
    *first_free += products;
    most = max(most, *first_free);
  }

 private:
  static constexpr uint64_t MOST_SMS = 256;
  uint64_t sms_, busy_until_[MOST_SMS] = {};
};

}  // namespace ladder
