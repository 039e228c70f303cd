#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.per_look = {.integer_maxima = 2 * 32 * (C::BC / 8 + 1)};  // of a careful warp: two scores at a time
  rest.most_of_data = ladder::hopper::remembered_under<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, false>, ladder::hopper::by_integers<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "36_bits",
    .previous = "35_first",
    .role = ladder::Role::variant,
    .idea = "A careful warp looks for a row's largest score among integers, three at a time.",
    .limit = "A careful warp compares 64 scores, one after the other, before it may make weights, and no product of "
             "its own waits for anything else.",
    .prediction =
        "In turns, n = 8192: 1.01 on peaky inputs and large logits, 1.02 under a mask (a trial, alone, had 1.01 to "
        "1.02 and 1.02 to 1.03), the same on normal inputs and with sinks. No count changes on calm inputs.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
