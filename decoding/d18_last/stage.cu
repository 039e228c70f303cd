#include "harness/stages/decoding.hpp"
#include "kernel.cuh"

namespace {

// Parts, and a count for each tile of rows.
template <class C>
uint64_t workspace_bytes(const ladder::Shape& spec) {
  const uint64_t blocks = ladder::decoding::Tiles<C>(spec).count;
  const int shares = blocks == 0 ? 1 : decoding::shares_of<C>(blocks, spec.keys(), decoding::MOST_SHARES);
  return shares <= 1 ? 0 : ladder::decoding::parts_bytes(spec, shares) + blocks * sizeof(uint32_t);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::decoding::variant<C>(std::move(rest));
  rest.workspace_bytes = workspace_bytes<C>;
  rest.same_bits = true;  // whoever joins
  return ladder::make_variant<C>(run<C>, flash_attention<C, true>, ladder::decoding::predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "d18_last",
    .previous = "d06_pages",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A count that may begin with anything, and the join that follows it in the same launch."},
    .idea = "One launch: the last block of those that share a head's keys joins what all have left, and a count in the "
            "workspace, which may have held anything, says who that is.",
    .limit = "In d06_pages a second launch joins, and that begins to read when the first has ended.",
    .prediction =
        "In turns, in a graph, bf16, 32 heads over 8, one query, over d06's time: batch 1 with 1024 keys 0.95, with "
        "8192 0.98, with 65536 1.00; batch 8 with 1024 keys 0.95, with 8192 0.98; batch 64 with 1024 and 8192 keys, "
        "where there is one share, 1.00. Within 2 %. A fence and an addition take a microsecond together, and the last "
        "block's reading most of another; what a dependent launch takes from the last store of a share to its own "
        "first load is a little more than that. 32 heads over one as d06: there a second launch joins still.",
    .min_sm = 90,
    .needs =
        "mma.m16n8k16 in f16 or bf16, cp.async, shfl, atom, fence.acq_rel, griddepcontrol, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 72, .reason = "with 32 rows: O has 128 and Q 64"}},
    .variants = {variant<Config<bf16, 16, 16, 8, 3>>(), variant<Config<f16, 16, 16, 8, 3>>({.label = "f16"})},
});

}  // namespace
