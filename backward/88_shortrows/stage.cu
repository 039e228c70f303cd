#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

bool is_varlen(const ladder::Spec& spec) {
  return spec.lens_q.count > 0;
}
// Of all sequences, as the kernel counts them.
template <int ROWS>
uint64_t all_tiles_of(const ladder::Spec& spec, const ladder::Lengths& lengths, int n) {
  return is_varlen(spec) ? lengths.before(lengths.count) / ROWS + spec.batch : spec.batch * tiles_of<ROWS>(n);
}

// Products are counted per warpgroup, 64 keys, and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  const uint64_t pairs = 2 * walks.tiles, later = pairs - 2 * walks.walking;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),                   // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * QUERY_SLICES + later * (KEY_SLICES + QUERY_SLICES),  // dV; dQ, dK
          .wgmma_beside_exponentials = later * (KEY_SLICES + QUERY_SLICES),                  // dQ, dK
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float) +
                                (walks.blocks + 2 * walks.tiles) * 4};  // and turns that are passed on
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {  // the list; the sum of dQ, LSE and D; turns
  const uint64_t tiles = all_tiles_of<C::BR>(spec, spec.lens_q, spec.n) * spec.heads;
  return spec.batch * sizeof(Sequence) + tiles * C::BR * (HEAD_DIM + 2) * sizeof(float) + tiles * 3 * 4;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts =
      ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM, 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.conflict_ways = 1.0;
  rest.same_bits = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "88_shortrows",
    .previous = "84_meanwhile",
    .role = ladder::Role::port,
    .idea = "84's walk with 87's turns: gradients of heads of up to 64 columns have the same bits in each run.",
    .limit = "In 84_meanwhile a block adds its share of dQ when it has it: two runs of the same training step differ. "
             "87_inturn's do not, but it has 128 columns.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads, over 84: 0.86 to 0.94 dense, 0.83 to 0.93 causal. An "
                  "addition is half as large as 87's, and a tile takes half of its time: so passing a turn on costs a "
                  "larger part of it. With 32 heads of queries on 8 of keys 0.87 to 0.96 dense.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 179 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 6>>(), variant<Config<f16, 64, 128, 8, 6>>({.label = "f16"})},
});

}  // namespace
