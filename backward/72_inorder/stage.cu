#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::backward::Products<C, HEAD_DIM> products(shape);
  ladder::Counts counts = products.counts();
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
    .name = "72_inorder",
    .previous = "71_longest",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Turns in global memory: who waits, who passes on, and who numbers the blocks."},
    .idea = "Blocks add to dQ in turn, so two runs give the same bits.",
    .limit = "In 71_longest a block adds its share of dQ when it has it, and sums of f32 in another order have other "
             "last bits: two runs of the same training step differ.",
    .prediction = "0.93 to 0.99 times 71, dense at n = 4096, batch 4; causal 0.92 to 0.98; at n = 1024 0.92 to 0.98, "
                  "dense and causal. Counted by a list of 132 SMs: if a turn is handed on in less time than a tile "
                  "takes, what is left to wait for is where blocks of one head begin together, 1 % dense and 3 % "
                  "causal at n = 4096; drawing a number costs half a microsecond of a block's 40 to 150. If handing on "
                  "takes longer than a tile, about 2.3 microseconds, every tile waits, and we miss on the low side.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<f16, 64, 128, 8, 2>>(), variant<Config<bf16, 64, 128, 8, 2>>({.label = "bf16"})},
});

}  // namespace
