#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool has_lists = bool(spec.blocks);
  ladder::Forward walks(spec, C::BR, C::BC, has_lists ? 1 : C::BLOCKS, spec.causal && !has_lists);
  const ladder::ByLists lists(spec);
  if (has_lists) walks.tiles = lists.tiles;
  ladder::Counts counts = ladder::models::products<C>(HEAD_DIM, walks, has_lists ? 1 : 2);
  if (has_lists) counts.barriers += lists.in_part * C::WARPS / 4;  // of a warpgroup
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::SOFTCAP | ladder::SINK | ladder::BLOCKS, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, Score<false, false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "m04_readers",
    .previous = "59_tiles",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Who walks a list changes as a whole; and the kernel says what 48 spells out, where 59 spelled it, "
                   "too."},
    .idea = "Two threads read each list, one asks for K and one for V; and what they will need they ask for ahead.",
    .limit = "One thread finds out where the next tile of keys lies, and asks for K and for V: so long a way that the "
             "tiles come late, even where a list has all of them.",
    .prediction =
        "After trials: with two threads, and blocks of 128 keys copied whole, 1.08 at a density of 0.1, 1.05 where "
        "lists "
        "have all blocks. In turns, on an H200, over 59 in bf16, 16 heads, n = 32768: 1.10 at a density of 0.1, 1.07 "
        "at "
        "0.3, 1.11 at 0.1 of blocks of 64 keys; dense, without lists, 1.00; within 2 %. Times dense time x density, in "
        "another heat: 1.07 at 0.1, within 0.03.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 197 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 2, true>>({.label = "lists as they come"})},
});

}  // namespace
