#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// A pair of blocks takes a tile of queries of each of two heads, one by one, or two tiles of one head.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  ladder::Forward walks = ladder::models::in_pairs<C>(spec);
  if (spec.causal && spec.heads / spec.key_heads() % 2 == 0) {
    walks = {spec, C::BR, C::BC};
    walks.blocks = ladder::min<uint64_t>(walks.queries, spec.multiprocessors / 2 * 2);
  }
  ladder::Counts counts = ladder::models::products<C>(C::COLUMNS, walks);
  counts.wgmma_left_running = (walks.tiles - walks.blocks) * C::WARPS / 4 * (C::BC / 16);  // PV, but a block's last
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "91_stitched",
    .previous = "56_twins",
    .role = ladder::Role::branch,
    .idea = "The next queries' first QK is asked for before these queries' last PV, and their first weights are made "
            "beside it: a seam is a step like any other.",
    .limit = "At a seam no warpgroup multiplies while it makes the next queries' first weights, and both are there at "
             "nearly the same time.",
    .prediction = "In turns, on an H200, over 56 in bf16, 16 heads of both: at n = 1024 1.12 under a mask and 1.07 "
                  "dense, at 4096 1.04 and 1.02, at 16384 1.01 and 1.00, within 2 %. By 56's own count a tile of keys "
                  "takes 2085 clocks and a seam 4000 more; 2500 are left of those, we say, for O has to go out and "
                  "the next Q to be there.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
