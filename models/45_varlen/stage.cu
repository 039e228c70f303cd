#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::VARLEN,
                                                      HEAD_DIM, PANEL_COLS + 8);
  rest.workspace_bytes = ladder::models::list_bytes<Sequence>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, false>, ladder::models::predict_pairs<C, HEAD_DIM>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "45_varlen",
    .previous = "44_told",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Two ideas that need each other: a plan that deals out sequences of many lengths, and tensor maps "
                   "over all of them."},
    .idea = "Sequences of several lengths lie one behind the other, and a launch takes them all, those with most work "
            "first.",
    .limit = "All sequences of a batch have one length. Shorter ones are padded, and padding is copied and computed.",
    .prediction = "In turns, over FlashAttention-3 in bf16, 16 heads, ten sequences of 37, 577, 1024, 4932, 113, 8192, "
                  "2042, 501, 3771 and 127 tokens: 1.12 dense, 1.08 causal. Shares dealt to and fro leave the busiest "
                  "cluster 0.7 % above the mean, and causal, where they are fewer and larger, 5.4 %; tiles that are "
                  "not full cost under 2 %. Where all sequences have one length the rate is 44's, within 1 %.",
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
