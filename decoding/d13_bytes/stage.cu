#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

template <class C>
uint64_t tiles_of_rows(const ladder::Shape& spec) {
  return (spec.n * (spec.heads / spec.key_heads()) + C::BR - 1) / C::BR;
}

// Without a mask, and of full sequences: else a block's tiles are those of its rows. K is not read by ldmatrix.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.causal || spec.left >= 0 || spec.right >= 0 || spec.lens_k.count > 0) return {};
  if constexpr (C::BC == 32) {
    if (tiles_of_rows<C>(spec) > 1) return predict<typename C::Wide>(spec);
    if (is_short<C>(spec.batch * spec.key_heads(), spec.keys(), spec.multiprocessors))
      return predict<typename C::Short>(spec);
  }
  const uint64_t tiles = tiles_of_rows<C>(spec) * spec.batch * spec.key_heads();
  const uint64_t of_keys = (spec.keys() + C::STEP - 1) / C::STEP * C::WARPS;  // of a warp
  return {.mma = tiles * of_keys * (C::BR / 16) * 2 * (C::BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = tiles * of_keys * (C::BC / 16) * (HEAD_DIM / 32)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const bool wide = tiles_of_rows<C>(spec) > 1;
  const uint64_t tiles = wide ? tiles_of_rows<typename C::Wide>(spec) : 1;
  const uint64_t blocks = tiles * spec.batch * spec.key_heads();
  if (blocks == 0) return 0;
  const int shares = wide ? decoding::shares_of<typename C::Wide>(blocks, spec.keys(), decoding::MOST_SHARES)
                          : decoding::shares_of<typename C::Short>(blocks, spec.keys(), decoding::MOST_SHARES);
  return shares == 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class T, class Byte>
ladder::Variant variant(ladder::Element byte, ladder::Variant rest = {}) {
  using C = Config<T, Byte, 16, 32, 8, 3>;
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED |
                              ladder::WINDOW | ladder::CACHE | ladder::PAGES,
                  .min_d = 16,
                  .max_d = HEAD_DIM,
                  .d_step = 16,
                  .q = ladder::element_of<T>,
                  .kv = byte,
                  .o = ladder::element_of<T>};
  rest.writes_lse = true;
  rest.workspace_bytes = workspace_bytes<C>;
  rest.from_first_key = true;
  rest.few_rows = C::BR;
  rest.conflict_ways = 1.0;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d13_bytes",
    .previous = "d06_pages",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
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
