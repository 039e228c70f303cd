// p01_rowwise: attention in one kernel. A block owns one query and keeps its row of scores in shared memory, where the
//          softmax is taken: no n x n matrix exists any more.
// Before:  00_naive sends every score through global memory six times, as three kernels must.
// Block:   one query, 4 warps.  Shared: 4 n + 32 B.   Any d up to 256; a row must fit: n <= 58104 in 227 KiB.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr float LOG2E = 1.44269504088896341f;

// A block's warps and its shared memory: a maximum and a sum of each warp, and a row of scores. What is unused, only an
// experiment asks for: it leaves less to L1, which is a part of the same store.
template <int WARPS_, uint32_t UNUSED_BYTES = 0>
struct Config {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = 2 * WARPS * 4 + UNUSED_BYTES, SMEM_BYTES_PER_KEY = 4;
};

template <class C>
__global__ void __launch_bounds__(C::THREADS) attention(AttentionParams p) {
  constexpr int WARPS = C::WARPS, THREADS = C::THREADS;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_max = smem_base(), smem_sum = smem_max + WARPS * 4, smem_S = smem_sum + WARPS * 4;
  smem_name(smem_max, 2 * WARPS * 4, "max, sum");
  smem_name(smem_S, p.n * 4, "S");

  // LOAD  Q, K and V are read where they are needed, straight from global memory.
  const int query = blockIdx.x;
  const f16* Q_row = p.Q + (size_t(blockIdx.y) * p.n + query) * p.d;

  // QK    A thread computes one score, as in 00_naive, then the one 128 keys further.
  float thread_max = -INFINITY;
  for (int key = threadIdx.x; key < p.n; key += THREADS) {
    const f16* K_row = p.K + (size_t(blockIdx.y) * p.n + key) * p.d;
    float dot = 0.0f;
    for (int c = 0; c < p.d; ++c) dot += to_float(ld_global_f16(Q_row + c)) * to_float(ld_global_f16(K_row + c));
    const float score = dot * p.softmax_scale;
    thread_max = fmaxf(thread_max, score);
    st_shared_b32(smem_S + key * 4, __float_as_uint(score));
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

  // PV    A thread sums one column over all keys, as in 00_naive.
  for (int column = threadIdx.x; column < p.d; column += THREADS) {
    const f16* V_column = p.V + size_t(blockIdx.y) * p.n * p.d + column;
    float sum = 0.0f;
    for (int key = 0; key < p.n; ++key)
      sum += __uint_as_float(ld_shared_b32(smem_S + key * 4)) * to_float(ld_global_f16(V_column + size_t(key) * p.d));

    // STORE
    st_global_f16(p.O + (size_t(blockIdx.y) * p.n + query) * p.d + column, to_f16(sum / row_sum));
  }
}

// LAUNCH  One block per query of one head. The pointers of `p` belong to the device.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const uint32_t smem_bytes = C::SMEM_BYTES + C::SMEM_BYTES_PER_KEY * p.n;
  launch(device, attention<C>, dim3(p.n, p.batch_heads), dim3(C::THREADS), smem_bytes, p);
}

}  // namespace
