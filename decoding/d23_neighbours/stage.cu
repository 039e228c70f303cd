#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Without a mask, and of full sequences: else a block's tiles are those of its rows. K is not read by ldmatrix.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  using namespace ladder::decoding;
  if (!has_all_tiles(spec)) return {};
  if constexpr (C::HEADS > 1) {
    if (tiles_of_rows<C>(spec) > 1) return predict<typename C::Wide>(spec);
    if (spec.key_heads() % C::HEADS != 0) return predict<typename C::Alone>(spec);
  }
  const uint64_t tiles = tiles_of_rows<C>(spec) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::TEAMS;  // of a warp
  return {.mma = tiles * of_keys * (C::BC / 8 * (HEAD_DIM / 16) + C::BR / 8 * C::BC / 16 * (HEAD_DIM / 16 + 1)),
          .ldmatrix = tiles * of_keys * (C::BC / 16) * (HEAD_DIM / 64)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  using namespace ladder::decoding;
  if constexpr (C::HEADS > 1) {
    if (tiles_of_rows<C>(spec) > 1) return workspace_bytes<typename C::Wide>(spec);
    if (spec.key_heads() % C::HEADS != 0) return workspace_bytes<typename C::Alone>(spec);
  }
  const uint64_t blocks = tiles_of_rows<C>(spec) * spec.batch * (spec.key_heads() / C::HEADS);
  if (blocks == 0) return 0;
  const int shares = decoding::shares_of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
  return parts_bytes(spec, shares);
}

template <class T>
ladder::Variant variant(ladder::Variant rest = {}) {
  using C = Config<T, 8, 32, 8, 3, 2>;
  rest = ladder::decoding::of_bits<C>(std::move(rest), ladder::Element::s4, 32);
  rest.workspace_bytes = workspace_bytes<C>;
  rest.few_rows = C::Wide::BR;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d23_neighbours",
    .previous = "d22_smallest",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A team's two warps copy for both and wait for each other, in all that says where a tile is."},
    .idea = "Two warps, one of each of two heads that stand side by side in memory, fetch for both: pieces of 128 "
            "bytes instead of 64.",
    .limit = "d22_smallest asks for 64 bytes at a time, a head's row, and the memory gives 2.5 TB/s of such pieces "
             "where it gives 4.2 of those of 128.",
    .prediction =
        "In turns, in a graph, 32 heads over 8, one query, over the time of d06 on the same problem in bf16, in a "
        "cache in which a token's heads stand side by side: batch 8 beside 65536 keys 0.335, beside 8192 0.40, beside "
        "1024 0.78; batch 1 beside 65536 0.42, beside 8192 0.80, beside 1024 0.95; batch 64 beside 8192 0.34. Within 6 "
        "%. At batch 8 beside 65536 that is 3.5 TB/s of its own bytes, where d22 has 2.5.",
    .min_sm = 90,
    .needs = "mma.m16n8k16 in f16, lop3, sub.f16x2, cp.async, bar.sync, shfl, griddepcontrol, 102 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 80, .reason = "two blocks of 256 threads are on an SM"}},
    .variants = {variant<bf16>(), variant<f16>({.label = "f16"})},
});

}  // namespace
