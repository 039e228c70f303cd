#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  return products.counts(
      products.pairs * (C::BR / 16 + C::BC / 16) + (products.pairs - 2 * products.blocks) * D_SLICES,  // dV, dQ; S
      products.blocks + products.tiles);
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& shape) {  // the sum of dQ, LSE and D
  const uint64_t tiles = (shape.n + C::BR - 1) / C::BR;
  return uint64_t(shape.batch_heads()) * tiles * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain<bf16>(std::move(rest), workspace_bytes<C>, ladder::MODELS);
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "68_models",
    .previous = "66_ahead",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What 40 to 42 found, for gradients: bf16, any lengths, heads that share keys, strides."},
    .idea =
        "What models ask for: bf16, any lengths of both sides, heads of queries that share keys, rows in any strides.",
    .limit = "66_ahead takes f16, as many keys as queries, a multiple of 128, and all of them in a row.",
    .prediction = "0.97 to 1.00 times 66 where both take the problem but for its type, at n = 4096, dense. The loop "
                  "has one comparison more for each tile, and two more copies. With 8 heads of keys for 32 of queries "
                  "a block has four times as long a walk, so that its ends weigh a quarter: 1.02 to 1.08 times the "
                  "same without groups, at n = 1024.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
