#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

void convert(const ladder::Arguments& arguments, IntervalGradientParams& params) {
  ladder::convert(arguments, static_cast<ModelGradientParams&>(params));
  params.first = static_cast<const int*>(arguments.at("first"));
  params.end = static_cast<const int*>(arguments.at("end"));
}

// Behind sums and rows: a Look for each tile of queries, and where each walk begins and ends.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  return ladder::backward::list_and_sum_bytes<C, HEAD_DIM + 2, Sequence>(spec) +
         spec.batch * (ladder::tiles_of(spec.n, C::BR) * C::TileLook::BYTES + ladder::tiles_of(spec.keys(), C::BC) * 8);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest), workspace_bytes<C>, ladder::WINDOW | ladder::INTERVALS,
                                                HEAD_DIM);
  return ladder::make_variant<C>(
      run<C>, gradients<C>, ladder::backward::predict_walks<C, HEAD_DIM, ladder::walk_by_intervals>, std::move(rest));
}

const ladder::Registration registration({
    .name = "92_intervals",
    .previous = "82_nearby",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "A new problem: rows' intervals are looked at, a kernel finds walks, and what copies brings the "
                   "intervals along."},
    .idea = "58's intervals read by keys: a tile of queries says which keys it sees at least and at most, and a tile "
            "of keys walks over those that may see it.",
    .limit = "In 82_nearby the queries that see a key are a formula of its number. Documents that are packed into one "
             "sequence, and prefixes, have none.",
    .prediction =
        "In turns, in bf16, 16 heads, n = 32768, causal within documents, of what is inside: 8 documents 565 TFLOPS, "
        "32 documents 435, within 6 %. 82's rows of a window of 1024, of 4096 and of none fit 2.06 us a tile of 64 x "
        "128, 3.5 us a block, and 235 us for D and dQ's way into bf16; counting says that 0.963 and 0.884 of what is "
        "multiplied here is inside, that the mean multiprocessor has 0.964 and 0.943 of the busiest one's work, and "
        "that 8 and 23 % of the tiles have an edge, which takes some 200 clocks more than in 82. Over FlexAttention's "
        "gradients 1.5 to 2.5. Dense and causal, n = 4096, batch 4, and in a window of 1024, n = 16384: 82's rate, "
        "within 1.5 %: each tile brings 528 B more, and a launch is added where the list of sequences was made.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 194 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 64, 128, 8, 2>>(), variant<Config<f16, 64, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
