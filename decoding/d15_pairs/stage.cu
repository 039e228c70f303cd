#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return ladder::decoding::of_tile<C>(spec, [&](auto tile) {
    const uint64_t blocks = ladder::decoding::blocks_of<decltype(tile)>(spec);
    const auto shares = blocks == 0 ? Shares{1, 1} : Shares::of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
    return shares.are_joined() ? 0 : ladder::decoding::parts_bytes(spec, shares.count);
  });
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.conflict_ways = 0;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::products_of_pairs<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d15_pairs",
    .previous = "d14_cluster",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "The second tile comes in beside the first, and the two ends of a row, here or in another launch, part."},
    .idea = "Two blocks that share keys are a cluster, for which every card has room, and join in shared memory, "
            "whichever tile they have: 16 rows for each warp, or 64 for each warpgroup.",
    .limit = "In d14_cluster eight blocks are a cluster, and not everywhere has a GPC room for two of them; of more "
             "than 16 rows it has two tiles.",
    .prediction = "In turns, in a graph, bf16, over d06's time for one query, 32 heads over 8. One query: batch 1 with "
                  "1024 and 8192 keys 0.99 to 1.01, since eight parts are joined in place of sixteen; batch 8 with "
                  "1024 keys 0.94, with 8192 0.98, as d14 has them. Batch 8 with 8192 keys: 8 queries 1.03, 16 queries "
                  "1.06, where d12 has 1.11 and 1.21: there two launches write and read two parts of every row. 32 "
                  "heads over one head of keys: batch 1 with 8192 keys 9.0 us, with 65536 17, batch 8 with 8192 14.3.",
    .min_sm = 90,
    .max_sm = 90,
    .needs =
        "mma.m16n8k16 and wgmma in f16 or bf16, cp.async, shfl, griddepcontrol, clusters, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 2>>(), variant<Config<f16, 2>>({.label = "f16"})},
});

}  // namespace
