// p02_coalesced: eight lanes read a row of K together, 16 bytes each, and sum its score by shuffles. A warp's load is
//          of whole lines, 128 B each, and uses all of them.
// Before:  p01_rowwise reads with a warp from 32 rows of K at a time, 2 bytes of a line each.
// Block:   one query, 4 warps.  Shared: 4 n + 32 B.  Needs d = 128; a row must fit: n <= 58104 in 227 KiB.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int CHUNKS = 2;  // of 8 halves = 16 B, one vector load: a lane has 16 of a row's 128 columns
constexpr float LOG2E = 1.44269504088896341f;

// A block's warps, its groups of eight lanes, which read a row together, and its shared memory: a maximum and a sum of
// each warp, and a row of scores.
template <int WARPS_>
struct Config {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, GROUPS = THREADS / 8;
  static constexpr uint32_t SMEM_BYTES = 2 * WARPS * 4, SMEM_BYTES_PER_KEY = 4;
};

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], const f16* source) {
  const uint4 chunk = ld_global_v4(source);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) attention(AttentionParams p) {
  constexpr int WARPS = C::WARPS, THREADS = C::THREADS, GROUPS = C::GROUPS;
  static_assert(THREADS == HEAD_DIM, "each thread stores one column of O");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = threadIdx.x / 8, eighth = threadIdx.x % 8;  // of a row: columns eighth * 8 to + 7, and 64 further
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_row = head + size_t(blockIdx.x) * HEAD_DIM;  // this block's row of Q and O
  const uint32_t smem_max = smem_base(), smem_sum = smem_max + WARPS * 4, smem_S = smem_sum + WARPS * 4;
  smem_name(smem_max, 2 * WARPS * 4, "max, sum");
  smem_name(smem_S, p.n * 4, "S");

  // LOAD  K and V are read where they are needed, straight from global memory.
  float Q_part[CHUNKS][8];
  for (int chunk = 0; chunk < CHUNKS; ++chunk) load_chunk(Q_part[chunk], p.Q + block_row + eighth * 8 + chunk * 64);

  // QK    Eight lanes compute a score: each sums 16 products, and three exchanges complete the sum. All lanes of a
  //       warp take part in an exchange, so past the last key they repeat it.
  float thread_max = -INFINITY;
#pragma unroll 2
  for (int first = 0; first < p.n; first += GROUPS) {
    const int key = first + group < p.n ? first + group : p.n - 1;
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
    thread_max = fmaxf(thread_max, score);
    if (eighth == 0 && first + group < p.n) st_shared_b32(smem_S + key * 4, __float_as_uint(score));
  }

  // SOFTMAX  Three steps, and the row is complete before each: its maximum, then the weights and their sum.
  for (int mask = 16; mask > 0; mask /= 2) thread_max = fmaxf(thread_max, shfl_xor(thread_max, mask));
  if (lane == 0) st_shared_b32(smem_max + warp * 4, __float_as_uint(thread_max));
  __syncthreads();  // safe to read the scores and the warps' maxima: every thread has stored its part
  float row_max = -INFINITY;
  for (int w = 0; w < WARPS; ++w) row_max = fmaxf(row_max, __uint_as_float(ld_shared_b32(smem_max + w * 4)));

  float thread_sum = 0.0f;
  for (int key = threadIdx.x; key < p.n; key += THREADS) {
    const float weight = ex2_approx((__uint_as_float(ld_shared_b32(smem_S + key * 4)) - row_max) * LOG2E);
    thread_sum += weight;
    st_shared_b32(smem_S + key * 4, __float_as_uint(weight));
  }
  for (int mask = 16; mask > 0; mask /= 2) thread_sum += shfl_xor(thread_sum, mask);
  if (lane == 0) st_shared_b32(smem_sum + warp * 4, __float_as_uint(thread_sum));
  __syncthreads();  // safe to read the weights and the warps' sums: every thread has stored its part
  float row_sum = 0.0f;
  for (int w = 0; w < WARPS; ++w) row_sum += __uint_as_float(ld_shared_b32(smem_sum + w * 4));

  // PV    A thread sums one column over all keys, as before: a warp's lanes read neighbouring columns, 64 B of one row.
  const f16* V_column = p.V + head + threadIdx.x;
  float sum = 0.0f;
  for (int key = 0; key < p.n; ++key, V_column += HEAD_DIM)
    sum += __uint_as_float(ld_shared_b32(smem_S + key * 4)) * to_float(ld_global_f16(V_column));

  // STORE
  st_global_f16(p.O + block_row + threadIdx.x, to_f16(sum / row_sum));
}

// LAUNCH  One block per query of one head. The pointers of `p` belong to the device.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const uint32_t smem_bytes = C::SMEM_BYTES + C::SMEM_BYTES_PER_KEY * p.n;
  launch(device, attention<C>, dim3(p.n, p.batch_heads), dim3(C::THREADS), smem_bytes, p);
}

}  // namespace
