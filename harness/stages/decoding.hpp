// For a stage.cu of decoding: which problems these take, and from d04_warps on what is multiplied.
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
template <class C>
Counts predict(const Launched& spec) {
  return products<C>(spec);
}

// The blocks of so many rows each, of a head of keys and of all; C::Wide where one of C does not hold a head's rows.
template <class C>
uint64_t tiles_of_rows(const Shape& spec) {
  return (spec.n * (spec.heads / spec.key_heads()) + C::BR - 1) / C::BR;
}
template <class C>
uint64_t blocks_of(const Shape& spec) {
  return tiles_of_rows<C>(spec) * spec.batch * spec.key_heads();
}
template <class C, class F>
auto of_tile(const Shape& spec, const F& f) {
  return tiles_of_rows<C>(spec) > 1 ? f(typename C::Wide()) : f(C());
}

// Of d15_pairs: a warp's tiles of keys, or a warpgroup's.
template <class C>
Counts products_of_pairs(const Launched& spec) {
  if (!has_all_tiles(spec)) return {};
  using Wide = typename C::Wide;
  if (tiles_of_rows<C>(spec) > 1) {
    const uint64_t steps = (spec.keys() + Wide::STEP - 1) / Wide::STEP;
    return {.wgmma = blocks_of<Wide>(spec) * steps * Wide::WARPGROUPS * (HEAD_DIM / 16 + Wide::BC / 16)};
  }
  const uint64_t of_warps = blocks_of<C>(spec) * ((spec.keys() + C::STEP - 1) / C::STEP) * C::WARPS;
  return {.mma = of_warps * 2 * (C::BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = of_warps * 2 * (C::BC / 16) * (HEAD_DIM / 16)};
}
// Of d13_bytes: what of V ldmatrix reads, so many columns at a time; K comes by other loads.
template <class Tile>
Counts products_of_packed_tile(const Launched& spec, uint64_t columns) {
  if (!has_all_tiles(spec)) return {};
  const uint64_t of_warps = blocks_of<Tile>(spec) * ((spec.keys() + Tile::STEP - 1) / Tile::STEP) * Tile::WARPS;
  return {.mma = of_warps * (Tile::BR / 16) * 2 * (Tile::BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = of_warps * (Tile::BC / 16) * (HEAD_DIM / columns)};
}
template <class C>
Counts products_of_packed(const Launched& spec, uint64_t columns) {
  return of_tile<C>(spec, [&](auto tile) { return products_of_packed_tile<decltype(tile)>(spec, columns); });
}
template <class C, int COLUMNS>
Counts predict_packed(const Launched& spec) {
  return products_of_packed<C>(spec, COLUMNS);
}

// Of d10_along, where each share of a tile reads its Q by ldmatrix, too.
template <class C>
Counts products_along(const Launched& spec, uint64_t most_blocks, uint64_t joining_warps, int (*shares_of)(int)) {
  if (spec.keys() == 0) return {};
  const Tiles<C> tiles(spec);
  const uint64_t blocks = min(min<uint64_t>(spec.multiprocessors, most_blocks), tiles.count * tiles.steps);
  Counts counts = products<C>(spec, {.warps = blocks * C::WARPS + joining_warps});
  if (has_all_tiles(spec))
    counts.ldmatrix += tiles.count * shares_of(tiles.steps) * C::WARPS * tiles.wide * (HEAD_DIM / 16);  // Q
  return counts;
}

// Of so many shares of each row: their parts of O, maxima and sums. One alone leaves none.
inline uint64_t parts_bytes(const Shape& spec, int shares) {
  return shares <= 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

// The same of as many shares as SHARES(blocks, keys, MOST multiprocessors) says.
template <class C, int (*SHARES)(int64_t, int, int), int MOST>
uint64_t workspace(const Shape& spec) {
  const uint64_t blocks = Tiles<C>(spec).count;
  return parts_bytes(spec, blocks == 0 ? 1 : SHARES(blocks, spec.keys(), MOST));
}
// Where steps of C::Wide are others, and so are its shares.
template <class C, int (*SHARES)(int64_t, int, int), int (*WIDE_SHARES)(int64_t, int, int), int MOST>
uint64_t workspace_of_tile(const Shape& spec) {
  const uint64_t blocks = of_tile<C>(spec, [&](auto tile) { return blocks_of<decltype(tile)>(spec); });
  const auto shares = tiles_of_rows<C>(spec) > 1 ? WIDE_SHARES : SHARES;
  return parts_bytes(spec, blocks == 0 ? 1 : shares(blocks, spec.keys(), MOST));
}

template <class C>
Variant of_any_d(Variant rest, uint32_t more_features) {
  rest.accepts = accepts_any_d<typename C::Element>(MODELS | WINDOW | more_features, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.few_rows = C::BR;  // with 32 rows d02 is faster
  rest.recorded = true;
  return rest;
}
template <class C>
Variant variant(Variant rest, uint32_t more_features = CACHE | PAGES) {
  rest = of_any_d<C>(rest, more_features);
  rest.conflict_ways = 1.0;
  return rest;
}
// Of a cache of bytes: steps of half as many keys where a tile of rows has few.
template <class C, bool (*is_short)(int64_t, int, int)>
Counts products_of_bytes(const Launched& spec) {
  if (tiles_of_rows<C>(spec) == 1 && is_short(blocks_of<C>(spec), spec.keys(), spec.multiprocessors))
    return products_of_packed_tile<typename C::Short>(spec, 32);
  return products_of_packed<C>(spec, 32);
}
// A cache of fewer bits, of whose columns so many are 16 bytes.
template <class C>
Variant of_bits(Variant rest, Element kv, int d_step) {
  rest = variant<C>(rest);
  rest.accepts.kv = kv;
  rest.accepts.min_d = rest.accepts.d_step = d_step;
  return rest;
}

}  // namespace ladder::decoding
