#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = ladder::hopper::remembered<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, ladder::hopper::drained<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "33_remember",
    .previous = "32_drain",
    .role = ladder::Role::variant,
    .idea = "A warp that a tile has surprised is careful from the first tile of its next queries on.",
    .limit = "Each tile of queries begins with guesses: where scores are extreme, the weights of one tile of keys are "
             "made twice for each tile of queries.",
    .prediction = "On peaky inputs and large logits 1 % at n = 8192 and 8 % at n = 1024; nothing on normal ones. On "
                  "inputs of this kind the emulator counts fewer exponentials; no other count changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
