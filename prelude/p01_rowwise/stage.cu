#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <int WARPS, uint32_t UNUSED_BYTES>
constexpr uint32_t unused_bytes(Config<WARPS, UNUSED_BYTES>) {
  return UNUSED_BYTES;
}

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n, scores = rows * shape.n;
  return {.shuffles = rows * C::WARPS * (5 + 5),  // the maximum, the sum of the weights
          .exponentials = rows * shape.n,
          .barriers = rows * 2,
          .gmem_accesses = scores * shape.d * 3 + rows * shape.d,
          // Every score reads a row of Q and of K; every output a column of V.
          .gmem_bytes_read = scores * shape.d * 2 * 2 + scores * shape.d * 2,
          .gmem_bytes_written = rows * shape.d * 2,
          .unused_smem_bytes = unused_bytes(C())};
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant({.warps = C::WARPS}, C::SMEM_BYTES, run<C>, reinterpret_cast<const void*>(attention<C>),
                              predict<C>,
                              {.label = std::move(label),
                               .config = ladder::type_name<C>(),
                               .smem_bytes_per_key = C::SMEM_BYTES_PER_KEY,
                               .accepts = {.min_d = 1, .max_d = 256}});
}

const ladder::Registration registration({
    .name = "p01_rowwise",
    .previous = "00_naive",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::is_new,
                   "One kernel in place of three: a block has a row of scores in shared memory, and its threads meet "
                   "at barriers."},
    .idea = "One kernel instead of three: a block per query, and its row of scores stays in shared memory.",
    .limit = "00_naive sends every score through global memory six times, and needs room for n x n of them.",
    .prediction = "Memory is won, not time: 0.9 TFLOPS on an H200, 0.6 times 00_naive. A warp's load of K now touches "
                  "32 lines, which L1 looks up one a cycle, where 00_naive's touches 16: 33 + 3 cycles for 32 products "
                  "of QK and of PV instead of 18 + 3.",
    .min_sm = 75,
    .needs = "4 bytes of shared memory for every key",
    .resources = {{.sm = 80, .registers = 32, .spill_bytes = 0}, {.sm = 90, .registers = 32, .spill_bytes = 0}},
    .variants = {variant<Config<4>>("one query, 4 warps"), variant<Config<4, 5120>>("5 KiB unused")},
});

}  // namespace
