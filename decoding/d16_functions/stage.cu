#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return ladder::decoding::of_tile<C>(spec, [&](auto tile) {
    const uint64_t blocks = ladder::decoding::blocks_of<decltype(tile)>(spec);
    const auto shares = blocks == 0 ? decoding::PairShares{1, 1}
                                    : decoding::PairShares::of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
    return shares.are_joined() ? 0 : ladder::decoding::parts_bytes(spec, shares.count);
  });
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest),
                                      ladder::CACHE | ladder::PAGES | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK);
  rest.conflict_ways = 0;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::products_of_pairs<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d16_functions",
    .previous = "d15_pairs",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::is_new, "Three functions of a score are three things, each of a few lines."},
    .idea = "What models do to a score before the softmax, they do where they write, too: a softcap, ALiBi, and a "
            "sink, which only the first share adds.",
    .limit = "In d15_pairs a score is Q K^T * scale, so such a model is read by a kernel for many queries.",
    .prediction = "In turns, in a graph, bf16, 32 heads over 8, one query, over d15's time: without functions 1.00 to "
                  "1.01; with a softcap, slopes or sinks 1.00 to 1.02 at batch 8 with 8192 keys, since a warp waits "
                  "for its keys five times as long as it multiplies, and a tile's 128 scores are four tanh a lane. "
                  "Batch 1 with 1024 keys, where nothing waits: 1.02 to 1.06.",
    .min_sm = 90,
    .max_sm = 90,
    .needs =
        "mma.m16n8k16 and wgmma in f16 or bf16, cp.async, shfl, griddepcontrol, clusters, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 2>>(), variant<Config<f16, 2>>({.label = "f16"})},
});

}  // namespace
