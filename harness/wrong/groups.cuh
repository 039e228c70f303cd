// Wrong kernels again, in the style of p03_online: a block owns a query, 16 groups of 8 lanes walk over every 16th key each,
// and their results are joined at the end. GroupFault::none is right and must be accepted. Any n; needs d = 128.
#pragma once
#include "common/gpu.cuh"

namespace {

enum class GroupFault {
  none,              // right
  join_without_max,  // the groups' sums and outputs are added although each is scaled with its own maximum
  empty_group        // keys behind the end score -infinity: a group that has no other has no maximum
};

namespace groups {

constexpr int HEAD_DIM = 128, THREADS = 128, GROUPS = THREADS / 8, CHUNKS = 2;
constexpr uint32_t SMEM_BYTES = 2 * GROUPS * 4 + GROUPS * HEAD_DIM * 4;
constexpr float LOG2E = 1.44269504088896341f;

// This lane's 16 of a row's 128 columns, as f32.
__device__ __forceinline__ void load_part(float (&values)[CHUNKS * 8], const f16* row) {
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    const uint4 chunk = ld_global_v4(row + c * 64 + threadIdx.x % 8 * 8);
    const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) values[c * 8 + i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16))});
  }
}

__device__ __forceinline__ float ld_shared_float(uint32_t address) {
  return __uint_as_float(ld_shared_b32(address));
}

template <GroupFault FAULT>
__global__ void __launch_bounds__(THREADS) wrong_groups(AttentionParams p) {
  const int group = threadIdx.x / 8;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM, block_row = head + size_t(blockIdx.x) * HEAD_DIM;
  const uint32_t smem_max = smem_base(), smem_sum = smem_max + GROUPS * 4, smem_O = smem_sum + GROUPS * 4;

  float Q_part[CHUNKS * 8], O_part[CHUNKS * 8] = {}, group_max = -INFINITY, group_sum = 0.0f;
  load_part(Q_part, p.Q + block_row);
  for (int first = 0; first < p.n; first += GROUPS) {
    const bool is_key = first + group < p.n;
    const size_t row = head + size_t(is_key ? first + group : p.n - 1) * HEAD_DIM;
    float K_part[CHUNKS * 8], V_part[CHUNKS * 8], score = 0.0f;
    load_part(K_part, p.K + row);
    load_part(V_part, p.V + row);
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; ++i) score += Q_part[i] * K_part[i];
    for (int mask = 1; mask < 8; mask *= 2) score += shfl_xor(score, mask);
    score *= p.softmax_scale;
    if (FAULT == GroupFault::empty_group && !is_key) score = -INFINITY;

    const float new_max = fmaxf(group_max, score), correction = ex2_approx((group_max - new_max) * LOG2E);
    const float weight = FAULT == GroupFault::empty_group || is_key ? ex2_approx((score - new_max) * LOG2E) : 0.0f;
    group_max = new_max;
    group_sum = group_sum * correction + weight;
#pragma unroll
    for (int i = 0; i < CHUNKS * 8; ++i) O_part[i] = O_part[i] * correction + weight * V_part[i];
  }

  if (threadIdx.x % 8 == 0) {
    st_shared_b32(smem_max + group * 4, __float_as_uint(group_max));
    st_shared_b32(smem_sum + group * 4, __float_as_uint(group_sum));
  }
#pragma unroll
  for (int i = 0; i < CHUNKS * 8; ++i) {
    const int column = i / 8 * 64 + static_cast<int>(threadIdx.x) % 8 * 8 + i % 8;
    st_shared_b32(smem_O + (group * HEAD_DIM + column) * 4, __float_as_uint(O_part[i]));
  }
  __syncthreads();  // safe to read the groups' results: every thread has stored its part
  float row_max = -INFINITY, row_sum = 0.0f, sum = 0.0f;
  for (int g = 0; g < GROUPS; ++g) row_max = fmaxf(row_max, ld_shared_float(smem_max + g * 4));
  for (int g = 0; g < GROUPS; ++g) {
    const float growth = FAULT == GroupFault::join_without_max ? 0.0f : row_max - ld_shared_float(smem_max + g * 4);
    const float correction = ex2_approx(-growth * LOG2E);
    row_sum += correction * ld_shared_float(smem_sum + g * 4);
    sum += correction * ld_shared_float(smem_O + (g * HEAD_DIM + threadIdx.x) * 4);
  }
  st_global_f16(p.O + block_row + threadIdx.x, to_f16(sum / row_sum));
  if (threadIdx.x == 0) st_global_f32(p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x, row_max + logf(row_sum));
}

template <GroupFault FAULT>
void launch_wrong(Device& device, const AttentionParams& p) {
  launch(device, wrong_groups<FAULT>, dim3(p.n, p.batch_heads), dim3(THREADS), SMEM_BYTES, p);
}

}  // namespace groups
}  // namespace
