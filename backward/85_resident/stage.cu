#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>,
                                                ladder::WINDOW | ladder::VARLEN, HEAD_DIM);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, ladder::backward::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "85_resident",
    .previous = "83_d64",
    .role = ladder::Role::branch,
    .idea = "K and V stay in registers, as operands; a tile of 64 queries has the room.",
    .limit = "In 83_d64 the accumulators of 128 queries fill a lane's registers: nothing can be kept for another tile.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads, on an NVIDIA H200: 0.96 to 1.02 times 83, dense and "
                  "causal. In a trial on an H100 a tile of 64 queries alone gave 0.955: its products read 144 KiB of "
                  "shared memory where 83's read 112 for as many queries, and half of the work stands between two "
                  "barriers. K and V in registers bring the bytes back to 112; the barriers stay.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 146 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 4>>(), variant<Config<f16, 64, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
