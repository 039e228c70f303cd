#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = ladder::decoding::workspace<C, decoding::shares_of<C>, decoding::MOST_SHARES>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d06_pages",
    .previous = "d05_dependent",
    .role = ladder::Role::branch,
    .idea = "A cache grows as its text does: it lies in pages, which a table finds, and each sequence has as many keys "
            "as it has.",
    .limit = "In d05_dependent all sequences have as many keys, behind each other: a cache would keep room for the "
             "longest text that each could become.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, bf16: without pages, where all sequences are full, as d05 "
        "(0.99 to 1.01). In pages, over the time in one piece, at batch 8 with 8192 and 65536 keys: of 256 and 64 keys "
        "1.01 at most, of 16 1.02, of 1 key 1.05; at batch 1 with 1024 keys 1.05: the table is asked once before "
        "anything else can be. Lengths 4641, 45118, 1730 and 1696: 65 us, where 50 are reading, because a share of the "
        "longest is six times as long as one of the mean. Bits are the same in pages and in one piece.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 72, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
