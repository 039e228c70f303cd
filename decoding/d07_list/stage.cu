#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const ladder::decoding::Tiles<C> tiles(spec);
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, decoding::MOST_SHARES);
  const uint64_t joins = ladder::min<uint64_t>(tiles.rows, tiles.wide * C::BR) * blocks;
  return ladder::decoding::products<C>(spec, {.warps = blocks * C::WARPS + joins * JOIN_WARPS});
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
    .name = "d07_list",
    .previous = "d06_pages",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A list, which a block reads as its neighbours do, and a join that knows who has a part of what."},
    .idea = "Each block has as much to do as any other: the steps of all sequences stand in one list, and a block "
            "takes its part of that.",
    .limit = "In d06_pages every sequence is cut into as many shares: those of the longest are the longest, and the "
             "card waits for them.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, bf16, over d06's time: lengths 4641, 45118, 1730 "
                  "and 1696 0.80; all full, batch 64 beside 1024 keys 0.97, for 512 blocks are four rounds of 132 but "
                  "for a rest, beside 8192 0.99, batch 8 beside 8192 and 65536 1.00, batch 1 beside 65536 1.01, beside "
                  "1024 1.06: lengths are read and summed before anything is asked for. Within 3 %.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 136, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
