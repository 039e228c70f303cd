#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0 || (spec.softcap > 0 && spec.alibi);
  const bool is_alone = is_window || (!spec.causal && (spec.softcap > 0 || spec.alibi));
  const ladder::Forward walks(spec, C::BR, C::BC, is_alone ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers =
              (is_alone ? 1 : 2) * walks.blocks + first};  // of the cluster, where there is one, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, Score<false, false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "48_scores",
    .previous = "47_edges",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "Functions of scores: a softcap, ALiBi, and a head's sink; sequences of several lengths go."},
    .idea = "What becomes of a score before the softmax is a function that the kernel is compiled with, and each head "
            "may have a sink.",
    .limit = "A score is a product and a factor. Models cap it, take something from it by distance, and add one that "
             "belongs to no key.",
    .prediction = "In turns, in bf16, causal, 16 heads, over the same rung without: at n = 8192 a softcap 0.88, ALiBi "
                  "0.93, a sink 1.00. A tile of 128 x 128 scores takes 1024 clocks of the unit for exponentials, and "
                  "a tanh for each takes as many again, beside 2048 of products; ALiBi is three instructions a score. "
                  "Without any of them the rate is 47's, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
