#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::past_fa2::by_one_thread<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "13_tma",
    .previous = "12_wide",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::is_new,
                   "TMA: tensor maps, copies of whole boxes by one thread, and mbarriers that count bytes."},
    .idea = "One thread asks the copy engine (TMA) for a whole tile, instead of every thread for its share of it.",
    .limit = "Each warp spends 8 cp.async on every tile of K and V, and keeps their addresses in registers that the "
             "products need.",
    .prediction =
        "+5 % to +8 %: without copies and barriers the products ran a tenth faster, and both copies and waiting for "
        "places are one thread's business now. The registers of the copies' addresses end the spilling.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 128 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<256, 64, 8>>(), variant<Config<128, 64, 4>>()},
});

}  // namespace
