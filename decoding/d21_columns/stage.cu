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
    return ladder::Counts{.mma = of_warps * (Tile::BC / 8 + Tile::BR / 8 * Tile::BC / 16) * (HEAD_DIM / 16),
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
    .name = "d21_columns",
    .previous = "d17_nibbles",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Of V as the left side all fragments are others again, and so are the rows that a lane has of O. "
                   "Maxima of one row instead of two are spelled out."},
    .idea = "Queries are columns of the second product and V is its left side, so eight rows are no sixteen, and there "
            "are twice as many warps.",
    .limit = "d17_nibbles multiplies and weighs sixteen rows where four heads share keys, so a warp needs 204 "
             "registers and a scheduler has two.",
    .prediction = "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16: "
                  "batch 8 beside 65536 keys 0.34, beside 8192 0.41, beside 1024 0.85; batch 1 beside 65536 0.43, "
                  "beside 8192 0.83, beside 1024 1.00; batch 64 beside 8192 0.35. Within 6 %. At batch 8 beside 65536 "
                  "that is 3.5 TB/s of its own bytes: a warp executes some 20 instructions for a key where d17 has 28, "
                  "and four warps take turns where there were two.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16 and bf16, lop3, sub.bf16x2, cp.async, shfl, griddepcontrol, 102 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 64, .reason = "two blocks of 256 threads are on an SM"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"})},
});

}  // namespace
