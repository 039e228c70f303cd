// For a stage.cu of decoding, from d04_warps on: which problems these take, and what is multiplied.
#pragma once
#include "harness/stages/stage.hpp"

namespace ladder::decoding {

constexpr uint64_t HEAD_DIM = 128;

// A problem in tiles of C::BR rows, or of twice as many where one does not hold all that share a head of keys.
template <class C>
struct Tiles {
  uint64_t rows, wide, count, steps;  // of a head of keys; a tile's sixteens; of all heads; steps of keys beside a tile

  explicit Tiles(const Shape& spec)
      : rows(spec.n * (spec.heads / spec.key_heads())),
        wide(rows > C::BR ? 2 : 1),
        count((rows + wide * C::BR - 1) / (wide * C::BR) * spec.batch * spec.key_heads()),
        steps((spec.keys() + C::STEP - 1) / C::STEP) {}
};

// Without a mask, and of full sequences: else a block's tiles are those of its rows.
inline bool has_all_tiles(const Shape& spec) {
  return !spec.causal && spec.left < 0 && spec.right < 0 && spec.lens_k.count == 0;
}
template <class C>
Counts products(const Launched& spec, Counts counts = {}) {
  if (!has_all_tiles(spec)) return counts;
  const Tiles<C> tiles(spec);
  const uint64_t of_warps = tiles.count * tiles.steps * C::WARPS;
  counts.mma = of_warps * tiles.wide * 2 * (C::BC / 8) * (HEAD_DIM / 16);
  counts.ldmatrix = of_warps * 2 * (C::BC / 16) * (HEAD_DIM / 16);
  return counts;
}

// Of so many shares of each row: their parts of O, maxima and sums. One alone leaves none.
inline uint64_t parts_bytes(const Shape& spec, int shares) {
  return shares <= 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
Variant variant(Variant rest, uint32_t more_features = CACHE | PAGES) {
  rest.accepts = accepts_any_d<typename C::Element>(MODELS | WINDOW | more_features, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.few_rows = C::BR;  // with 32 rows d02 is faster
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return rest;
}

}  // namespace ladder::decoding
