// Which blocks of keys a tile of queries meets, as a Spec's words say it: for the lists that a kernel gets, for the reference, and for
// the predictions of rungs. Without the standard library, as stage_words.hpp.
#pragma once
#include "harness/stages/intervals.hpp"

namespace ladder::blocks {

enum class Kind { none, part, whole };

// What a block's draws begin with.
inline uint64_t draw(const Spec& spec, int64_t sequence, int64_t q_block, int64_t k_block) {
  return hash(hash(hash(uint64_t(spec.blocks.seed)) + uint64_t(sequence)) ^ hash(uint64_t(q_block << 32 | k_block)));
}
inline bool is_below(uint64_t drawn, float share) {
  return static_cast<float>(drawn >> 40) < share * float(1 << 24);
}
inline Kind drawn(const Spec& spec, uint64_t draw) {
  return !is_below(draw, spec.blocks.density)        ? Kind::none
         : is_below(hash(draw), spec.blocks.partial) ? Kind::part
                                                     : Kind::whole;
}
// Of a block in part, a pair of a row of it and a key of it. Every fourth row sees nothing of it, so that it may meet its first key later.
inline bool pair(uint64_t draw, int64_t row, int64_t key) {
  const uint64_t of_row = hash(draw + uint64_t(row));
  return of_row % 4 != 0 && hash(of_row + uint64_t(key)) % 2 == 0;
}

// A tile of queries, and what its rows see otherwise.
struct Tile {
  const Spec& spec;
  int64_t sequence, q_block, rows;
  Interval seen[Blocks::QUERIES];

  Tile(const Spec& spec, int64_t sequence, int64_t q_block)
      : spec(spec),
        sequence(sequence),
        q_block(q_block),
        rows(min<int64_t>(Blocks::QUERIES, spec.n - q_block * Blocks::QUERIES)) {
    for (int64_t row = 0; row < rows; ++row)
      seen[row] = seen_otherwise(spec, sequence, q_block * Blocks::QUERIES + row);
  }
  static int64_t count(const Spec& spec) { return (spec.n + Blocks::QUERIES - 1) / Blocks::QUERIES; }
  static int64_t of_keys(const Spec& spec) {  // one, if there are none: an empty list is a list
    return max<int64_t>((spec.keys() + spec.blocks.keys - 1) / spec.blocks.keys, 1);
  }

  bool sees(int64_t row, int64_t key) const {
    const uint64_t draw = blocks::draw(spec, sequence, q_block, key / spec.blocks.keys);
    const Kind kind = drawn(spec, draw);
    return seen[row].first <= key && key < seen[row].end && kind != Kind::none &&
           (kind == Kind::whole || pair(draw, row, key % spec.blocks.keys));
  }
  // Whole: all rows see all of its keys, and it has no room for more.
  Kind kind(int64_t k_block) const {
    const int64_t first = k_block * spec.blocks.keys, end = first + spec.blocks.keys;
    const Kind kind = drawn(spec, blocks::draw(spec, sequence, q_block, k_block));
    if (kind == Kind::none) return Kind::none;
    bool all = kind == Kind::whole, any = false;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from = max<int64_t>(first, seen[row].first), to = min<int64_t>(end, seen[row].end);
      all &= from == first && to == end;
      if (kind == Kind::whole) any |= from < to;
      for (int64_t key = from; key < to && !any; ++key) any = sees(row, key);
    }
    return !any ? Kind::none : all ? Kind::whole : Kind::part;
  }
};

}  // namespace ladder::blocks
