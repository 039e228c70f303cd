#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const ladder::decoding::Tiles<C> tiles(spec);
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, decoding::MOST_SHARES);
  const uint64_t joins = ladder::min<uint64_t>(tiles.rows, tiles.wide * C::BR) * blocks;
  return ladder::decoding::products<C>(spec, {.warps = blocks * C::WARPS + joins * decoding::JOIN_WARPS});
}

// Of two parts of each block, whatever is asked.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  if (spec.keys() == 0) return 0;
  return decoding::MOST_SHARES * 2 * ladder::decoding::Tiles<C>(spec).wide * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = workspace_bytes<C>;
  rest.several = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d08_seamless",
    .previous = "d07_list",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold,
                   "A block's way through the list, which d07 says in d04's words, spelled out anew."},
    .idea = "Where one head ends the next one's keys are on their way: a warp's ring goes on over the seam.",
    .limit = "In d07_list a block begins anew at each head's end: the ring runs empty, and fills again.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, bf16, over d07's time: 32 lengths from 100 to 15972 0.92; "
        "batch 64 beside 1024 keys 0.88, beside 8192 0.98; batch 8 beside 8192 0.95, beside 65536 0.99; batch 1, where "
        "few blocks meet a seam, 1.00; lengths 4641, 45118, 1730 and 1696 0.97. Within 3 %.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 296, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
