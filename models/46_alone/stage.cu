#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warpgroup, 64 queries, and tile of keys.
template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  const bool is_window = spec.left >= 0 || spec.right > 0;
  const ladder::Forward walks(spec, C::BR, C::BC, is_window ? 1 : C::BLOCKS, spec.causal && !is_window);
  const uint64_t pairs = walks.tiles * C::WARPS / 4,
                 first = walks.queries * C::WARPS / 4;           // of each tile of queries the first tile of keys
  return {.wgmma = pairs * (HEAD_DIM / 16 + C::BC / 16),         // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - first) * (C::BC / 16),  // PV, but of the last tile
          .yes_votes = ladder::NONE,                             // a first maximum is looked for, and changes nothing
          .barriers = (is_window ? 1 : 2) * walks.blocks +
                      first};  // of the cluster, where there is one, and one of a warpgroup
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  // of several lengths a box may not begin behind the columns
  rest.accepts = ladder::accepts_any_d<typename C::Element>(ladder::MODELS | ladder::WINDOW | ladder::VARLEN, HEAD_DIM,
                                                            PANEL_COLS + 8);
  rest.writes_lse = true;
  rest.from_first_key = true;
  rest.workspace_bytes = [](const ladder::Shape& spec) {
    return spec.lens_q.count > 0 ? spec.batch * sizeof(Sequence) : uint64_t{0};
  };
  rest.few_tiles = 800;  // six for each SM of an H200
  rest.recorded = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C, NoMask, false>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "46_alone",
    .previous = "45_varlen",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "A block alone and a pair are two kernels of one text, so whatever both rings do asks which of them it is."},
    .idea = "In a window blocks work alone, each with its own copies of K and V.",
    .limit = "Two blocks share what either of them needs. In a narrow window one tile in four is of use to one of "
             "them alone, and the other waits until it has left the ring.",
    .prediction = "In turns, over FlashAttention-3 in bf16, causal, n = 32768, 16 heads: a window of 256 1.05, of "
                  "1024 1.06, of 4096 1.06. A block's turn in a window of 256 has three tiles of keys and no fourth. "
                  "It reads half as much again from L2 as before, which L2 can give. Without a window nothing changes.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90,
                   .registers = 168,
                   .spill_bytes = 16,
                   .reason =
                       "The thread that copies has 24 registers, and keeps four numbers of its schedule in memory."}},
    .variants = {variant<Config<bf16, 128, 128, 8, 2>>(), variant<Config<f16, 128, 128, 8, 2>>({.label = "f16"})},
});

}  // namespace
