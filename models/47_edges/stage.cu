#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  ladder::Counts counts = ladder::models::predict<C, HEAD_DIM>(spec);
  // where a row may meet its first key, and where a warp is careful
  counts.votes_on_scores = ladder::models::walks<C>(spec).beginning * C::WARPS;
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::VARLEN,
                                                      HEAD_DIM, PANEL_COLS + 8);
  rest.workspace_bytes = ladder::models::list_bytes<Sequence>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "47_edges",
    .previous = "46_alone",
    .role = ladder::Role::variant,
    .idea = "A window has two edges, and a tile pays for the one that it meets.",
    .limit = "Every masked tile is compared with both edges, and is looked through for its maximum, as if a row could "
             "meet its first key at either of them.",
    .prediction = "In turns, over 46 in bf16, causal, n = 32768, 16 heads: a window of 256 1.05, of 1024 1.03, of 4096 "
                  "1.01; that is 1.06 over FlashAttention-3 in a window of 256. Half of the gain is known from a "
                  "trial: looking for a maximum at the first edge alone has brought 3.4, 2.9 and 1.4 % more products a "
                  "clock. Without a window the rate is 46's, within 1 %.",
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
