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
  rest.accepts.scales = ladder::Scales::channel;
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::products_of_bytes<C, is_short<C>>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d24_channels",
    .previous = "d13_bytes",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold, "Most are what d13 spells out of a cache of bytes, and this rung says."},
    .idea = "A scale for each column of keys is multiplied into Q while it is loaded, and one of values into O at the "
            "end: the loop does not know of them.",
    .limit = "d13_bytes has one scale for a head: beside one large column all others have few steps left.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, e4m3, over the time of d13 on the same problem with a scale "
        "for each head: batch 8 beside 65536 keys 1.000, within 0.5 %: to 1.07 GB of keys and values come 65 KB of "
        "scales, and the loop is the same. Batch 1 beside 1024 keys 1.02, within 2 %: a warp has "
        "eight loads of scales to wait for before its first product, together with those of Q and while its first "
        "tiles are on their way, and 512 B more for a block of K and of V, which is a quarter of a tile.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, cvt of e4m3, cp.async, shfl, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 80, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<bf16, E4m3>(ladder::Element::e4m3),
                 variant<f16, E4m3>(ladder::Element::e4m3, {.label = "f16"}),
                 variant<bf16, Int8>(ladder::Element::s8, {.label = "int8"}),
                 variant<f16, Int8>(ladder::Element::s8, {.label = "f16, int8"})},
});

}  // namespace
