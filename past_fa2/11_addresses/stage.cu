#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::past_fa2::in_slots<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "11_addresses",
    .previous = "10_mbarrier",
    .role = ladder::Role::branch,
    .idea = "Every address that a thread needs is computed once; inside the loop there are XORs and immediates.",
    .limit = "10 computes a swizzled row and chunk for every ldmatrix and every 16-byte copy of every tile.",
    .prediction = "+1 %: a hundred fewer integer instructions of a thousand. On 08 the same change lost 6 % on trial, "
                  "to a worse order of instructions.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async, mbarrier",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 16, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<128, 64, 4>>()},
});

}  // namespace
