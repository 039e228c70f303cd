#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  ladder::Counts counts = ladder::models::predict<C, HEAD_DIM>(spec);
  counts.barriers += ladder::models::walks<C>(spec).leaving * C::WARPS / 4;  // of a warpgroup that lets tiles pass
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest), ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, forward::NoMask, Score<false, false>>, predict<C>,
                                 std::move(rest));
}

const ladder::Registration registration({
    .name = "53_d256",
    .previous = "48_scores",
    .role = ladder::Role::variant,
    .more_lines = {ladder::MoreLines::is_new, "Heads of 256 columns: tiles half as long, and one place for Q and O."},
    .idea = "Heads of 256 columns: tiles of 64 keys, and one Q, from whose place O leaves before the next one comes.",
    .limit =
        "With 256 columns neither shared memory nor registers hold what a kernel for 128 keeps of everything: two.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 8 heads: n = 1024 0.97, 4096 "
                  "1.01, 16384 1.02, within 4 %. A tile of 128 x 80 takes 2560 clocks of products and 640 of "
                  "exponentials, so that nothing but products counts, and they are the same in both kernels. At n = "
                  "1024 there is one Q, so that O has to leave before the next Q comes, in every sixteenth tile.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 8,
                   .reason =
                       "The thread that copies has 24 registers, and keeps two numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 64, 8, 2>>(), variant<Config<f16, 128, 64, 8, 2>>({.label = "f16"})},
});

}  // namespace
