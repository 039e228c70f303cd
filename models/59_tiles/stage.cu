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
    .name = "59_tiles",
    .previous = "58_intervals",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Lists are a new problem: who follows them, cuts them into halves and brings stencils takes the "
                   "place of who looks at intervals."},
    .idea = "A list says which blocks of keys a tile of queries meets, and the thread that copies follows it; the "
            "warps that multiply do not notice.",
    .limit = "An interval of keys has no hole. A sparse mask is holes: of a hundred tiles of keys a tile of queries "
             "may meet ten, anywhere.",
    .prediction =
        "In turns, in bf16, 16 heads, n = 32768, times dense time x density: blocks of 128 keys 1.07 at a density of "
        "0.1, 1.02 at 0.3; blocks of 64 keys 1.08 at 0.1, so more than 700 TFLOPS of what is inside; each within "
        "0.025. Lists as they come: 1.10 at 0.1, within 0.03. 47's windows of 3, 9 and 33 tiles take 1.24 us a tile "
        "and 2.1 tiles more for each tile of queries, of which half a tile is masks that whole blocks do not need: "
        "25.6 tiles become 27.2. The mean SM has 0.97 of the busiest one's work where all is dense, 0.96 with the "
        "longest lists first, 0.93 as they come. Of 64 keys an odd number leaves half a tile empty, a quarter of one "
        "on average. Dense and causal, without lists: 58's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 197 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 2, true>>({.label = "lists as they come"})},
});

}  // namespace
