// For the predictions of rungs: what a warpgroup that copies knows of the products of one that multiplies when it asks for a tile, and
// which block or multiprocessor has most to do. Without the standard library, as stage_words.hpp.
#pragma once
#include "harness/stage_words.hpp"

namespace ladder {

// A warpgroup's walk over `rounds` tiles of queries with `tiles` tiles of keys each. Q K^T of a tile is started before P V of the
// tile before, K is released when its product is over, V and Q when nothing runs. A tile is asked for as soon as the use of its stage
// before has been released: Q, then K one tile ahead of V.
struct Walk {
  uint64_t rounds = 1, tiles = 0, stages;
  uint64_t qk, pv;             // products of a tile
  bool late_queries = false;   // Q is released only when Q K^T of the next one's first tile is over
  bool early_queries = false;  // Q is released when Q K^T of its own last tile is over
  uint64_t queries = 2;        // stages of Q

  uint64_t under_loads() const;
};

// Counts::wgmma_under_loads of such a walk, round by round, where rounds have numbers of tiles of their own.
class UnderLoads {
 public:
  explicit UnderLoads(const Walk& walk) : walk_(walk) {}

  uint64_t sum = 0;

  void round(uint64_t tiles) {
    // Products that have been issued when K or V of a tile is waited for, and that are over when it is released.
    const uint64_t qk = walk_.qk, pv = walk_.pv;
    wait(issued_, rounds_ >= walk_.queries, after_Q_[rounds_ % walk_.queries]);
    for (uint64_t i = 0; i <= tiles; ++i) {
      if (i < tiles) load(tiles_ + i, issued_ + i * qk + (i > 0 ? i - 1 : 0) * pv, qk, after_K_);
      if (i > 0) load(tiles_ + i - 1, issued_ + min(i + 1, tiles) * qk + (i - 1) * pv, pv, after_V_);
    }
    tiles_ += tiles;
    issued_ += tiles * (qk + pv);
    const uint64_t later = walk_.early_queries ? min<uint64_t>(tiles, 2) * pv : 0;  // than the last Q K^T
    after_Q_[rounds_++ % walk_.queries] = issued_ + (walk_.late_queries ? qk : 0) - later;
  }

 private:
  static constexpr int MOST_STAGES = 8;

  // `over`: products that who asks has been told of, where another use has been released before.
  void wait(uint64_t issued, bool is_told, uint64_t over) {
    if (is_told) known_ = max(known_, over);
    sum += issued - known_;
  }
  void load(uint64_t tile, uint64_t issued, uint64_t own, uint64_t (&after)[MOST_STAGES]) {
    uint64_t& over = after[tile % walk_.stages];
    wait(issued, tile >= walk_.stages, over);
    over = issued + own;
  }

  Walk walk_;
  uint64_t tiles_ = 0, rounds_ = 0, issued_ = 0, known_ = 0;
  uint64_t after_K_[MOST_STAGES] = {}, after_V_[MOST_STAGES] = {}, after_Q_[MOST_STAGES] = {};
};

inline uint64_t Walk::under_loads() const {
  UnderLoads loads(*this);
  for (uint64_t round = 0; round < rounds; ++round) loads.round(tiles);
  return loads.sum;
}

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
