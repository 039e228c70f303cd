#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per tile of queries, which meets the 64 keys of a block.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::Backward walks(shape, C::BR, C::BC);
  const uint64_t sinks = shape.sink ? shape.batch_heads() : 0;
  const uint64_t of_gradient = C::HEAD_DIM / 128 * C::QUERY_SLICES, of_piece = C::KEY_SLICES;
  return {.wgmma = walks.tiles * (2 * C::D_SLICES + 2 * of_gradient + C::dQ_PIECES * of_piece),  // S, dP; dV, dK; dQ
          .wgmma_left_running = walks.tiles * (C::dQ_PIECES - 1) * of_piece,                     // dQ's next piece
          .barriers = 2 * walks.blocks + sinks,
          .gmem_bytes_reduced = walks.tiles * C::BR * C::HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::scores<C, Sequence>(std::move(rest));
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C, false, Score<true>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "90_oneeach",
    .previous = "89_chainrule",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Each warpgroup has a function of its own where all had one, and P and dS change hands; the parts "
                   "of a score are words now."},
    .idea = "Heads of 256 columns: three warpgroups make a gradient each, and hand each other P and dS.",
    .limit = "89_chainrule takes 128 columns: a warpgroup keeps dK and dV of 64 keys, 128 registers of each thread. "
             "With 256 columns that would be 256, more than a thread can have.",
    .prediction =
        "In turns, bf16, 8 heads of 256 columns, over FlashAttention-3's gradients in the same heat: dense 0.98 to "
        "1.18 at n = 4096 and 1.00 to 1.20 at 16384, where that is 450 to 540 TFLOPS; causal 0.96 to 1.18 and 1.00 to "
        "1.20. A softcap of 50 costs 0 to 8 %. A tile of 64 x 64 takes 2560 clocks of products and 2,688 passes of "
        "shared memory, 2,944 in 82 for as many products; but it adds 64 KiB to dQ, where 82 adds 32. The most "
        "additions that we have seen are 3.1 TB a second, by FlashAttention-4 with 48 keys, which here is 500 TFLOPS.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, ldmatrix, TMA, red, mbarrier, tanh.approx, 226 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 128,
                   .spill_bytes = 48,
                   .reason = "of several lengths: where a sequence lies, while a block walks"}},
    .variants = {variant<Config<bf16, 256, 2>>(), variant<Config<bf16, 192, 3>>({.label = "d <= 192"}),
                 variant<Config<f16, 256, 2>>({.label = "f16"}),
                 variant<Config<f16, 192, 3>>({.label = "f16, d <= 192"})},
});

}  // namespace
