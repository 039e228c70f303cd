#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Of the tiles of queries blocks take one at a time, under a mask a long walk and a short one.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = ladder::models::is_window(spec);
  const ladder::Forward walks(spec, C::BR, C::BC, 1, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4, first = walks.queries * C::WARPS / 4;
  ladder::Counts counts = ladder::models::products<C>(HEAD_DIM, walks);
  // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
  counts.votes_on_scores = is_window || spec.softcap > 0 ? 0 : walks.queries * C::WARPS;
  counts.products_in_turns = 4 * (pairs - first) * (HEAD_DIM / 16 + C::BC / 16);  // but of the first tile, and the last
  counts.barriers += pairs - first;  // a warpgroup's, for each tile of keys
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
    .name = "52_turns",
    .previous = "51_three",
    .role = ladder::Role::branch,
    .idea = "Warpgroups start their products by turns, so that one multiplies while the others make exponentials.",
    .limit = "Three warpgroups that start when they are ready come to the tensor cores together, and wait together.",
    .prediction = "Known from a trial: in turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n "
                  "= 1024 1.29, 4096 1.13, 16384 1.18, within 4 %; over 51 1.18, 1.27, 1.23.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
