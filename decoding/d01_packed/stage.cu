#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& spec) {
  const uint64_t group = spec.heads / spec.key_heads(), blocks_of_head = (spec.n * group + C::BR - 1) / C::BR;
  if (spec.causal || spec.left >= 0 || spec.right >= 0) return {};
  const uint64_t tiles = blocks_of_head * spec.batch * spec.key_heads() * ((spec.keys() + C::BC - 1) / C::BC);
  return {.wgmma = tiles * (HEAD_DIM / 16 + C::BC / 16)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::of_any_d<C>(std::move(rest), 0);
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d01_packed",
    .previous = "42_grouped",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::port,
                   "The rows of a group in one tile, as FlashAttention-2 and others pack them, and no pairs, no "
                   "schedule, no two warpgroups."},
    .idea =
        "The queries of all heads that share keys are the rows of one tile, so K and V are read once for all of them.",
    .limit = "A tile of queries is of one head. Where a text is written token by token there is one query, so each "
             "head reads all keys again, for one row of 128.",
    .prediction = "In turns, over 42 in bf16, 32 heads over 8, one query beside 8192 keys, within 15 %: batch 1 1.0, "
                  "batch 8 2.0, batch 64 5.0. A block needs 2200 clocks for a tile of 128 keys, so 64 tiles take 80 "
                  "us. At batch 1 that is what 42 takes, whose 32 blocks find an SM each; at batch 8 it has 256 blocks "
                  "on 132 SMs; and at batch 64 we meet what memory gives, 2.1 GB in 0.5 ms.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 4, 3>>(), variant<Config<f16, 64, 128, 4, 3>>({.label = "f16"})},
});

}  // namespace
