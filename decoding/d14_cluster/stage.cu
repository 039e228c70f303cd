#include "harness/stage.hpp"
#include "harness/tiles.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t tiles_of_rows(const ladder::Shape& spec) {
  return (spec.n * (spec.heads / spec.key_heads()) + C::BR - 1) / C::BR;
}

// Without a mask, and of full sequences: else a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.causal || spec.left >= 0 || spec.right >= 0 || spec.lens_k.count > 0) return {};
  const uint64_t rows = spec.n * (spec.heads / spec.key_heads()), wide = rows > C::BR ? 2 : 1;  // of 16
  const uint64_t tiles = (rows + wide * C::BR - 1) / (wide * C::BR) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  return {.mma = tiles * of_keys * wide * 2 * (C::BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = tiles * of_keys * 2 * (C::BC / 16) * (HEAD_DIM / 16)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t tiles = tiles_of_rows<C>(spec) > 1 ? tiles_of_rows<typename C::Wide>(spec) : tiles_of_rows<C>(spec);
  const uint64_t blocks = tiles * spec.batch * spec.key_heads();
  const int parts = blocks == 0 ? 1 : Shares::of<C>(blocks, spec.keys(), decoding::MOST_SHARES).parts();
  return parts == 1 ? 0 : parts * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::CACHE | ladder::PAGES, HEAD_DIM);
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.few_rows = C::BR;  // with 32 rows d02 is faster
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d14_cluster",
    .previous = "d06_pages",
    .role = ladder::Role::lost,
    .idea = "Blocks that share a sequence's keys are a cluster: each puts what it has found into the shared memory of "
            "the block that joins the row. Up to eight shares need no second launch, and no workspace.",
    .limit = "In d06_pages what the shares have found goes through the memory of the card to a second launch, which "
             "waits until the last block is over.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, bf16, over d06's time. Batch 1 with 1024 keys, eight shares "
        "and no second launch: 0.87; batch 8 with 1024 keys, two shares: 0.95; batch 1 with 8192 keys, where a second "
        "launch joins two parts and not sixteen: 0.97; batch 8 with 8192 keys and all that is longer: 0.99 to 1.01. If "
        "the card has no place for sixteen clusters of eight at a time, batch 1 with 8192 keys takes up to twice as "
        "long.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, clusters, 212 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 72, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3, 8>>(), variant<Config<f16, 16, 16, 8, 3, 8>>({.label = "f16"})},
});

}  // namespace
