#include "harness/stage.hpp"
#include "harness/tiles.hpp"
#include "kernel.cuh"

namespace {

// Without a mask: with one a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.causal || spec.left >= 0 || spec.right >= 0) return {};
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), wide = rows > C::BR ? 2 : 1;  // of 16
  const uint64_t tiles = (rows + wide * C::BR - 1) / (wide * C::BR) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  return {.mma = tiles * of_keys * wide * 2 * (C::BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = tiles * of_keys * 2 * (C::BC / 16) * (HEAD_DIM / 16)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), of_tile = rows > C::BR ? C::Wide::BR : C::BR;
  const uint64_t blocks = (rows + of_tile - 1) / of_tile * spec.batch * spec.key_heads();
  const int shares = blocks == 0 ? 1 : shares_of<C>(blocks, spec.keys(), MOST_SHARES);
  return shares == 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(ladder::MODELS | ladder::WINDOW, HEAD_DIM);
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.few_rows = C::BR;  // with 32 rows d02 is faster
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d05_dependent",
    .previous = "d04_warps",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "It says what d04 spells out; the parts have names that pages and lists need."},
    .idea = "What comes behind the reading is short: the launch that joins is there before it is needed, and has less "
            "to join.",
    .limit = "In d04_warps the join begins when the last share has ended. Of 7 us beside 1024 keys less than one is "
             "reading.",
    .prediction = "In turns, in a graph, over d04 in bf16, 32 heads over 8, one query: batch 1 beside 1024 keys 1.18, "
                  "beside 8192 1.14, beside 65536 1.04; batch 8 beside 8192 1.02 and batch 64 1.00; 32 heads over one, "
                  "batch 1 beside 65536, 1.8. Within 4 %. Eight warps alone, without the early launch, were tried: "
                  "1.01, 1.07, 1.02, 1.00, 1.00, 1.20.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 40, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
