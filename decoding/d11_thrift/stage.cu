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
    .name = "d11_thrift",
    .previous = "d10_along",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::retold, "It says what d10 spells out."},
    .idea = "At a share's end nothing is done for rows that are nobody's, and no number is divided.",
    .limit = "In d10_along a block divides some twenty times at each share's end, and stores and reads 16 rows where "
             "four are somebody's: at one step a share that is as long as the reading.",
    .prediction = "Known from a trial: at one step a share 0.84 of d10's time, at four the same.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, shfl, griddepcontrol, 217 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 356, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
