#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Of the tiles of queries blocks take one at a time, under a mask a long walk and a short one.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = ladder::models::is_window(spec);
  const ladder::Forward walks(spec, C::BR, C::BC, 1, spec.causal && !is_window);
  ladder::Counts counts = ladder::models::products<C>(HEAD_DIM, walks, 1);
  // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
  counts.votes_on_scores = is_window || spec.softcap > 0 ? 0 : walks.queries * C::WARPS;
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
    .name = "51_three",
    .previous = "49_d64",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "A block of three warpgroups works alone, so all that two blocks of a cluster said to each other goes, too."},
    .idea = "A third warpgroup of queries: while one multiplies, two make exponentials.",
    .limit = "Half as wide a tile has half of the products and all of the exponentials, and two warpgroups wait for "
             "each other.",
    .prediction = "In turns, over FlashAttention-3 in bf16, dense, batch * n = 16384, 16 heads: n = 1024 0.98, 4096 "
                  "1.05, 16384 1.07, within 4 %. A tile of 128 x 128 takes 1640 clocks at n = 16384, where 49 takes "
                  "2150: products and exponentials take 1024 each, and of three warpgroups one is mostly multiplying. "
                  "At n = 1024 a sixth tile of 192 queries is two thirds empty.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
