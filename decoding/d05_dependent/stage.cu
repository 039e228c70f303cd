#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest), 0);
  rest.workspace_bytes = ladder::decoding::workspace<C, shares_of<C>, MOST_SHARES>;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d05_dependent",
    .previous = "d04_warps",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold,
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
