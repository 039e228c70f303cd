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
    .name = "10_mbarrier",
    .previous = "09_rescale",
    .role = ladder::Role::branch,
    .idea = "K and V have two slots each, with barriers for full and for empty, and the loop has no __syncthreads.",
    .limit = "All warps of a block wait for the slowest of them twice per tile.",
    .prediction = "+1 % to +3 %: removing the barriers and the loads altogether, on trial, was worth 10 %, but most of "
                  "it is the copies themselves.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async, mbarrier",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 16, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<128, 64, 4>>()},
});

}  // namespace
