#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts(products.pairs * (D_SLICES + 2 * C::BR / 16), 0);  // dP; dV; dK
  counts.gmem_bytes_reduced += products.turns_bytes();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence, 3>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM, PANEL_COLS + 8);
  rest.same_bits = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "87_inturn",
    .previous = "82_nearby",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::retold,
                   "Half of them are what 82 spells out of a window, and this rung says in words."},
    .idea = "72's turns in what models ask: a tile's turns begin with the first keys that it sees, and a walk goes "
            "over the heads of a group before the next tile.",
    .limit = "In 82_nearby a block adds its share of dQ when it has it: two runs of the same training step differ. And "
             "72, 80 and 81, whose do not, know neither groups nor windows nor several lengths.",
    .prediction =
        "In turns, bf16, n = 4096, batch 4, 16 heads, over 82: 0.90 to 0.95 dense, 0.87 to 0.94 causal, which is what "
        "80 pays on an H200. With 32 heads of queries on 8 of keys 0.91 to 0.97 dense, 0.88 to 0.96 causal: a walk is "
        "four times as long, and blocks of a head wait for each other once, where it begins. At n = 16384, causal, in "
        "a window of 1024, 0.92 to 1.00: a block begins two tiles behind the one before, so nobody waits at the "
        "beginning. Over FlashAttention-3's deterministic mode, n = 4096: 1.05 to 1.15 dense, 1.00 to 1.12 causal.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
