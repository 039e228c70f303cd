#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 keys, and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
          .barriers = 2 * walks.blocks + walks.tiles,
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {  // the list; the sum of dQ, LSE and D
  return spec.batch * sizeof(Sequence) +
         ladder::q_tiles_of(spec, C::BR) * spec.heads * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest.accepts = ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM,
                                                      PANEL_COLS + 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "82_nearby",
    .previous = "76_joined",
    .role = ladder::Role::branch,
    .idea = "In a window a key is seen by the queries near it alone: a walk begins and ends with them.",
    .limit = "In 76_joined a walk goes on to the last query. Of 16384 tokens that see the 1024 before them, seven "
             "eighths of a walk would be masked.",
    .prediction =
        "In turns, bf16, n = 16384, 16 heads, causal: with a window of 1024 a call takes 5.5 to 6.8 times less time "
        "than 76's without one, with one of 4096 1.9 to 2.3 times less. A walk has 19 tiles of queries, or 67, where "
        "it has 130 on average; what D and the zeros cost stays. Over FlashAttention-3's gradients in the same "
        "window: 0.96 to 1.06, and 0.97 to 1.04. Without a window 76's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
