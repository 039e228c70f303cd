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
          .barriers = (is_alone ? 1 : 2) * walks.blocks + first +
                      walks.leaving * C::WARPS / 4};  // of the cluster, and of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = ladder::accepts_any_d<typename C::Element>(
      ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, HEAD_DIM);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.recorded = true;
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
