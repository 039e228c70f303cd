#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = ladder::hopper::pairs_tile_made_twice<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::hopper::drained<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "32_drain",
    .previous = "31_masked",
    .role = ladder::Role::variant,
    .idea = "A warp waits for its O to leave shared memory when the first product of its next queries runs already.",
    .limit = "Between two tiles of queries a warp waits until the copy engine has read its O, and no product of its "
             "warpgroup runs.",
    .prediction = "Up to 4 % at n = 512, where a head has four tiles of keys; 1 % at n = 2048, nothing at n = 8192. No "
                  "count changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
