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
  using C = Config<T, Byte, 16, 32, 8, 3>;
  rest = ladder::decoding::of_bits<C>(std::move(rest), byte, 16);
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::products_of_bytes<C, is_short<C>>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "d13_bytes",
    .previous = "d06_pages",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::retold,
         "Of bytes all fragments are others: d04's way of a warp, which d06 has in a word, spelled out anew."},
    .idea = "Keys and values are bytes with a scale for each head, and become f16 in registers, on their way to the "
            "product.",
    .limit = "d06_pages reads two bytes for each number, and reading is nearly all that takes time.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, e4m3, over the time of d06 on the same problem in bf16: "
        "batch 8 beside 65536 keys 0.52, beside 8192 0.55, beside 1024 0.74; batch 1 beside 65536 0.55, beside 8192 "
        "0.73, beside 1024 0.98; batch 64 beside 8192 0.52. Within 4 %. That is 4.3 TB/s of its own bytes at batch 8 "
        "beside 65536. 32 heads over 4, batch 1 beside 65536: 21 us. int8 takes as long as e4m3, within 2 %, because "
        "no converter is half busy: at that rate an SM converts some 17 bytes in a clock.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, cvt of e4m3, cp.async, shfl, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 80, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<bf16, E4m3>(ladder::Element::e4m3),
                 variant<f16, E4m3>(ladder::Element::e4m3, {.label = "f16"}),
                 variant<bf16, Int8>(ladder::Element::s8, {.label = "int8"}),
                 variant<f16, Int8>(ladder::Element::s8, {.label = "f16, int8"})},
});

}  // namespace
