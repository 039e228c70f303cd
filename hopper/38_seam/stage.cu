#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// What lies between two tiles of queries: sums beside the last PV; O packed beside the next QK, whose softmax runs under O's way out.
template <class C>
ladder::Counts predict(const ladder::Launched& shape) {
  ladder::Counts counts = ladder::hopper::in_pairs<C>(shape, true);
  const uint64_t q_warps = counts.yes_votes, later = q_warps - ladder::coupled(shape, C::BR).blocks * C::WARPS;
  counts.shuffles_beside_products = q_warps * 2 * 2;
  counts.votes += q_warps;                                         // in the first tile a warp asks twice
  counts.packs_beside_products += later * 32 * (HEAD_DIM / 4);     // O
  counts.integer_maxima = ladder::NONE;                            // but where a warp is careful
  counts.exponentials_under_stores = later * 2 * (C::BC / 2 + 2);  // those of the next first tile
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.from_first_key = true;
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32};
  rest.most_per_rescale = {.votes = 1};                          // whether a score is huge
  rest.per_look = {.integer_maxima = 2 * 32 * (C::BC / 8 + 1)};  // of a careful warp: two scores at a time
  rest.most_of_data = ladder::hopper::remembered_under<C>;
  return ladder::make_variant<C>(run<C>, flash_attention<C, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "38_seam",
    .previous = "37_plain",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "Besides its idea scores of any size: a row that has met a huge one keeps a calm maximum, and the "
                   "largest score above it."},
    .idea = "What lies between two tiles of queries runs under products: sums and the next tile's place under the last "
            "PV, O's way out under the next QK.",
    .limit =
        "From a tile's last weights to the next one's first it takes 5400 clocks, by the SM's own clock: sums, a "
        "barrier, O's way out, divisions, zeros and a QK, one after another. That is as long as two tiles of keys.",
    .prediction = "In turns, over 37: causal 1.02 at n = 1024 and 1.04 at n = 512; dense 1.01 at both; the same at n = "
                  "8192 (a trial, alone, had 1.01 to 1.04, 1.04, 1.00, 1.00 and 0.99 to 1.00). No count changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
