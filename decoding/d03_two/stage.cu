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
    .name = "d03_two",
    .previous = "d02_split",
    .role = ladder::Role::lost,
    .idea = "Two blocks on an SM: while one begins, ends or waits, the other reads.",
    .limit = "A block has an SM to itself. While it starts, loads Q and waits for its first keys, and while it stores, "
             "nobody reads there.",
    .prediction = "In turns, in a graph, over d02 in bf16, 32 heads over 8, one query: batch 64 beside 8192 keys 1.06, "
                  "batch 8 beside 65536 1.05 and beside 8192 1.03, batch 1 beside 1024 and 8192 1.05; one head of keys "
                  "beside 65536 1.10, since the join has 64 shares to read, and not 132. Within 3 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 113 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 200, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 64, 4, 3>>(), variant<Config<f16, 64, 64, 4, 3>>({.label = "f16"})},
});

}  // namespace
