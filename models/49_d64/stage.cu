#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.few_tiles = 132;  // one for each SM of an H200; of 512 m05 is faster, of fewer than 132 nobody has timed it
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>,
                                 ladder::models::predict<C, HEAD_DIM>, std::move(rest));
}

const ladder::Registration registration({
    .name = "49_d64",
    .previous = "48_scores",
    .role = ladder::Role::variant,
    .more_lines = {ladder::MoreLines::is_new, "Heads of 64 columns: tiles half as wide, and rings twice as deep."},
    .idea = "Heads of 64 columns: tiles are half as large, four of K and of V are on their way, and a pair shares them "
            "by rows.",
    .limit = "A kernel for 128 columns does not take 64, and with half of the columns a pair has no panel for each "
             "block to bring.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n = 1024, 4096, 16384 "
                  "all 1.00, within 4 %. A tile has half of the products and all of the exponentials: 1024 clocks of "
                  "either, so that each hides the other at best, and two warpgroups will not hide them well. 1750 "
                  "clocks a tile, where 48 has 2700 with twice the products.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 4>>(), variant<Config<f16, 128, 128, 8, 4>>({.label = "f16"})},
});

}  // namespace
