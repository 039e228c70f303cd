#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  ladder::Counts counts = ladder::past_fa2::relative<C>(shape);
  counts.gmem_accesses /= 4;  // of 16 bytes
  counts.gmem_sectors /= 2;   // all of each
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  constexpr uint64_t ROWS = C::BR / (16 * C::WARPS) * 2;  // of a lane
  rest.per_rescale = {.shuffles = ROWS * 2, .exponentials = ROWS * 32};
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "16_store",
    .previous = "15_relative",
    .role = ladder::Role::branch,
    .idea = "O goes through shared memory on its way out, so that a warp writes whole rows.",
    .limit = "Each lane writes O in 64 stores of 4 bytes, each of which touches eight rows.",
    .prediction = "Nothing at n = 8192, where storing is one part in 128 of a block's work; a few percent at n = 512, "
                  "where it is one in 8 and nothing overlaps it.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<256, 64, 8, 3>>(), variant<Config<128, 64, 4, 2>>()},
});

}  // namespace
