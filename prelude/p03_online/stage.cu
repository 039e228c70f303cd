#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <int WARPS, int KEYS, uint32_t UNUSED_BYTES>
constexpr uint32_t unused_bytes(Config<WARPS, KEYS, UNUSED_BYTES>) {
  return UNUSED_BYTES;
}

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t GROUPS = C::GROUPS;
  const uint64_t rows = shape.batch_heads() * shape.n, steps = (shape.n + GROUPS - 1) / GROUPS;
  return {
      .shuffles = rows * C::WARPS * steps * 3,                                        // a score's sum
      .exponentials = rows * (8 * (shape.n + steps * GROUPS) + C::THREADS * GROUPS),  // weights, corrections; the end
      .barriers = rows,
      .gmem_accesses = rows * HEAD_DIM * ((GROUPS + 2 * steps * GROUPS) / 8 + 1),   // loads of eight
      .gmem_sectors = shape.n % GROUPS == 0 ? C::WARPS * (8 + steps * 64 + 2) : 0,  // Q; K and V; O of a block
      .gmem_bytes_read = rows * HEAD_DIM * 2 * (GROUPS + 2 * steps * GROUPS),       // each group holds the row of Q
      .gmem_bytes_written = rows * HEAD_DIM * 2,
      .conflicts = rows * C::WARPS * 16,  // O's chunks are stored 32 B apart: 4 stores, 8 wavefronts instead of 4
      .unused_smem_bytes = unused_bytes(C())};
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant({.warps = C::WARPS}, C::SMEM_BYTES, run<C>, reinterpret_cast<const void*>(attention<C>),
                              predict<C>, {.label = std::move(label), .config = ladder::type_name<C>()});
}

const ladder::Registration registration({
    .name = "p03_online",
    .previous = "p02_coalesced",
    .role = ladder::Role::line,
    .idea = "The online softmax: one walk over the keys with a running maximum and sum, and no row of scores.",
    .limit = "p02_coalesced keeps a row of n scores in shared memory, which bounds n, and walks over it three times.",
    .prediction = "As fast as p02, 10 to 11 TFLOPS on an H200: every query still reads all of K and V, one byte for "
                  "each FLOP, and L2 decides. Rescaling O for every key makes 15 % more instructions, for which there "
                  "is room: p02 issues one in 46 % of the cycles. Any N: 65536 runs, which p02 refuses.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 72, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<Config<4, 2>>("2 keys under way"), variant<Config<4, 1>>("1 key under way"),
                 variant<Config<4, 4>>("4 keys under way"), variant<Config<4, 2, 16384>>("16 KiB unused")},
});

}  // namespace
