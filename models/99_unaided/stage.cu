#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Under a mask blocks work alone, and otherwise in pairs.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  return ladder::models::products<C>(C::COLUMNS, {spec, C::BR, C::BC, spec.causal ? 1 : C::BLOCKS, spec.causal},
                                     spec.causal ? 1 : 2);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  rest.few_keys = 4096;  // of 16384 a pair of blocks that brings them once is faster
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "99_unaided",
    .previous = "56_twins",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "Who walks, and so what is known when, turns from the thread that copies to everybody, as it was in 42; "
         "and no pair under a mask means no tile that has to pass."},
    .idea = "Under a mask blocks work alone, and each warp finds its next queries by itself, without a division.",
    .limit = "At a seam a block waits for the other one of its cluster, and for the thread that copies: that one finds "
             "out by divisions what comes next, tells the others, and asks for it only then.",
    .prediction =
        "After trials: 40's text with blocks that work alone had 1.12 times 56's rate at n = 512 under a mask, 1.10 at "
        "1024, 1.09 at 2048 and 1.03 at 4096; a log-sum-exp, which 40 has not, cost it 2 %. In turns, on an H200, over "
        "56 in bf16, 16 heads and 16384 tokens in all: causal 1.09 at n = 512, 1.08 at 1024, 1.06 at 2048, 1.02 at "
        "4096 and 1.01 at 16384; dense 1.02 at 1024 and 1.00 at 8192; with 32 heads over 8 1.02 at 1024, causal; "
        "within 2 %. Over FlashAttention-3, causal, 1.02 at 1024, within 2 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
