#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  constexpr uint64_t ROWS = C::BR / (16 * C::WARPS) * 2;  // of a lane
  rest.per_rescale = {.shuffles = ROWS * 2, .exponentials = ROWS * 32};
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::past_fa2::relative<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "15_relative",
    .previous = "14_ring",
    .role = ladder::Role::branch,
    .idea = "The products begin at minus the old maximum, so scores come out relative to it; one comparison tells "
            "whether one has outgrown it.",
    .limit = "Between the products each warp finds and exchanges the maxima of its rows, though hardly ever is one of "
             "them new.",
    .prediction =
        "+5 %: 64 maxima of two, 16 exchanges and the corrections between the two products become 32 maxima of three "
        "and a vote. Where large scores keep coming, nothing: then all of 14 is done, and the look as well.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<256, 64, 8, 3>>(), variant<Config<128, 64, 4, 2>>()},
});

}  // namespace
