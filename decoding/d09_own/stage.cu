#include "harness/stage.hpp"
#include "harness/tiles.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences, what is multiplied: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), wide = rows > C::BR ? 2 : 1;  // of 16
  const uint64_t joins = most_shares((spec.keys() + C::STEP - 1) / C::STEP) > 1 ? spec.batch_heads() * spec.n : 0;
  const uint64_t tiles = (rows + wide * C::BR - 1) / (wide * C::BR) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, tiles * of_keys / C::WARPS);
  ladder::Counts counts{.warps = blocks * C::WARPS + joins * JOIN_WARPS};
  if (spec.causal || spec.left >= 0 || spec.right >= 0 || spec.lens_k.count > 0) return counts;
  counts.mma = tiles * of_keys * wide * 2 * (C::BC / 8) * (HEAD_DIM / 16);
  counts.ldmatrix = tiles * of_keys * 2 * (C::BC / 16) * (HEAD_DIM / 16);
  return counts;
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const int most = most_shares((spec.keys() + C::STEP - 1) / C::STEP);
  return most <= 1 ? 0 : most * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
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
    .name = "d09_own",
    .previous = "d08_seamless",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::other,
                   "Shares, who has which, and their join; the block's way, which d08 spells out, is said."},
    .idea = "How long a share is, its own sequence says: a row has the same bits alone and in any batch.",
    .limit = "In d08_seamless the list is cut where the blocks' parts end, and with each other batch elsewhere: sums "
             "are rounded in other places.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, bf16, over d08's time: lengths 4641, 45118, 1730 "
                  "and 1696 1.10; 32 lengths from 100 to 15972 1.02; batch 64 beside 1024 keys 1.08, beside 8192 1.02; "
                  "batch 8 beside 8192 1.02, beside 65536 1.01; batch 1, where the join knows at once who joins, "
                  "beside 1024 and 8192 0.95, beside 65536 1.02. Within 3 %.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 360, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
