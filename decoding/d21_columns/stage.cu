#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t tiles_of_rows(const ladder::Shape& spec) {
  return (spec.n * (spec.heads / spec.key_heads()) + C::BR - 1) / C::BR;
}

// Without a mask, and of full sequences: else a block's tiles are those of its rows. K is not read by ldmatrix.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.causal || spec.left >= 0 || spec.right >= 0 || spec.lens_k.count > 0) return {};
  if constexpr (C::BR == 8) {
    if (tiles_of_rows<C>(spec) > 1) return predict<typename C::Wide>(spec);
  }
  const uint64_t tiles = tiles_of_rows<C>(spec) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  return {.mma = tiles * of_keys * (C::BC / 8 + C::BR / 8 * C::BC / 16) * (HEAD_DIM / 16),
          .ldmatrix = tiles * of_keys * (C::BC / 16) * (HEAD_DIM / 64)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const bool wide = tiles_of_rows<C>(spec) > 1;
  const uint64_t tiles = wide ? tiles_of_rows<typename C::Wide>(spec) : 1;
  const uint64_t blocks = tiles * spec.batch * spec.key_heads();
  if (blocks == 0) return 0;
  const int shares = wide ? decoding::shares_of<typename C::Wide>(blocks, spec.keys(), decoding::MOST_SHARES)
                          : decoding::shares_of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
  return shares == 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class T>
ladder::Variant variant(ladder::Variant rest = {}) {
  using C = Config<T, 8, 32, 8, 3>;
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::CACHE | ladder::PAGES,
                  .min_d = 32,
                  .max_d = HEAD_DIM,
                  .d_step = 32,
                  .q = ladder::element_of<T>,
                  .kv = ladder::Element::s4,
                  .o = ladder::element_of<T>};
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.few_rows = C::Wide::BR;
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d21_columns",
    .previous = "d17_nibbles",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Of V as the left side all fragments are others again, and so are the rows that a lane has of O. "
                   "Maxima of one row instead of two are spelled out."},
    .idea = "Queries are columns of the second product and V is its left side, so eight rows are no sixteen, and there "
            "are twice as many warps.",
    .limit = "d17_nibbles multiplies and weighs sixteen rows where four heads share keys, so a warp needs 204 "
             "registers and a scheduler has two.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16: "
                  "batch 8 beside 65536 keys 0.34, beside 8192 0.41, beside 1024 0.85; batch 1 beside 65536 0.43, "
                  "beside 8192 0.83, beside 1024 1.00; batch 64 beside 8192 0.35. Within 6 %. At batch 8 beside 65536 "
                  "that is 3.5 TB/s of its own bytes: a warp executes some 20 instructions for a key where d17 has 28, "
                  "and four warps take turns where there were two.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 and bf16, lop3, sub.bf16x2, cp.async, shfl, griddepcontrol, 102 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 64, .reason = "two blocks of 256 threads are on an SM"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"})},
});

}  // namespace
