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
  rest.accepts =
      ladder::accepts_any_d<typename C::T>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM, 8, "backward");
  rest.workspace_bytes = workspace_bytes<C>;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, gradients<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "83_d64",
    .previous = "82_nearby",
    .role = ladder::Role::variant,
    .idea = "Heads of 64 columns: 128 queries a tile in place of 64, and each warpgroup makes dQ of half of them.",
    .limit = "82_nearby takes d = 128 alone. With 64 columns its tile of 64 queries would hold half the work, between "
             "as many barriers and waits, and with as many exponentials.",
    .prediction = "In turns, bf16, n = 4096, batch 4, 16 heads: 0.97 to 1.10 times FlashAttention-3's gradients "
                  "dense, 0.95 to 1.08 causal. In TFLOPS 0.68 to 0.80 of what 82 reaches at d = 128: a tile has as "
                  "many exponentials for half the products, and as many numbers of P and dS pass the registers.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 194 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
