#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  return ladder::make_variant<C>(run<C>, gradients<C>, ladder::backward::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "74_initial",
    .previous = "71_longest",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "Sums that begin with -LSE and -D are kept in another order, by who makes them and who copies them."},
    .idea = "S and dP begin with what is subtracted from them, -LSE and -D, instead of with zeros.",
    .limit = "In 71_longest a lane loads LSE when S is there, and D when dP is there, and waits for each: a sixth of "
             "its time, by samples of where warps stood.",
    .prediction = "Known from a trial, so no prediction: 1.03 times 71 at n = 4096, 1.01 to 1.02 under a mask, by "
                  "operations per clock, on an H100.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
