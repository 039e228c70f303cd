// p05_shared: K and V come tile by tile into shared memory, so what is read from global memory serves 16 queries.
// Before:  p04_ownrow has every warp read all of K and V, and leaves what warps have in common to the caches.
// Tile:    16x64, 4 warps.  Shared: 36 KiB (Q 4, K 16, V 16).  Needs d = 128, n % BR == 0, n % BC == 0.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
constexpr int CHUNKS = 2;                   // of these, a lane has two: 16 of a row's 128 columns
constexpr float LOG2E = 1.44269504088896341f;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES;
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + chunk * 16;
}

// Copies a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    const uint4 eight_halves = ld_global_v4(source + (row + first_row) * HEAD_DIM + chunk * 8);
    st_shared_v4(tile + chunk_offset(row + first_row, chunk), eight_halves);
  }
}

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], uint32_t address) {
  const uint4 chunk = ld_shared_v4(address);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) flash_attention(AttentionParams p) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, THREADS = C::THREADS;
  static_assert(BR == 4 * WARPS, "each group of eight lanes owns a row");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t row = threadIdx.x / 8, eighth = threadIdx.x % 8;  // a lane's eighth: chunks eighth and eighth + 8
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, BC * ROW_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, BC * ROW_BYTES, "V", ROW_BYTES);

  float O_part[CHUNKS][8] = {}, row_max = -INFINITY, row_sum = 0.0f;  // of the keys so far

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);
  __syncthreads();  // safe to read Q: every thread has stored its part
  float Q_part[CHUNKS][8];
  for (int chunk = 0; chunk < CHUNKS; ++chunk)
    load_chunk(Q_part[chunk], smem_Q + chunk_offset(row, eighth + chunk * 8));

#pragma unroll 2
  for (int key = 0; key < p.n; ++key) {
    // LOAD
    if (key % BC == 0) {
      __syncthreads();  // safe to overwrite K and V: every warp has finished PV of the tile before
      load_tile<BC, THREADS>(smem_K, p.K + head + size_t(key) * HEAD_DIM);
      load_tile<BC, THREADS>(smem_V, p.V + head + size_t(key) * HEAD_DIM);
      __syncthreads();  // safe to read K and V: every thread has stored its part
    }

    // QK    Eight lanes compute a score: each sums 16 products, and three exchanges complete the sum.
    float score = 0.0f;
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      float K_part[8];
      load_chunk(K_part, smem_K + chunk_offset(key % BC, eighth + chunk * 8));
      for (int i = 0; i < 8; ++i) score += Q_part[chunk][i] * K_part[i];
    }
    score += shfl_xor(score, 1);
    score += shfl_xor(score, 2);
    score += shfl_xor(score, 4);
    score *= p.softmax_scale;

    // SOFTMAX  A larger maximum makes all earlier weights smaller, by one factor: the sum and O are put right with it.
    const float new_max = fmaxf(row_max, score);
    const float weight = ex2_approx((score - new_max) * LOG2E);
    const float correction = ex2_approx((row_max - new_max) * LOG2E);  // <= 1; 0 for the first key
    row_max = new_max;
    row_sum = row_sum * correction + weight;

    // PV
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      float V_part[8];
      load_chunk(V_part, smem_V + chunk_offset(key % BC, eighth + chunk * 8));
      for (int i = 0; i < 8; ++i) O_part[chunk][i] = O_part[chunk][i] * correction + weight * V_part[i];
    }
  }

  // STORE  Eight lanes together write 128 B of a row, twice.
  const float normalise = 1.0f / row_sum;
  f16* O_row = p.O + block_rows + row * HEAD_DIM + eighth * 8;
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = pack_f16x2(O_part[chunk][2 * i] * normalise, O_part[chunk][2 * i + 1] * normalise);
    st_global_v4(O_row + chunk * 64, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}

// LAUNCH  One block per BR queries of one head. The pointers of `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
