#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_of_data = ladder::hopper::remembered_under<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, false>, ladder::hopper::drained<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "35_first",
    .previous = "34_under",
    .role = ladder::Role::line,
    .more_lines =
        {ladder::MoreLines::retold,
         "Told anew, in words: keys come from the start, and what 20 to 34 spelled out has names from here on."},
    .idea = "Keys come from the start, so that a sink at key 0 is in the first tile, where maxima are taken anyway.",
    .limit = "Keys come from the end. Trained models have at key 0 what nearly every query likes: it surprises each "
             "warp in the last tile, and from then on all of them are careful.",
    .prediction = "In turns, n = 8192, with a sink of 7: 1.10 times the rate of 34, and 1.07 under a mask (a trial, "
                  "alone, had 1.09 to 1.11 and 1.07 to 1.09); at n = 1024 1.12 and 1.00. On normal and on peaky inputs "
                  "the same within 1 %. With a sink no warp is surprised, where 34's all are. No count changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
