#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<bf16>(std::move(rest),
                                       ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES, HEAD_DIM);
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask>, ladder::models::predict_votes<C, HEAD_DIM>,
                                 std::move(rest));
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
        "In turns, over 40 at n = 8192 and 1024: 1.00 dense, 0.99 causal, where one tile more is compared with a mask; "
        "the log-sum-exp costs nothing. Over FlashAttention-3 in bf16, dense: 1.09 at n = 8191, 1.10 at 4000, 1.08 at "
        "1000, 1.05 for 512 queries beside 8192 keys. A tile that is not full costs a whole one, so n = 8191 keeps "
        "1.00 of the rate at 8192, 4000 keeps 0.95 of 4096's and 1000 keeps 0.95 of 1024's.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>()},
});

}  // namespace
