#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Under a mask blocks work alone, and otherwise in pairs.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  return ladder::models::products<C>(
      C::COLUMNS, {spec, C::BR, C::BC, spec.causal ? 1 : C::BLOCKS, spec.causal, 1, true}, spec.causal ? 1 : 2);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  rest.few_keys = 4096;  // of 16384 a pair of blocks that brings them once is faster
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "m06_brief",
    .previous = "m01_middles",
    .role = ladder::Role::branch,
    .idea = "A row's logarithm and its quotient are an instruction each.",
    .limit = "In m01_middles a row's logarithm and its quotient are some forty instructions, one after the other, "
             "where a tile of queries ends and the warp has nothing else to do.",
    .prediction = "After trials of these two instructions in m01: in turns, on an H200, over m01 in bf16, 16 heads and "
                  "16384 tokens, causal: 1.01 at n = 512 and 1024, within 1 %, and 1.00 dense at 1024 and 8192, within "
                  "0.7 %. Over FlashAttention-3, causal, 1.02 at n = 1024, and over cuDNN 1.02 at 512, within 1.5 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
