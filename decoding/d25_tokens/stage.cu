#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Of blocks with half as long steps there are the most shares.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const auto most = [&](auto tile) {
    using Tile = decltype(tile);
    return ladder::decoding::workspace<Tile, decoding::shares_of<Tile>, decoding::MOST_SHARES>(spec);
  };
  return ladder::decoding::tiles_of_rows<C>(spec) > 1 ? most(typename C::Wide()) : most(typename C::Short());
}

template <class T, class Byte>
ladder::Variant variant(ladder::Element byte, ladder::Variant rest = {}) {
  using C = Config<T, Byte>;
  rest = ladder::decoding::of_bits<C>(std::move(rest), byte, 16);
  rest.accepts.scales = ladder::Scales::token;
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::products_of_bytes<C, is_short<C>>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d25_tokens",
    .previous = "d13_bytes",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::retold,
         "Scales come with the keys, and a weight times one has to fit into f16, so a row's maximum is of both. "
         "The others are what d13 spells out of a cache of bytes, and this rung says."},
    .idea = "Of bytes, too, each key has its scales: K's multiplies a column of S, and V's one of P.",
    .limit = "d13_bytes has one scale for a head, which has to be known before the last token comes.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, e4m3, over the time of d13 on the same problem with a scale "
        "for each head: batch 8 beside 65536 keys 1.04, within 2 %: a key and its value are 264 bytes where they were "
        "256, which is 3.1 %, and a warp's loop has no more instructions, for what d13 does about huge scores is gone: "
        "936 in the machine code where d13 has 970, those with them that are seldom executed. Batch 1 beside 1024 keys "
        "1.03, within 3 %: a tile is there when its scales are, and these are two requests more for a lane.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, cvt of e4m3, cp.async, shfl, griddepcontrol, 198 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 80, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<bf16, E4m3>(ladder::Element::e4m3),
                 variant<f16, E4m3>(ladder::Element::e4m3, {.label = "f16"}),
                 variant<bf16, Int8>(ladder::Element::s8, {.label = "int8"}),
                 variant<f16, Int8>(ladder::Element::s8, {.label = "f16, int8"})},
});

}  // namespace
