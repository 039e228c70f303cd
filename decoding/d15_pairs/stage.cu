#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t tiles_of_rows(const ladder::Shape& spec) {
  return (spec.n * (spec.heads / spec.key_heads()) + C::BR - 1) / C::BR;
}

// Without a mask, and of full sequences: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (!ladder::decoding::has_all_tiles(spec)) return {};
  using Wide = typename C::Wide;
  const uint64_t heads = spec.batch * spec.key_heads();
  if (tiles_of_rows<C>(spec) > 1) {
    const uint64_t steps = (spec.keys() + Wide::STEP - 1) / Wide::STEP;
    return {.wgmma = tiles_of_rows<Wide>(spec) * heads * steps * Wide::WARPGROUPS * (HEAD_DIM / 16 + Wide::BC / 16)};
  }
  const uint64_t of_keys = heads * ((spec.keys() + C::STEP - 1) / C::STEP) * C::WARPS;  // of a warp
  return {.mma = of_keys * 2 * (C::BC / 8) * (HEAD_DIM / 16), .ldmatrix = of_keys * 2 * (C::BC / 16) * (HEAD_DIM / 16)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t tiles = tiles_of_rows<C>(spec) > 1 ? tiles_of_rows<typename C::Wide>(spec) : tiles_of_rows<C>(spec);
  const uint64_t blocks = tiles * spec.batch * spec.key_heads();
  const auto shares = blocks == 0 ? Shares{1, 1} : Shares::of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
  return shares.are_joined() ? 0 : shares.count * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.conflict_ways = 0;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d15_pairs",
    .previous = "d14_cluster",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "The second tile comes in beside the first, and the two ends of a row, here or in another launch, part."},
    .idea = "Two blocks that share keys are a cluster, for which every card has room, and join in shared memory, "
            "whichever tile they have: 16 rows for each warp, or 64 for each warpgroup.",
    .limit = "In d14_cluster eight blocks are a cluster, and not everywhere has a GPC room for two of them; of more "
             "than 16 rows it has two tiles.",
    .prediction =
        "In turns, in a graph, bf16, over d06's time for one query, 32 heads over 8. One query: batch 1 with 1024 and "
        "8192 keys 0.99 to 1.01, since eight parts are joined in place of sixteen; batch 8 with 1024 keys 0.94, with "
        "8192 0.98, as d14 has them. Batch 8 with 8192 keys: 8 queries 1.03, 16 queries 1.06, where d12 has 1.11 and "
        "1.21: there two launches write and read two parts of every row. 32 heads over one head of keys: batch 1 with "
        "8192 keys 9.0 us, with 65536 17, batch 8 with 8192 14.3.",
    .min_sm = 90,
    .max_sm = 90,
    .needs =
        "mma.m16n8k16 and wgmma in f16 or bf16, cp.async, shfl, griddepcontrol, clusters, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 2>>(), variant<Config<f16, 2>>({.label = "f16"})},
});

}  // namespace
