#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// A pair is a tile of queries that a block of keys walks over.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, product = BR * BC * HEAD_DIM / (16 * 8 * 16), QUERY_SLICES = BR / 16;
  constexpr uint64_t scores_of_warp = D_SLICES * (2 + BR / 16), gradient_of_warp = QUERY_SLICES * D_SLICES,
                     dQ_of_warp = BC / 16 * (2 + 2);  // ldmatrix
  const uint64_t heads = shape.batch_heads(), side = shape.n / BC, blocks = heads * side,
                 pairs = heads * (shape.causal ? side * (side + 1) : 2 * side * side);
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  const uint64_t copies = 2 * BR * ROW_CHUNKS + BR / 2;  // of 16 bytes, for a tile: Q, dO; D, LSE
  return {
      .mma = pairs * 5 * product,  // S, dP, dV, dK, dQ
      .ldmatrix = pairs * (8 * (scores_of_warp + gradient_of_warp) + 8 * dQ_of_warp),
      // All but a block's last pair ask for the next tile. A warp has a quarter of two products, and of dQ an eighth, but
      // in the first pair.
      .products_under_copies = copies * ((pairs - blocks) * 5 * product / 8 - blocks * product / 8),
      .shuffles = rows / 4 * 3,
      .exponentials = pairs * BR * BC,
      .barriers = pairs * (1 + 8) + blocks,
      .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)            // deltas and zeros
                       + pairs * BR * HEAD_DIM                                 // reductions
                       + rows * HEAD_DIM                                       // the sum
                       + 3 * rows * ROW_BYTES / 4,                             // dQ, dK, dV
      .gmem_sectors = 2 * side * (copies * 16 + BR * sum_bytes) / 32           // of tiles; reductions
                      + (2 * (BR + BC) * ROW_BYTES + 2 * BR * sum_bytes) / 32  // O, dO, K, V; zeros, the sum
                      + 3 * BR / 4 + (BR + 2 * BC) * ROW_BYTES / 16,           // LSE, D; dQ, dK, dV half a sector each
      .gmem_bytes_read =
          rows * (2 * ROW_BYTES + 4) + 2 * blocks * BC * ROW_BYTES + pairs * copies * 16 + rows * sum_bytes,
      .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES),
      .gmem_bytes_reduced = pairs * BR * sum_bytes};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 2) * sizeof(float);  // the sum of dQ, D, LSE
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "79_groups",
    .previous = "78_copies",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Warps take different products, so each part of the walk is written for one of two teams."},
    .idea = "Four warps have P and dV of the keys, four dS and dK: each operand from shared memory serves twice the "
            "products.",
    .limit = "In 78_copies a warp has 16 keys, and reads all of Q and dO for them, twice: shared memory is 78 % busy.",
    .prediction = "Known from a trial, so no prediction: 1.09 times 78 on an H100 at n = 1024 and 1.11 times at n = "
                  "4096, dense; there "
                  "1.13 and 1.08 times FlashAttention-2 in PyTorch.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, red.f32, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8>>()},
});

}  // namespace
