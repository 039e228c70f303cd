#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
  counts.wgmma_under_fences = products.under_fences();
  counts.gmem_bytes_reduced += products.turns_bytes();
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain<typename C::T>(std::move(rest), ladder::backward::sum_and_turns_bytes<HEAD_DIM + 2>);
  rest.same_bits = true;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "80_sameorder",
    .previous = "75_handover",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port, "What 72 found, for 75."},
    .idea = "75's walk with 72's turns: blocks add to dQ in one order, and two runs give the same bits.",
    .limit = "In 75_handover a block adds its share of dQ when it has it: two runs of the same training step differ. "
             "72_inorder's do not, but it walks as 71 does.",
    .prediction =
        "1.00 to 1.05 times FlashAttention-3's deterministic mode at n = 1024, dense, on an H100, 1.14 to 1.20 at n = "
        "4096, and 1.05 to 1.09 at n = 16384. Where 72 waits for its products it gains what 75 gained on 71, 4 to 8 %; "
        "where it waits for a turn, as at n = 1024, where turns cost 17 %, half of that.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 64, 128, 8, 2>>(), variant<Config<bf16, 64, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
