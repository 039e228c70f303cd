#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Without a mask: with one a block's tiles are those of its rows.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (spec.causal || spec.left >= 0 || spec.right >= 0) return {};
  const uint64_t group = spec.heads / spec.key_heads(), heads = spec.batch * spec.key_heads();
  const uint64_t of_rows = (spec.n * group + C::BR - 1) / C::BR, of_keys = (spec.keys() + C::BC - 1) / C::BC;
  const uint64_t shares = shares_of<C>(of_rows * heads, spec.keys(), spec.multiprocessors);
  return {.wgmma = of_rows * heads * of_keys * (HEAD_DIM / 16 + C::BC / 16),
          .products_of_busiest_block = (of_keys + shares - 1) / shares * (HEAD_DIM / 16 + C::BC / 16)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const int64_t rows = spec.n * (spec.heads / spec.key_heads());
  const int64_t blocks = (rows + C::BR - 1) / C::BR * spec.batch * spec.key_heads();
  const int shares = blocks == 0 ? 1 : shares_of<C>(blocks, spec.keys(), MOST_BLOCKS);
  return shares == 1 ? 0 : shares * spec.batch_heads() * spec.n * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::of_any_d<C>(std::move(rest), 0);
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d02_split",
    .previous = "d01_packed",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A workspace, and a second launch that joins what shares of keys found; and what d01 spells out is "
                   "said here."},
    .idea = "The keys of a tile of rows are shared out among as many blocks as the card has room for, and a second "
            "launch joins what they found.",
    .limit = "One block reads all keys of a head: of one text with 8 heads of keys 8 SMs of 132 read memory, and it "
             "takes as long as their share of its rate allows.",
    .prediction = "In turns, over d01 in bf16, 32 heads over 8, one query, within 15 %: batch 1 beside 8192 keys 5.5, "
                  "14 us; beside 65536 8.5, 72 us; batch 8 beside 8192 1.15; batch 64 1.00. Over FlashAttention-3 in "
                  "the same order 1.1, 1.0, 1.0 and 1.0.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 209 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 4, 3>>(), variant<Config<f16, 64, 128, 4, 3>>({.label = "f16"})},
});

}  // namespace
