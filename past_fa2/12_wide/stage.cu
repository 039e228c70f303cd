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
    .name = "12_wide",
    .previous = "11_addresses",
    .role = ladder::Role::branch,
    .idea = "One block of 8 warps instead of two blocks of 4, so that each tile of K and V serves 256 queries.",
    .limit = "Each SM reads K and V from L2 twice, once for each of its two blocks.",
    .prediction =
        "+2 % in bursts, for half as many copies; more when sustained, for bytes that are not moved cost no power.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async, mbarrier, 128 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 16, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<256, 64, 8>>(), variant<Config<128, 64, 4>>()},
});

}  // namespace
