#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Under a mask blocks work alone, and otherwise in pairs.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks(spec, C::BR, C::BC, spec.causal ? 1 : C::BLOCKS, spec.causal, 1, true);
  ladder::Counts counts = ladder::models::products<C>(C::COLUMNS, walks);
  counts.barriers = (spec.causal ? 1 : 2) * walks.blocks;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 200);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "m03_apart",
    .previous = "57_room",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::port,
                   "What 99 and m01 found, for 256 columns; what 57 told in its own way goes, for 44's."},
    .idea = "Heads of 256 columns under a mask: blocks work alone, and take even shares.",
    .limit =
        "Two blocks share keys, and under a mask the first one lets tiles pass that the second one needs. Those take "
        "all stages of the rings, so both meet there, at each seam.",
    .prediction =
        "After trials: with blocks alone 1.065 at n = 1024 and 1.018 at 4096. In turns, on an H200, over 57 in bf16, 8 "
        "heads and 16384 tokens in all, causal: 1.07 at n = 1024, 1.02 at 4096, 1.00 at 16384; dense 1.00 at 1024 and "
        "4096; d = 192, causal, 1.06 at 1024; within 2 %. Over FlashAttention-3, causal, 1.09 at 1024, within 2 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 224 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 64, 8, 2>>(), variant<Config<f16, 128, 64, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 96, 8, 2, 192>>({.label = "d <= 192"}),
                 variant<Config<f16, 128, 96, 8, 2, 192>>({.label = "f16, d <= 192"})},
});

}  // namespace
