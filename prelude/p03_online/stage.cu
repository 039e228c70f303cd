#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// Shared memory that nobody uses leaves less to L1: both are parts of one store.
template <int KEYS, uint32_t UNUSED_BYTES = 0>
void run(Device& device, const AttentionParams& p) {
  launch(device, attention<KEYS>, dim3(p.n, p.batch_heads), dim3(THREADS), SMEM_BYTES + UNUSED_BYTES, p);
}

ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, steps = (shape.n + GROUPS - 1) / GROUPS;
  return {.shuffles = rows * WARPS * steps * 3,  // a score's sum
          .barriers = rows,
          .gmem_bytes_read = rows * HEAD_DIM * 2 * (GROUPS + 2 * steps * GROUPS),  // each group holds the row of Q
          .gmem_bytes_written = rows * (HEAD_DIM * 2 + 4)};
}

template <int KEYS>
ladder::Variant variant(std::string label, decltype(&run<KEYS>) run_it = run<KEYS>, uint32_t unused_bytes = 0) {
  return ladder::make_variant(std::move(label), {.warps = WARPS}, SMEM_BYTES + unused_bytes, run_it,
                              reinterpret_cast<const void*>(attention<KEYS>), 0.0, predict);
}

const ladder::Registration registration({
    .name = "00ab_online",
    .previous = "00aa_coalesced",
    .idea = "The online softmax: one walk over the keys with a running maximum and sum, and no row of scores.",
    .limit = "00aa_coalesced keeps a row of n scores in shared memory, which bounds n, and walks over it three times.",
    .prediction =
        "As fast as 00aa: every query still reads all of K and V, one byte for each FLOP, and L2 decides. Rescaling O "
        "for every key costs no more instructions than PV by columns did, 28.6 to a block and key against 29. Any N: "
        "65536 runs, which 00aa refuses.",
    .min_sm = 75,
    .needs = "nothing special",
    .writes_lse = true,
    .uncounted = {"28.6", "29", "65536"},
    .resources = {{.sm = 80, .registers = 72, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<2>("2 keys under way"), variant<1>("1 key under way"), variant<4>("4 keys under way"),
                 variant<2>("16 KiB unused", run<2, 16384>, 16384)},
});

}  // namespace
