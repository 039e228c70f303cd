#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

// A pair of blocks takes a tile of queries of each of two heads, one by one, or two tiles of one head.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  if (!spec.causal || spec.heads / spec.key_heads() % 2 != 0) return ladder::models::predict_pairs<C, C::COLUMNS>(spec);
  ladder::Forward walks(spec, C::BR, C::BC);
  walks.blocks = ladder::min<uint64_t>(walks.queries, spec.multiprocessors / 2 * 2);
  return ladder::models::products<C>(C::COLUMNS, walks);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(std::move(rest), ladder::MODELS | ladder::SINK, C::COLUMNS,
                                                      C::COLUMNS < HEAD_DIM ? 8 : 104);
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "56_twins",
    .previous = "48_scores",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::rebuilt,
         "Pairs share keys and not queries, which turns the walk round; and windows and functions of scores go."},
    .idea =
        "Under a mask two blocks take the same queries of two heads that share keys, and all blocks walk equally far.",
    .limit = "Under a mask one block of a pair sees a tile of keys less than the other and waits for it, and in the "
             "last round half of the clusters have nothing to do.",
    .prediction = "After trials. In turns, on an H100, over 48 in bf16, causal: 1.05 with 32 heads over 8 at n = 4096, "
                  "1.04 at 16384, 1.04 with 64 over 8, twice, at 8192, within 2 %. A pair of tiles of queries is 33 "
                  "tiles of keys there instead of 34, and no cluster stands idle in a half-empty last round: counting "
                  "says 1.055. Without a mask, and with a head of keys for each of queries, 48's rate, within 1 %.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"}),
                 variant<Config<bf16, 128, 128, 8, 2, 96>>({.label = "d <= 96"}),
                 variant<Config<f16, 128, 128, 8, 2, 96>>({.label = "f16, d <= 96"})},
});

}  // namespace
