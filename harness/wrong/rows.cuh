// Wrong kernels again, in the style of p01_rowwise: a block owns a query and keeps its row of scores in shared memory, and what
// its four warps know of the row meets there too. RowFault::none is right and must be accepted. Any n; needs d <= 128.
#pragma once
#include "common/gpu.cuh"

namespace {

enum class RowFault {
  none,          // right
  one_warps_sum  // the outputs are divided by the first warp's part of the sum: that of every key as long as n <= 32
};

namespace rows {

constexpr int WARPS = 4, THREADS = WARPS * 32;
constexpr uint32_t SMEM_BYTES = 2 * WARPS * 4;  // and 4 bytes for every key
constexpr float LOG2E = 1.44269504088896341f;

template <RowFault FAULT>
__global__ void __launch_bounds__(THREADS) wrong_rows(AttentionParams p) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_max = smem_base(), smem_sum = smem_max + WARPS * 4, smem_S = smem_sum + WARPS * 4;
  const size_t head = size_t(blockIdx.y) * p.n * p.d, block_row = head + size_t(blockIdx.x) * p.d;
  const auto load = [](uint32_t address) { return __uint_as_float(ld_shared_b32(address)); };

  float thread_max = -INFINITY, thread_sum = 0.0f, row_max = -INFINITY, row_sum = 0.0f, sum = 0.0f;
  for (int key = threadIdx.x; key < p.n; key += THREADS) {
    const f16 *Q_row = p.Q + block_row, *K_row = p.K + head + size_t(key) * p.d;
    float score = 0.0f;
    for (int c = 0; c < p.d; ++c) score += to_float(ld_global_f16(Q_row + c)) * to_float(ld_global_f16(K_row + c));
    score *= p.softmax_scale;
    thread_max = fmaxf(thread_max, score);
    st_shared_b32(smem_S + key * 4, __float_as_uint(score));
  }
  for (int mask = 16; mask > 0; mask /= 2) thread_max = fmaxf(thread_max, shfl_xor(thread_max, mask));
  if (lane == 0) st_shared_b32(smem_max + warp * 4, __float_as_uint(thread_max));
  __syncthreads();  // safe to read the warps' maxima: every warp has stored its own
  for (int w = 0; w < WARPS; ++w) row_max = fmaxf(row_max, load(smem_max + w * 4));

  for (int key = threadIdx.x; key < p.n; key += THREADS) {
    const float weight = ex2_approx((load(smem_S + key * 4) - row_max) * LOG2E);
    thread_sum += weight;
    st_shared_b32(smem_S + key * 4, __float_as_uint(weight));
  }
  for (int mask = 16; mask > 0; mask /= 2) thread_sum += shfl_xor(thread_sum, mask);
  if (lane == 0) st_shared_b32(smem_sum + warp * 4, __float_as_uint(thread_sum));
  __syncthreads();  // safe to read the weights and the warps' sums: every thread has stored its part
  for (int w = 0; w < (FAULT == RowFault::one_warps_sum ? 1 : WARPS); ++w) row_sum += load(smem_sum + w * 4);

  const int column = threadIdx.x;
  if (column >= p.d) return;
  for (int key = 0; key < p.n; ++key)
    sum += load(smem_S + key * 4) * to_float(ld_global_f16(p.V + head + size_t(key) * p.d + column));
  st_global_f16(p.O + block_row + column, to_f16(sum / row_sum));
}

template <RowFault FAULT>
void launch_wrong(Device& device, const AttentionParams& p) {
  launch(device, wrong_rows<FAULT>, dim3(p.n, p.batch_heads), dim3(THREADS), SMEM_BYTES + p.n * 4, p);
}

}  // namespace rows
}  // namespace
