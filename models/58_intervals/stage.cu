#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool has_intervals = spec.right == 0 || spec.intervals || ladder::models::is_alone(spec);
  ladder::Forward walks(spec, C::BR, C::BC, has_intervals ? 1 : C::BLOCKS, spec.causal && !has_intervals);
  if (has_intervals) walks.tiles = ladder::ByIntervals(spec, C::BR, C::BC).tiles;
  return ladder::models::products<C>(HEAD_DIM, walks, has_intervals ? 1 : 2);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest),
      ladder::MODELS | ladder::WINDOW | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK | ladder::INTERVALS, HEAD_DIM);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, Score<false, false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "58_intervals",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "An interval of keys for each query: a warp looks at those of a tile, tells them, and walks by them."},
    .idea = "Which keys a query sees is data, an interval for each query, and a warp finds the tiles of keys that 128 "
            "of them need.",
    .limit = "Causal or a window is a formula of the query's number. Documents that are packed into one sequence, and "
             "prefixes, have none.",
    .prediction =
        "In turns, in bf16, 16 heads, n = 32768, causal within documents, of what is inside: 8 documents 680 TFLOPS, "
        "32 documents 530, within 6 %. 47 reaches 733 in a window of 4096, which is 780 of all that it multiplies; "
        "counting says that 0.953 and 0.858 of what is multiplied here is inside, that the busiest block has 0.930 and "
        "0.812 of its share, and two or three percent go to tiles with the edge of a document, which are masked and "
        "looked through. A window of 1024 or 4096 has 48's rate, within 2 %: rows are found while the tile before is "
        "multiplied. Dense and causal, without a window: 48's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 195 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
