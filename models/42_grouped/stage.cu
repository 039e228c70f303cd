#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<bf16>(std::move(rest), ladder::MODELS, HEAD_DIM);
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, ladder::models::predict_votes<C, HEAD_DIM>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "42_grouped",
    .previous = "41_rows",
    .role = ladder::Role::branch,
    .idea = "Heads of queries side by side share a head of keys and values, which the L2 cache then brings once for "
            "all of them.",
    .limit = "Each head of queries has keys and values of its own. Models keep four to eight times fewer of these.",
    .prediction = "The same rate as 41 where each head has its own keys. In turns, over FlashAttention-3 in bf16, "
                  "dense and causal: 1.10 and 1.05 with 32 heads over 8 at n = 4096, 1.10 and 1.09 at 16384, 1.10 and "
                  "1.08 with 64 over 8, twice, at 8192. Sharing makes nothing faster but what memory holds: the kernel "
                  "waits for products, not for K and V, so the rate is that of as many heads of keys, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
