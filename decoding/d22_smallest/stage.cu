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
  return {.mma = tiles * of_keys * (C::BC / 8 * (HEAD_DIM / 16) + C::BR / 8 * C::BC / 16 * (HEAD_DIM / 16 + 1)),
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
    .name = "d22_smallest",
    .previous = "d21_columns",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Weights times V's scales are f16 here and have to fit, so a row's maximum is one of both; Q is "
                   "brought into the range of f16."},
    .idea = "Four bits are one of f16's smallest numbers as they stand, so none is converted, and what they are too "
            "large by is taken from sums.",
    .limit = "d21_columns takes eleven instructions to unpack eight numbers, and these are more than half of all that "
             "it executes.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16: batch 8 "
        "beside 65536 keys 0.30, beside 8192 0.38, beside 1024 0.85; batch 1 beside 65536 0.41, beside 8192 0.82, "
        "beside 1024 1.01; batch 64 beside 8192 0.31. Within 6 %. At batch 8 beside 65536 that is 3.9 TB/s of its own "
        "bytes, nearly what d13 reads: a warp executes some 16 instructions for a key where d21 has 20.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, lop3, sub.f16x2, cp.async, shfl, griddepcontrol, 102 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 64, .reason = "two blocks of 256 threads are on an SM"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"})},
});

}  // namespace
