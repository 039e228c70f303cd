#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

void convert(const ladder::Arguments& arguments, BlockGradientParams& params) {
  BlockParams lists;
  ladder::convert(arguments, lists);
  ladder::convert(arguments, static_cast<ModelGradientParams&>(params));
  params.lists = lists.lists, params.counts = lists.counts, params.stencils = lists.stencils;
  params.block_keys = lists.block_keys, params.most_blocks = lists.most_blocks;
  params.of_sequence = lists.of_sequence, params.of_head = lists.of_head;
}

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  using namespace ladder::backward;
  return shape.blocks ? predict_walks<C, HEAD_DIM, ladder::walk_by_lists>(shape)
                      : Products<C, HEAD_DIM>(shape).counts();
}

// Behind sums and rows a walk for each tile of keys and each head, of all tiles of queries at most.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t walks = uint64_t(spec.batch_heads()) * ladder::tiles_of(spec.keys(), C::BC);
  return ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>(spec) +
         (spec.blocks ? walks * (ladder::tiles_of(spec.n, C::BR) + 1) * sizeof(Met) : 0);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest), workspace_bytes<C>, ladder::WINDOW | ladder::BLOCKS,
                                                HEAD_DIM, PANEL_COLS + 8);
  return ladder::make_variant<C>(run<C>, gradients<typename C::Listed>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "93_lists",
    .previous = "82_nearby",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "A new problem: lists are turned over, and who copies and who adds follow them in the place of a formula."},
    .idea = "59's lists read by keys: for each tile of keys a warp goes through the lists of all queries, and what it "
            "finds is the tile's walk.",
    .limit = "In 82_nearby, and in 92_intervals, a walk goes from its first tile of queries to its last. A sparse mask "
             "is holes: nine of ten tiles between them would be masked.",
    .prediction = "In turns, in bf16, 16 heads, n = 32768, of what is inside: blocks of 128 keys 560 TFLOPS at a "
                  "density of 0.1, 600 at 0.3, blocks of 64 keys 310 at 0.1, each within 8 %. 2.06 us a tile of 64 x "
                  "128 and 3.5 us a block, as in 92, 235 us for D and dQ's way into bf16 and 40 us for the lists give "
                  "591, 634 and 326; of blocks of 64 keys a tile of 128 meets nearly twice as many, and half of what "
                  "it multiplies is hidden. What is taken off is for the L2 cache: neighbours walk over different "
                  "queries, and Q, dO and the sum of dQ of a head are 32 MiB. Over FlexAttention's gradients at 0.1, "
                  "128 keys, 1.5 to 2.5. Dense and causal, n = 4096, batch 4: 82's rate, within 1.5 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 195 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 64,
                   .reason =
                       "The threads that copy and add have 24 registers, and keep some of their walk in memory."}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
