#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// Of the tiles of queries blocks take one at a time, under a mask a long walk and a short one. A warpgroup has its turn on all of the
// block's tiles of keys, and multiplies with those that it sees.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = ladder::models::is_window(spec), is_whole = spec.softcap > 0 || spec.alibi;
  const ladder::Forward walks(spec, C::BR, C::BC);
  const ladder::Strips strips(spec, C::BR / 64, C::BC, is_whole ? 0 : spec.keys(), false);
  ladder::Counts counts = ladder::models::products<C>(HEAD_DIM, walks);
  counts.wgmma = strips.tiles * (HEAD_DIM / 16 + C::BC / 16);
  counts.wgmma_left_running = (strips.tiles - strips.count) * (C::BC / 16);
  // In the first tile, and where a warp is careful; with a window or a softcap there is more to look for.
  counts.votes_on_scores = is_window || spec.softcap > 0 ? 0 : walks.queries * C::WARPS;
  // All but those of the first tile, and of the last one, where it is the block's last, too.
  counts.products_in_turns = counts.wgmma - strips.count * (HEAD_DIM / 16 + C::BC / 16) + strips.early * (C::BC / 16);
  counts.products_in_turns *= 4;                                 // warps
  counts.barriers += walks.tiles * C::WARPS / 4 - strips.count;  // a warpgroup's, for each tile of keys
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
    .name = "m05_dealt",
    .previous = "m02_evenly",
    .role = ladder::Role::branch,
    .idea = "From round to round a block takes the next share of a head and not the same one, and the last heads are "
            "dealt out tile by tile, the longest first.",
    .limit =
        "A head of 1024 queries is three shares, and 3 divides 132: a block gets the same one of each head, though the "
        "first is smaller. Of 4096 there are five shares for a block and a third of one, which takes as long as six.",
    .prediction =
        "By a count of products a strip of 64 queries and 1.5 tiles of keys for a seam, which says 1.09, 1.09, 1.11, "
        "1.10 and "
        "1.15, and 1.09 dense, for the busiest block, less what the clock takes. In turns, on an H200, over m02 in "
        "bf16, "
        "16 heads and 16384 tokens in all, causal: 1.05 at n = 512, 1.07 at 1024, 1.09 at 2048, 1.08 at 4096, 1.06 at "
        "16384; dense 1.06 at 1024; within 3 %. Over cuDNN, causal, 1.04 at 512, 1.08 at 1024, within 3 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 176 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 128, .spill_bytes = 0, .reason = "512 threads."}},
    .variants = {variant<Config<bf16, 192, 128, 12, 4>>(), variant<Config<f16, 192, 128, 12, 4>>({.label = "f16"})},
});

}  // namespace
