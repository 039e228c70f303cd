// For a stage.cu of backward, from 64_warpgroups on: what warpgroups multiply, which problems a variant takes, and what its sums need.
#pragma once
#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"

namespace ladder::backward {

// Products are counted per warpgroup, 64 keys, and tile of queries.
template <class C, int D>
struct Products : Backward {
  static constexpr uint64_t D_SLICES = D / 16, QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  uint64_t pairs = 2 * tiles, later = pairs - 2 * walking;  // behind the first tile of a walk

  explicit Products(const Shape& shape) : Backward(shape, C::BR, C::BC) {}

  // Their counts, and what is left running of a pair: dP, dV and dK, if nobody says otherwise.
  Counts counts() const { return counts(pairs * (D_SLICES + 2 * QUERY_SLICES), 2 * blocks + tiles); }
  Counts counts(uint64_t left_running, uint64_t barriers) const {
    return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
            .wgmma_left_running = left_running,
            .barriers = barriers,
            .gmem_bytes_reduced = tiles * C::BR * D * sizeof(float)};
  }
  // Where results are handed over: dV, under dS; the next tile's S and dP, under dQ.
  uint64_t under_fences() const { return C::WARPS * 32 * (tiles * QUERY_SLICES + (tiles - walking) * 2 * D_SLICES); }
  uint64_t turns_bytes() const { return (blocks + 2 * tiles) * 4; }  // turns that are passed on
};
template <class C, int D>
Counts predict(const Shape& shape) {
  return Products<C, D>(shape).counts();
}
// Where dQ and dK of a tile run beside the next tile's exponentials, and dP begins before these end.
template <class C>
Counts predict_afterwards(const Shape& shape) {
  const Products<C, C::COLUMNS> products(shape);
  const uint64_t beside = products.later * (products.KEY_SLICES + products.QUERY_SLICES);
  const uint64_t left = products.pairs * products.QUERY_SLICES + beside + products.later * products.D_SLICES;
  Counts counts = products.counts(left, 2 * products.blocks);
  counts.wgmma_beside_exponentials = beside;
  counts.gmem_bytes_reduced = products.tiles * C::BR * C::SUM_COLUMNS * sizeof(float);
  return counts;
}
// Where who meets whom is data: walk_of(shape, sequence, first key, BR, BC) tiles of queries meet a tile of keys.
template <class C, int D, int64_t (*walk_of)(const Spec&, int, int64_t, int64_t, int64_t)>
Counts predict_walks(const Shape& shape) {
  Products<C, D> products(shape);
  products.walking = products.tiles = 0;
  for (int s = 0; s < shape.batch; ++s) {
    for (int64_t key = 0; key < shape.keys(); key += C::BC) {
      const int64_t walk = walk_of(shape, s, key, C::BR, C::BC);
      products.walking += walk > 0 ? shape.key_heads() : 0;
      products.tiles += shape.heads * walk;
    }
  }
  products.pairs = 2 * products.tiles, products.later = products.pairs - 2 * products.walking;
  return products.counts();
}

// Of a kernel of 128 columns and whole tiles.
template <class T = f16>
Variant plain(Variant rest, uint64_t (*workspace_bytes)(const Shape&), uint32_t features = CAUSAL) {
  rest.accepts = {.features = features, .formula = "backward"};
  rest.accepts.q = rest.accepts.kv = rest.accepts.o = element_of<T>;
  rest.workspace_bytes = workspace_bytes;
  rest.recorded = true;
  return rest;
}
// Of one whose columns end where a head's do; of several lengths a box may not begin behind the columns, so that some say a least d.
template <class T>
Variant any_d(Variant rest, uint64_t (*workspace_bytes)(const Shape&), uint32_t features, int max_d, int min_d = 8) {
  rest.accepts = accepts_any_d<T>(MODELS | features, max_d, min_d, "backward");
  rest.workspace_bytes = workspace_bytes;
  rest.recorded = true;
  return rest;
}

// Of each row so many f32: the sum of dQ, and LSE and D, or one of these.
template <int COLUMNS>
uint64_t sum_bytes(const Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * COLUMNS * sizeof(float);
}
// The same of whole tiles, behind a list of the sequences; and `turns` words for each tile.
template <class C, int COLUMNS, class Sequence, int TURNS = 0>
uint64_t list_and_sum_bytes(const Shape& spec) {
  return spec.batch * sizeof(Sequence) +
         q_tiles_of(spec, C::BR) * spec.heads * (C::BR * COLUMNS * sizeof(float) + TURNS * 4);
}
// The same, and whose turn it is with 32 rows.
template <int COLUMNS>
uint64_t sum_and_turns_bytes(const Shape& shape) {
  const uint64_t turns = shape.n / 32 + 1;
  return uint64_t(shape.batch_heads()) * (shape.n * COLUMNS + turns) * 4;
}

// Of 91's walk, which knows windows, of C::COLUMNS columns or less.
template <class C, class Sequence>
Variant nearby(Variant rest) {
  return any_d<typename C::T>(std::move(rest), list_and_sum_bytes<C, C::HEAD_DIM + 2, Sequence>, WINDOW | VARLEN,
                              C::COLUMNS, C::HEAD_DIM / 2 + 8);
}
// Of a kernel that knows what was done to a score, of C::HEAD_DIM columns or up to a panel less.
template <class C, class Sequence>
Variant scores(Variant rest) {
  return any_d<typename C::T>(std::move(rest), list_and_sum_bytes<C, C::HEAD_DIM + 2, Sequence>,
                              WINDOW | VARLEN | SOFTCAP | ALIBI | SINK, C::HEAD_DIM, C::HEAD_DIM - 64 + 8);
}

}  // namespace ladder::backward
