#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = ladder::hopper::pairs_tile_made_twice<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::hopper::in_pairs<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "31_masked",
    .previous = "30_cluster",
    .role = ladder::Role::line,
    .more_lines =
        {ladder::MoreLines::retold,
         "Told anew: the loop over keys is a step with a mask and one without, in words that later rungs keep."},
    .idea = "Causal: tiles of the future are not visited, the tile on the diagonal is masked, and long and short tiles "
            "of queries take turns.",
    .limit = "Under a causal mask half of the scores are known to count for nothing.",
    .prediction = "Causal at n = 8192: 0.95 of the dense rate. Half of the tiles on the diagonal is wasted, 1.6 %; "
                  "each tile of queries has half as many tiles of keys to hide its beginning and its end behind.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
