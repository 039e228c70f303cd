#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const ladder::Forward walks(spec, C::BR, C::BC, 2, spec.causal);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = 4 * first,                                // in the first tile
          .barriers = 2 * walks.blocks + first};                 // of the cluster, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES,
                  .min_d = 8,
                  .max_d = HEAD_DIM,
                  .d_step = 8,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16};
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "41_rows",
    .previous = "40_bf16",
    .role = ladder::Role::line,
    .more_lines =
        {ladder::MoreLines::is_new,
         "Any lengths and any strides: maps that know where rows end, a mask for the rest, rows without a key."},
    .idea = "Any number of queries and of keys, wherever their rows lie: the copy engine knows where rows end, a mask "
            "hides the rest, and each row's log-sum-exp is told.",
    .limit = "Tensors are one piece, with as many keys as queries, a multiple of 128. No model keeps to it.",
    .prediction =
        "In turns, over 40 at n = 8192 and 1024: 1.00 dense, 0.99 causal, where one tile more is compared with a "
        "mask; the log-sum-exp costs nothing. Over FlashAttention-3 in bf16, dense: 1.09 at n = 8191, 1.10 at 4000, "
        "1.08 at 1000, 1.05 for 512 queries beside 8192 keys. A tile that is not full costs a whole one, so n = 8191 "
        "keeps 1.00 of the rate at 8192, 4000 keeps 0.95 of 4096's and 1000 keeps 0.95 of 1024's.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
