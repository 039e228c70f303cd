#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const uint64_t joined = decoding::most_shares<C>(spec.keys()) > 1 ? spec.batch_heads() * spec.n : 0;
  return ladder::decoding::products_along<C>(spec, decoding::MOST_BLOCKS, joined * decoding::SHARE_WARPS,
                                             decoding::shares_of);
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return ladder::decoding::parts_bytes(spec, decoding::most_shares<C>(spec.keys()));
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = workspace_bytes<C>;
  rest.several = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d10_along",
    .previous = "d09_own",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::retold,
                   "The block's way once more, with Q copied to shared memory; the maxima of all warps first."},
    .idea = "Q comes along with a share's first keys: nothing is asked for when it is needed.",
    .limit = "In d09_own each share asks for its Q when the one before ends: behind all keys that the memory has been "
             "asked for, that takes microseconds, and no warp multiplies.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, bf16, over d09's time: batch 64 beside 1024 keys "
                  "0.62, beside 8192 0.94; batch 8 beside 8192 0.92, beside 65536 0.94; batch 1 beside 65536 0.90, "
                  "beside 8192 0.92, beside 1024 0.85; 32 lengths from 100 to 15972 0.66; lengths 4641, 45118, 1730 "
                  "and 1696 0.68; 65536 keys and 15 of 1024 0.66. Within 5 %.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 217 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 308, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
