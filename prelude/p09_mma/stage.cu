#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 8);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * (load_Q + load_K + load_V),
          .shuffles = pairs * 2 * 4,              // two rows, two exchanges for the maximum and two for the sum
          .exponentials = pairs * 16 * (BC + 4),  // weights; a correction in each of a row's four lanes
          .barriers = tiles * 2,
          .gmem_accesses = (blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16 + blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = (BR + 2 * shape.n + 2 * BR) * ROW_BYTES / 32,  // of a block; O's are half used
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES,
          // 8 wavefronts a matrix instead of 1
          .conflicts = pairs * 7 * (4 * load_Q + 4 * load_K + 2 * load_V)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 8.0;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p09_mma",
    .previous = "p08_wmma",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::is_new, "mma.sync and ldmatrix, whose fragments are written down."},
    .idea = "Both products by mma.sync, whose fragments are written down: S, P and O stay in registers, and only Q, K "
            "and V pass through shared memory.",
    .limit = "p08_wmma sends S, P and P V through shared memory, because the fragments of WMMA are opaque.",
    .prediction = "Known from its three steps, so no prediction for their sum. S, P and P V were 98,304 of 771,072 "
                  "wavefronts at N = 512. Of those left, 97 % are 8-way conflicts of fragment loads. 199 FLOP for each "
                  "are at most 52 TFLOPS on an H200.",
    .min_sm = 80,
    .needs = "mma.m16n8k16",
    .resources = {{.sm = 80, .registers = 128, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<Config<64, 32, 4>>(), variant<Config<32, 64, 2>>()},
});

}  // namespace
