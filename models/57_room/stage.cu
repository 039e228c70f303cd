#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks = ladder::models::in_pairs<C>(spec);
  ladder::Counts counts = ladder::models::products<C>(C::COLUMNS, walks);
  counts.barriers =
      2 * walks.blocks + walks.leaving * C::WARPS / 4;  // of the cluster; of a warpgroup that lets tiles pass
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 200);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "57_room",
    .previous = "53_d256",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Rings of half as large stages, so that O has room; and windows and functions of scores go."},
    .idea = "O has a place of its own, so the next Q is asked for as soon as the last product has read this one.",
    .limit = "O leaves from the place of Q, and only then the next Q comes. Meanwhile nobody multiplies.",
    .prediction = "After trials. In turns, on an H100, over 53 in bf16, 8 heads, batch * n = 16384: at n = 1024 1.05 "
                  "dense and 1.06 causal, at 4096 1.02 and 1.04, at 16384, dense, 1.00, within 2 %. At n = 1024 a tile "
                  "of queries takes 44000 clocks, and its sixteen tiles of keys at their usual rate 34000. Of the "
                  "10000 between, Q's way is a fifth.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 224 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 64, 8, 2>>(), variant<Config<f16, 128, 64, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 96, 8, 2, 192>>({.label = "d <= 192"}),
                 variant<Config<f16, 128, 96, 8, 2, 192>>({.label = "f16, d <= 192"})},
});

}  // namespace
