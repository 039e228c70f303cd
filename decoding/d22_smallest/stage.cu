#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences: else a block's tiles are those of its rows. K is not read by ldmatrix.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  using namespace ladder::decoding;
  if (!has_all_tiles(spec)) return {};
  return of_tile<C>(spec, [&](auto tile) {
    using Tile = decltype(tile);
    const uint64_t of_warps = blocks_of<Tile>(spec) * ((spec.keys() + Tile::STEP - 1) / Tile::STEP) * Tile::WARPS;
    return ladder::Counts{
        .mma = of_warps * (Tile::BC / 8 * (HEAD_DIM / 16) + Tile::BR / 8 * Tile::BC / 16 * (HEAD_DIM / 16 + 1)),
        .ldmatrix = of_warps * (Tile::BC / 16) * (HEAD_DIM / 64)};
  });
}

template <class T>
ladder::Variant variant(ladder::Variant rest = {}) {
  using C = Config<T, 8, 32, 8, 3>;
  rest = ladder::decoding::of_bits<C>(std::move(rest), ladder::Element::s4, 32);
  rest.workspace_bytes =
      ladder::decoding::workspace_of_tile<C, decoding::shares_of<C>, decoding::shares_of<typename C::Wide>,
                                          decoding::MOST_SHARES>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d22_smallest",
    .previous = "d21_columns",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Weights times V's scales are f16 here and have to fit, so a row's maximum is one of both; Q is "
                   "brought into the range of f16."},
    .idea = "Four bits are one of f16's smallest numbers as they stand, so V's are not converted, and what they are "
            "too large by is taken from sums.",
    .limit = "d21_columns takes eleven instructions to unpack eight numbers, and these are more than half of all that "
             "it executes.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16: batch 8 "
        "beside 65536 keys 0.30, beside 8192 0.38, beside 1024 0.85; batch 1 beside 65536 0.41, beside 8192 0.82, "
        "beside 1024 1.01; batch 64 beside 8192 0.31. Within 6 %. At batch 8 beside 65536 that is 3.9 TB/s of its own "
        "bytes, nearly what d13 reads: a warp executes some 16 instructions for a key where d21 has 20.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, lop3, sub.f16x2, cp.async, shfl, griddepcontrol, 102 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 64, .reason = "two blocks of 256 threads are on an SM"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"})},
});

}  // namespace
