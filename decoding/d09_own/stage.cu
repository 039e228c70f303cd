#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const ladder::decoding::Tiles<C> tiles(spec);
  const uint64_t joins = most_shares(tiles.steps) > 1 ? spec.batch_heads() * spec.n : 0;
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, tiles.count * tiles.steps);
  return ladder::decoding::products<C>(spec, {.warps = blocks * C::WARPS + joins * JOIN_WARPS});
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return ladder::decoding::parts_bytes(spec, most_shares(ladder::decoding::Tiles<C>(spec).steps));
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = workspace_bytes<C>;
  rest.several = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d09_own",
    .previous = "d08_seamless",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::rebuilt,
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
