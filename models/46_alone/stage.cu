#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::VARLEN,
                                                      HEAD_DIM, PANEL_COLS + 8);
  rest.workspace_bytes = ladder::models::list_bytes<Sequence>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, false>, ladder::models::predict<C, HEAD_DIM>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "46_alone",
    .previous = "45_varlen",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "A block alone and a pair are two kernels of one text, so whatever both rings do asks which of them it is."},
    .idea = "In a window blocks work alone, each with its own copies of K and V.",
    .limit = "Two blocks share what either of them needs. In a narrow window one tile in four is of use to one of them "
             "alone, and the other waits until it has left the ring.",
    .prediction = "In turns, over FlashAttention-3 in bf16, causal, n = 32768, 16 heads: a window of 256 1.05, of 1024 "
                  "1.06, of 4096 1.06. A block's turn in a window of 256 has three tiles of keys and no fourth. It "
                  "reads half as much again from L2 as before, which L2 can give. Without a window nothing changes.",
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
