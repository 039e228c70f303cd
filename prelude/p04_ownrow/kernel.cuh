// p04_ownrow: a group owns a query and walks over all keys. Its maximum, its sum and its O are the row's: nothing is
//          joined, and the four groups of a warp ask for the same row of K or V at the same time.
// Before:  p03_online has the 16 groups of a block read 16 rows of K and V at a time, each for one query.
// Block:   16 queries, 4 warps.  Shared: nothing.  Needs d = 128.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int CHUNKS = 2;  // of 8 halves = 16 B, one vector load: a lane has 16 of a row's 128 columns
constexpr float LOG2E = 1.44269504088896341f;

// A block's warps, and its queries: one for each group of eight lanes.
template <int WARPS_>
struct Config {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, BR = THREADS / 8;
  static constexpr uint32_t SMEM_BYTES = 0;
};

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], const f16* source) {
  const uint4 chunk = ld_global_v4(source);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) flash_attention(AttentionParams p) {
  constexpr int BR = C::BR;

  const uint32_t group = threadIdx.x / 8, rows = p.n - blockIdx.x * BR;
  const uint32_t row = group < rows ? group : rows - 1;  // groups past the last query repeat it, and store nothing
  const uint32_t eighth = threadIdx.x % 8;               // of a row: columns eighth * 8 to + 7, and 64 further
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O

  // LOAD  K and V are read where they are needed, straight from global memory.
  float Q_part[CHUNKS][8];
  for (int chunk = 0; chunk < CHUNKS; ++chunk)
    load_chunk(Q_part[chunk], p.Q + block_rows + row * HEAD_DIM + eighth * 8 + chunk * 64);

  // QK    Eight lanes compute a score: each sums 16 products, and three exchanges complete the sum.
  float O_part[CHUNKS][8] = {}, row_max = -INFINITY, row_sum = 0.0f;  // of the keys so far
#pragma unroll 2
  for (int key = 0; key < p.n; ++key) {
    float score = 0.0f;
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      float K_part[8];
      load_chunk(K_part, p.K + head + size_t(key) * HEAD_DIM + eighth * 8 + chunk * 64);
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
      load_chunk(V_part, p.V + head + size_t(key) * HEAD_DIM + eighth * 8 + chunk * 64);
      for (int i = 0; i < 8; ++i) O_part[chunk][i] = O_part[chunk][i] * correction + weight * V_part[i];
    }
  }

  // STORE  Eight lanes together write 128 B of a row, twice.
  if (group >= rows) return;
  const float normalise = 1.0f / row_sum;
  f16* O_row = p.O + block_rows + row * HEAD_DIM + eighth * 8;
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = pack_f16x2(O_part[chunk][2 * i] * normalise, O_part[chunk][2 * i + 1] * normalise);
    st_global_v4(O_row + chunk * 64, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}

// LAUNCH  One block per BR queries of one head. The pointers of `p` belong to the device.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const uint32_t blocks = (p.n + C::BR - 1) / C::BR;
  launch(device, flash_attention<C>, dim3(blocks, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
