#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest), 0);
  rest.workspace_bytes = ladder::decoding::workspace<C, shares_of<C>, MOST_BLOCKS>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d04_warps",
    .previous = "d02_split",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Other instructions: mma.sync and cp.async where d02 has wgmma and the copy engine."},
    .idea = "Each warp reads keys of its own, by cp.async, and multiplies them by mma.sync: it waits for nobody, on "
            "any card from sm_80 on.",
    .limit = "Long batches are read at 4.1 TB/s, where cuDNN reaches 4.4: with a kernel for an A100, whose warps copy "
             "whole rows.",
    .prediction = "In turns, in a graph, over d02 in bf16, 32 heads over 8, one query: batch 64 beside 8192 keys 1.08, "
                  "batch 8 beside 65536 1.06 and beside 8192 1.04, batch 1 beside 65536 1.03, beside 8192 and 1024 "
                  "1.00; 32 heads over one, batch 1 beside 65536, 1.00. Within 3 %.",
    .min_sm = 80,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, 96 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 36, .reason = "with 32 rows: O has 128 and Q 64"},
                  {.sm = 90, .registers = 255, .spill_bytes = 36, .reason = "as above"}},
    .variants = {variant<Config<bf16, 16, 16, 4, 3>>(), variant<Config<f16, 16, 16, 4, 3>>({.label = "f16"})},
});

}  // namespace
