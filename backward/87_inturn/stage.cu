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
  const uint64_t pairs = 2 * walks.tiles;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
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
  // of several lengths a box may not begin behind the columns
  rest.accepts = ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM,
                                                      PANEL_COLS + 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.same_bits = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "87_inturn",
    .previous = "82_nearby",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Half of them are what 82 spells out of a window, and this rung says in words."},
    .idea = "72's turns in what models ask: a tile's turns begin with the first keys that it sees, and a walk goes "
            "over the heads of a group before the next tile.",
    .limit = "In 82_nearby a block adds its share of dQ when it has it: two runs of the same training step differ. And "
             "72, 80 and 81, whose do not, know neither groups nor windows nor several lengths.",
    .prediction =
        "In turns, bf16, n = 4096, batch 4, 16 heads, over 82: 0.90 to 0.95 dense, 0.87 to 0.94 causal, which is what "
        "80 pays on an H200. With 32 heads of queries on 8 of keys 0.91 to 0.97 dense, 0.88 to 0.96 causal: a walk is "
        "four times as long, and blocks of a head wait for each other once, where it begins. At n = 16384, causal, in "
        "a window of 1024, 0.92 to 1.00: a block begins two tiles behind the one before, so nobody waits at the "
        "beginning. Over FlashAttention-3's deterministic mode, n = 4096: 1.05 to 1.15 dense, 1.00 to 1.12 causal.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
