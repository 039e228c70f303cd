#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<bf16>(ladder::MODELS | ladder::WINDOW, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "44_told",
    .previous = "43_window",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
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
