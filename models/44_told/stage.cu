#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<bf16>(std::move(rest), ladder::MODELS | ladder::WINDOW, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, ladder::models::predict_pairs<C, HEAD_DIM>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "44_told",
    .previous = "43_window",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "The schedule moves to one thread, which touches every line that asks what comes next."},
    .idea = "The thread that copies finds out which queries come next and tells the others, in shared memory beside Q.",
    .limit = "Every thread computes the schedule for itself, and keeps it in registers while it has few to spare.",
    .prediction =
        "In turns, over 43, at n = 8192, dense and causal, 1.00, within 1 %: eight loads from shared memory for each "
        "tile of queries, and as much less to compute. In a window of 256 at n = 32768 1.02: what 43 has spilled to "
        "memory there comes back into registers, and a tile of queries has three steps to hide it in.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
