// For a stage.cu of models, from 41_rows on: what warpgroups multiply, and which problems a variant takes.
#pragma once
#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"

namespace ladder::models {

inline bool is_window(const Spec& spec) {
  return spec.left >= 0 || spec.right > 0 || (spec.softcap > 0 && spec.alibi);
}
inline bool is_alone(const Spec& spec) {
  return is_window(spec) || (!spec.causal && (spec.softcap > 0 || spec.alibi));
}

// Pairs of blocks take as many tiles of queries of a head, under a mask its longest walks together with its shortest.
template <class C>
Forward in_pairs(const Launched& spec) {
  return {spec, C::BR, C::BC, 2, spec.causal && !is_window(spec)};
}
// The same, but where a window, or functions that are masks of their own, let blocks work alone.
template <class C>
Forward walks(const Launched& spec) {
  return {spec, C::BR, C::BC, is_alone(spec) ? 1 : C::BLOCKS, spec.causal && !is_window(spec)};
}

// Products are counted per warpgroup, 64 queries, and tile of keys. A block meets its cluster `barriers` times, a warpgroup once for each
// tile of queries.
template <class C>
Counts products(int d, const Forward& walks, uint64_t barriers = 2) {
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (d / 16 + C::BC / 16),                // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = NONE,                                     // a first maximum is looked for, and changes nothing
          .barriers = barriers * walks.blocks + first};
}
template <class C, int D>
Counts predict(const Launched& spec) {
  return products<C>(D, walks<C>(spec), is_alone(spec) ? 1 : 2);
}
template <class C, int D>
Counts predict_pairs(const Launched& spec) {
  return products<C>(D, in_pairs<C>(spec));
}
// Where maxima begin so low that each warp says yes in its first tile.
template <class C, int D>
Counts predict_votes(const Launched& spec) {
  Counts counts = predict_pairs<C, D>(spec);
  counts.yes_votes = in_pairs<C>(spec).queries * C::WARPS;
  return counts;
}

// Where warpgroups have turns and each ends with its own 64 queries (96_done): it has its turn on all of the block's tiles of keys, and
// multiplies with those that it sees.
template <class C>
Counts by_strips(const Launched& spec, int d, const Forward& walks) {
  const bool is_whole = spec.softcap > 0 || spec.alibi;
  const Strips strips(spec, C::BR / 64, C::BC, is_whole ? 0 : spec.keys(), false);
  Counts counts = products<C>(d, walks);
  counts.wgmma = strips.tiles * (d / 16 + C::BC / 16);
  counts.wgmma_left_running = (strips.tiles - strips.count) * (C::BC / 16);
  // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
  counts.votes_on_scores = is_window(spec) || spec.softcap > 0 ? 0 : walks.queries * C::WARPS;
  // All but those of the first tile, and of the last one, where it is the block's last, too.
  counts.products_in_turns = counts.wgmma - strips.count * (d / 16 + C::BC / 16) + strips.early * (C::BC / 16);
  counts.products_in_turns *= 4;                                 // warps
  counts.barriers += walks.tiles * C::WARPS / 4 - strips.count;  // a warpgroup's, for each tile of keys
  return counts;
}

template <class T>
Variant variant(Variant rest, uint32_t features, int max_d, int min_d = 8) {
  rest.accepts = accepts_any_d<T>(features, max_d, min_d);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return rest;
}

// A list of the sequences, where these are of several lengths.
template <class Sequence>
uint64_t list_bytes(const Shape& spec) {
  return spec.lens_q.count > 0 ? spec.batch * sizeof(Sequence) : 0;
}

}  // namespace ladder::models
