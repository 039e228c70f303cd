#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t blocks = ladder::decoding::Tiles<C>(spec).count;
  const int parts = blocks == 0 ? 1 : Shares::of<C>(blocks, spec.keys(), decoding::MOST_SHARES).parts();
  return ladder::decoding::parts_bytes(spec, parts);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d14_cluster",
    .previous = "d06_pages",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::retold,
                   "Where a block leaves what it has found is the idea, so what d06 says as a part, a block's way from "
                   "its rows to its share, is written out."},
    .idea = "Blocks that share a sequence's keys are a cluster: each puts what it has found into the shared memory of "
            "the block that joins the row. Up to eight shares need no second launch, and no workspace.",
    .limit = "In d06_pages what the shares have found goes through the memory of the card to a second launch, which "
             "waits until the last block is over.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, bf16, over d06's time. Batch 1 with 1024 keys, "
                  "eight shares and no second launch: 0.87; batch 8 with 1024 keys, two shares: 0.95; batch 1 with "
                  "8192 keys, where a second launch joins two parts and not sixteen: 0.97; batch 8 with 8192 keys and "
                  "all that is longer: 0.99 to 1.01. If the card has no place for sixteen clusters of eight at a time, "
                  "batch 1 with 8192 keys takes up to twice as long.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, clusters, 212 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 72, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3, 8>>(), variant<Config<f16, 16, 16, 8, 3, 8>>({.label = "f16"})},
});

}  // namespace
