#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.wgmma_under_fences = products.under_fences();
  counts.storing_threads = products.blocks * (3 + C::WARPS);  // dQ, by turns; dK and dV
  counts.gmem_bytes_reduced += products.turns_bytes();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain<typename C::T>(std::move(rest), ladder::backward::sum_and_turns_bytes<HEAD_DIM + 2>);
  rest.same_bits = true;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "81_relay",
    .previous = "80_sameorder",
    .role = ladder::Role::branch,
    .idea = "Three threads take turns at adding to dQ: one waits for its turn while another's sums are on their way.",
    .limit = "In 80_sameorder one thread adds a half of each tile, waits until the sums are there, and passes the turn "
             "on: longer than the products of a tile take.",
    .prediction = "1.06 to 1.11 times 80 on an H100, dense, at n = 4096: 0.96 to 1.00 of 75. At n = 16384 1.07 to "
                  "1.10; at n = 1024 1.05 to 1.20. A thread has one and a half tiles' time for each addition then; "
                  "what stays is that blocks of a head which begin together wait for each other once.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 64, 128, 8, 2>>(), variant<Config<bf16, 64, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
