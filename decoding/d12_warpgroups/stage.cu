#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (!ladder::decoding::has_all_tiles(spec)) return {};
  const uint64_t tiles = ladder::decoding::blocks_of<C>(spec) * ((spec.keys() + C::STEP - 1) / C::STEP * C::WARPGROUPS);
  return {.wgmma = tiles * (HEAD_DIM / 16 + C::BC / 16)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t blocks = ladder::decoding::blocks_of<C>(spec);
  const int shares = blocks == 0 ? 1 : decoding::shares_of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
  return ladder::decoding::parts_bytes(spec, shares);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.conflict_ways = 0;
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d12_warpgroups",
    .previous = "d06_pages",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "what a block does, which in d06 is a part, is a warpgroup's products here"},
    .idea = "Where a head of keys has more than 16 rows, a warpgroup multiplies: 64 rows for the instructions of one "
            "tile, and each warpgroup has keys of its own.",
    .limit = "In d06_pages a warp multiplies 16 rows. Of 32 it has twice the products and twice the registers, which "
             "spill, and of 64 the keys are read twice.",
    .prediction =
        "In turns, in a graph, bf16, d = 128. Batch 8, 8192 keys, 32 heads over 8: 8 queries 1.02 times d06's time for "
        "one query, 16 queries 1.04 (d02 has 1.13 and 1.20). 32 heads over one head of keys, one query: batch 1 with "
        "8192 keys 10.5 us, with 65536 16.5, batch 8 with 8192 14.5 (d05 has 11.6, 20.4, 18.0). With 16 rows or fewer, "
        "where three quarters of a product are nobody's, no more than 1.05 of d06: reading hides them.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma in f16 or bf16, cp.async, shfl, griddepcontrol, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 64, 2, 3>>(), variant<Config<f16, 64, 64, 2, 3>>({.label = "f16"})},
});

}  // namespace
