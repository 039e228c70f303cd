// The parts of a gradient kernel with mma.sync: what 62_transposed, 63_onewalk and 78_copies spell out, and 63 and 77
// to 79 say. f16, d = 128, heads one behind the other, n a multiple of a tile. backward.cuh says how such a part is
// found.
#pragma once
#include "common/words/backward.cuh"

namespace backward::mma {
inline namespace LADDER_OF_BUILD {

using namespace backward;
using heads::store_rows;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one row of an ldmatrix matrix, one vector load
constexpr int D_SLICES = HEAD_DIM / 16, COLUMN_TILES = HEAD_DIM / 8;

// Byte offset of a 16-byte chunk within a tile of 256-byte rows, swizzled: 02_swizzle.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}
// The same of dS^T, whose rows are 64 halves, 128 B: eight chunks (63_onewalk).
__device__ __forceinline__ uint32_t dS_offset(uint32_t key, uint32_t chunk) {
  return key * 128 + (chunk ^ (key % 8)) * 16;
}

// Copies a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory (62_transposed).
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source LADDER_SITE_PARAMETER) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    const uint4 eight_halves = ld_global_v4(source + (row + first_row) * HEAD_DIM + chunk * 8 LADDER_SITE);
    st_shared_v4(tile + chunk_offset(row + first_row, chunk), eight_halves LADDER_SITE);
  }
}
// Starts such copies by cp.async (78_copies).
template <int ROWS, int THREADS>
__device__ __forceinline__ void start_tile(uint32_t tile, const f16* source LADDER_SITE_PARAMETER) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    cp_async_16(tile + chunk_offset(row + first_row, chunk),
                source + (row + first_row) * HEAD_DIM + chunk * 8 LADDER_SITE);
  }
}

// C[16 x 8 TILES] = A[16 x d] B^T: scores, of a warp's 16 rows with a tile's (62_transposed). The rows of B are the
// columns of C.
template <int TILES>
__device__ __forceinline__ void multiply_rows(float (&C_frag)[TILES][4], uint32_t warp_A,
                                              uint32_t tile_B LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int d_slice = 0; d_slice < D_SLICES; ++d_slice) {
    const uint32_t offset = chunk_offset(lane % 16, d_slice * 2 + lane / 16);
    uint32_t A_frag[4];
    ldmatrix_x4(A_frag, warp_A + offset LADDER_SITE);
    for (int tile = 0; tile < TILES; tile += 2) {
      uint32_t B_frag[4];
      ldmatrix_x4(B_frag, tile_B + tile * 8 * ROW_BYTES + offset LADDER_SITE);
      mma_m16n8k16(C_frag[tile], A_frag, B_frag[0], B_frag[2] LADDER_SITE);
      mma_m16n8k16(C_frag[tile + 1], A_frag, B_frag[1], B_frag[3] LADDER_SITE);
    }
  }
}
// C[16 x d] += A[16 x 16] B: a gradient, of a warp's 16 rows, from 16 rows of a tile (62_transposed). They are the k
// dimension, so ldmatrix transposes them on their way into the registers.
__device__ __forceinline__ void add_rows(float (&C_frag)[COLUMN_TILES][4], const uint32_t (&A_frag)[4],
                                         uint32_t rows_B LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int column_tile = 0; column_tile < COLUMN_TILES; column_tile += 2) {
    uint32_t B_frag[4];
    ldmatrix_x4_trans(B_frag, rows_B + chunk_offset(lane % 16, column_tile + lane / 16) LADDER_SITE);
    mma_m16n8k16(C_frag[column_tile], A_frag, B_frag[0], B_frag[1] LADDER_SITE);
    mma_m16n8k16(C_frag[column_tile + 1], A_frag, B_frag[2], B_frag[3] LADDER_SITE);
  }
}

// Of this block's head in the workspace (63_onewalk): the sum of dQ, [n, d] f32, and D, [n]; with C::KEEPS_LSE behind
// it LSE in log2 units, [n] (78_copies).
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const GradientParams& p) {
  return static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q * (HEAD_DIM + 1 + C::KEEPS_LSE);
}
template <class C>
__device__ __forceinline__ float* D_of(const GradientParams& p) {
  return dQ_sum_of<C>(p) + size_t(p.n_q) * HEAD_DIM;
}
template <class C>
__device__ __forceinline__ float* LSE_log2_of(const GradientParams& p) {
  return D_of<C>(p) + p.n_q;
}

// D[query] = dot(dO[query], O[query]), eight lanes a row, LSE if it is kept, and zeros for the sum of dQ (63_onewalk).
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) deltas(GradientParams p) {
  for (int row = blockIdx.x * C::BR + threadIdx.x / 8, end = (blockIdx.x + 1) * C::BR; row < end;
       row += C::THREADS / 8) {
    const size_t query = size_t(blockIdx.y) * p.n_q + row;
    const float D = row_dot<HEAD_DIM, HEAD_DIM>(p.O, p.dO, query);
    if (threadIdx.x % 8 == 0) {
      st_global_f32(D_of<C>(p) + row, D);
      if (C::KEEPS_LSE) st_global_f32(LSE_log2_of<C>(p) + row, ld_global_f32(p.LSE + query) * LOG2E);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of<C>(p) + size_t(row) * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// Starts copies of Q, dO, D, LSE of a tile of queries of the block's head into a slot of a ring, as one group
// (78_copies).
template <class C>
__device__ __forceinline__ void load_queries(uint32_t slot, const GradientParams& p, int tile LADDER_SITE_PARAMETER) {
  const size_t query = size_t(blockIdx.y) * p.n_q + tile * C::BR;
  start_tile<C::BR, C::THREADS>(slot, p.Q + query * HEAD_DIM LADDER_SITE);
  start_tile<C::BR, C::THREADS>(slot + C::TILE_BYTES, p.dO + query * HEAD_DIM LADDER_SITE);
  if (threadIdx.x < C::BR / 2) {  // four numbers a thread
    const uint32_t of_LSE = threadIdx.x / (C::BR / 4), row = threadIdx.x % (C::BR / 4) * 4;
    cp_async_16(slot + 2 * C::TILE_BYTES + (of_LSE * C::BR + row) * 4,
                (of_LSE ? LSE_log2_of<C>(p) : D_of<C>(p)) + tile * C::BR + row LADDER_SITE);
  }
  cp_async_commit(LADDER_SITE_ALONE);
}

}  // namespace LADDER_OF_BUILD
}  // namespace backward::mma
