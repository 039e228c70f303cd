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
    .name = "37_plain",
    .previous = "36_bits",
    .role = ladder::Role::branch,
    .idea = "The loop over keys is steps that ask nothing: the diagonal's is a step behind it, and a careful warp asks "
            "once.",
    .limit = "Each step asks whether it is the last one, and whether it is on the diagonal; a careful warp asks each "
             "row whether integers can be trusted, and then votes. ptxas plans registers for every answer.",
    .prediction =
        "In turns, n = 8192, over 36: 1.01 on normal inputs, 1.02 on peaky ones, 1.02 under a mask on both; n = 1024, "
        "causal, 1.02 (a trial, alone, had 1.02, 1.03, 1.03 and 1.02). No count changes on calm inputs.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
