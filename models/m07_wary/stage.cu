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
    .name = "m07_wary",
    .previous = "m06_brief",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port, "What 33, 36 and 37 found, for the scores that models have."},
    .idea = "A warp that was surprised is careful with the next queries, too, and compares scores as integers.",
    .limit = "In m06_brief a warp that has learned to look before it makes weights forgets it with its queries. Where "
             "scores are wild, the second tile of keys surprises it again: of the nine tiles of a share at n = 1024, "
             "causal, the weights of one or two are made twice.",
    .prediction = "After a trial of it in m01, bf16, 16 heads and 16384 tokens: over m06 on peaky inputs 1.045 at n = "
                  "1024, causal, 1.03 at 8192, causal, 1.04 dense; on large logits 1.085 at n = 1024, causal, each "
                  "within 1.5 %; on normal inputs 0.985 at n = 1024, causal, within 1.5 %, and 1.00 dense at 8192, "
                  "within 1 %. Over FlashAttention-3 on peaky inputs 0.90, 0.92 and 0.99, within 2 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
