#include "harness/stage.hpp"
#include "harness/tiles.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences, what is multiplied: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), wide = rows > C::BR ? 2 : 1;  // of 16
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, decoding::MOST_SHARES);
  const uint64_t joins = ladder::min<uint64_t>(rows, wide * C::BR) * blocks;
  ladder::Counts counts{.warps = blocks * C::WARPS + joins * decoding::JOIN_WARPS};
  if (spec.causal || spec.left >= 0 || spec.right >= 0 || spec.lens_k.count > 0) return counts;
  const uint64_t tiles = (rows + wide * C::BR - 1) / (wide * C::BR) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  counts.mma = tiles * of_keys * wide * 2 * (C::BC / 8) * (HEAD_DIM / 16);
  counts.ldmatrix = tiles * of_keys * 2 * (C::BC / 16) * (HEAD_DIM / 16);
  return counts;
}

// Of two parts of each block, whatever is asked.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  if (spec.keys() == 0) return 0;
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), of_tile = rows > C::BR ? C::Wide::BR : C::BR;
  return uint64_t(decoding::MOST_SHARES) * 2 * of_tile * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::CACHE | ladder::PAGES, HEAD_DIM);
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.few_rows = C::BR;  // with 32 rows d02 is faster
  rest.several = true;
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d08_seamless",
    .previous = "d07_list",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A block's way through the list, which d07 says in d04's words, spelled out anew."},
    .idea = "Where one head ends the next one's keys are on their way: a warp's ring goes on over the seam.",
    .limit = "In d07_list a block begins anew at each head's end: the ring runs empty, and fills again.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, bf16, over d07's time: 32 lengths from 100 to 15972 "
        "0.92; batch 64 beside 1024 keys 0.88, beside 8192 0.98; batch 8 beside 8192 0.95, beside 65536 0.99; "
        "batch 1, where few blocks meet a seam, 1.00; lengths 4641, 45118, 1730 and 1696 0.97. Within 3 %.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 296, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
