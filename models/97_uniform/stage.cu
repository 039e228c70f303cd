#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// A pair of blocks takes a tile of queries of each of two heads, one by one, or two tiles of one head.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (!spec.causal || spec.heads / spec.key_heads() % 2 != 0) return ladder::models::predict_pairs<C, C::COLUMNS>(spec);
  ladder::Forward walks(spec, C::BR, C::BC);
  walks.blocks = ladder::min<uint64_t>(walks.queries, spec.multiprocessors / 2 * 2);
  return ladder::models::products<C>(C::COLUMNS, walks);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "97_uniform",
    .previous = "56_twins",
    .role = ladder::Role::branch,
    .idea = "A warpgroup's number is one for all lanes of a warp, and said so: by a shuffle.",
    .limit = "A descriptor depends on threadIdx, so ptxas copies it into registers of the warp before each product.",
    .prediction =
        "In turns, on an H200, over 56 in bf16, 16 heads of both: dense at n = 8192 1.003, causal at 1024 1.01 "
        "and at 4096 1.006, within 1 %. In the machine code are 40 instructions that copy a register to one "
        "of the warp, where 56 has 135: some 19 fewer for a tile of keys and warp, of 470, and a scheduler "
        "with two such warps has twice as many clocks as that. What is left is that a product need not wait "
        "for its descriptor, which counts where nothing else runs: at the seams.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
