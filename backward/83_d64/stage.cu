#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "83_d64",
    .previous = "82_nearby",
    .role = ladder::Role::variant,
    .idea = "Heads of 64 columns: 128 queries a tile in place of 64, and each warpgroup makes dQ of half of them.",
    .limit = "82_nearby takes d = 128 alone. With 64 columns its tile of 64 queries would hold half the work, between "
             "as many barriers and waits, and with as many exponentials.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads: 0.97 to 1.10 times FlashAttention-3's gradients dense, "
                  "0.95 to 1.08 causal. In TFLOPS 0.68 to 0.80 of what 82 reaches at d = 128: a tile has as many "
                  "exponentials for half the products, and as many numbers of P and dS pass the registers.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 194 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
