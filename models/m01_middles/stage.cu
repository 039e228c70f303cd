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
    .name = "m01_middles",
    .previous = "99_unaided",
    .role = ladder::Role::branch,
    .idea =
        "Of an odd number of tiles of queries the one in the middle is half a share; the middles of two heads make a "
        "whole one.",
    .limit =
        "Under a mask a share is a long tile and a short one, but of three, five or seven tiles one is left, half as "
        "much. Shares go round by turns, and where their number divides that of the blocks a block gets the same "
        "one of each head: some get nothing but halves.",
    .prediction =
        "After a trial that dealt shares to and fro instead, with 1.04 at n = 640. In turns, on an H200, over 99 in "
        "bf16, "
        "16 heads and about 16384 tokens, causal: 1.28 at n = 384, 1.25 at 640, 1.12 at 896, within 4 %: by a tile of "
        "keys as a unit and two for a seam the busiest block has 84, 100 and 108 units in 99 and 64, 80 and 96 here, "
        "and "
        "the card is a little slower when all of it is busy. At 512, 1024 and 2048, and dense, 1.00, within 1 %. Over "
        "FlashAttention-3, causal, 1.00 at 640, within 4 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
