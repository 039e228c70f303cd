#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.keys() == 0) return {};
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), tiles = (rows + C::BR - 1) / C::BR;
  const uint64_t blocks = ladder::min<uint64_t>(spec.multiprocessors, decoding::MOST_SHARES);
  const uint64_t joins = ladder::min<uint64_t>(rows, C::BR) * blocks;
  ladder::Counts counts = {.warps = blocks * C::WARPS + joins * decoding::JOIN_WARPS};
  if (!ladder::decoding::has_all_tiles(spec)) return counts;
  const uint64_t of_warps = tiles * spec.batch * spec.key_heads() * ((spec.keys() + C::STEP - 1) / C::STEP) * C::WARPS;
  counts.mma = of_warps * 2 * (C::BC / 8) * (HEAD_DIM / 16);
  counts.ldmatrix = of_warps * 2 * (C::BC / 16) * (HEAD_DIM / 16);
  return counts;
}

// Of two parts of each block, whatever is asked.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return spec.keys() == 0 ? 0 : decoding::MOST_SHARES * 2 * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest),
                                      ladder::CACHE | ladder::PAGES | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK);
  rest.workspace_bytes = workspace_bytes<C>;
  rest.several = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d19_listed",
    .previous = "d08_seamless",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold, "It says what d08 spells out."},
    .idea = "Softcaps, ALiBi and sinks for sequences of unlike lengths, whose steps stand in one list. A row's sink is "
            "added by who has the first of its steps.",
    .limit = "d08_seamless knows of no function of a score; d16_functions does, and cuts each sequence into as many "
             "shares as the longest.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, bf16, caches in one piece. Lengths 4641, 45118, "
                  "1730 and 1696: without functions 1.00 to 1.02 of d08's time, with a softcap or sinks 1.00 to 1.03, "
                  "with slopes 1.02 to 1.05; with a softcap 0.70 to 0.75 of d16's. 65536 keys beside fifteen times "
                  "1024: with a softcap 0.25 to 0.30 of d16's. 32 lengths from 100 to 15972: with a softcap 0.94 to "
                  "1.02 of d16's, for d08 is no faster than d06 there.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 16, 8, 3>>(), variant<Config<f16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
