#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = ladder::decoding::workspace<C, shares_of<C>, MOST_MULTIPROCESSORS>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d20_older",
    .previous = "d06_pages",
    .role = ladder::Role::branch,
    .idea = "Pages and lengths on any card from sm_80 on: d06_pages looks keys up, d04_warps has the tile and the "
            "launches.",
    .limit = "d06_pages needs a card that starts a dependent launch early, and 192 KiB of shared memory.",
    .prediction = "No card before Hopper is here, so on an H200: in turns, in a graph, 32 heads over 8, one query, "
                  "bf16, in pages of 64, over d06's time: batch 1 with 1024 keys 1.10 to 1.16, with 8192 1.08 to 1.14, "
                  "with 65536 1.02 to 1.06; batch 8 with 8192 keys 1.00 to 1.04; batch 64 with 8192 keys 0.99 to 1.03. "
                  "That is what d04 costs over d05, and of pages nothing more.",
    .min_sm = 80,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, 96 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 72, .reason = "with 32 rows: O has 128 and Q 64"},
                  {.sm = 90, .registers = 255, .spill_bytes = 72, .reason = "as above"}},
    .variants = {variant<Config<bf16, 16, 16, 4, 3>>(), variant<Config<f16, 16, 16, 4, 3>>({.label = "f16"})},
});

}  // namespace
