// 00_naive: attention as three kernels, one per formula. The n x n scores go through global memory six times.
//          Any n, any head dimension up to 256, any GPU: the stage that the others are compared with.
//          Q, K, V, O: [batch * heads, n, d] f16.   S, in the workspace: [batch * heads, n, n] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int TILE = 16;  // scores and outputs are computed by 16x16 threads, one element each
constexpr float LOG2E = 1.44269504088896341f;

// The scores of a query.
__device__ __forceinline__ float* row_of_S(const AttentionParams& p, int query) {
  return static_cast<float*>(p.workspace) + (size_t(blockIdx.z) * p.n + query) * p.n;
}

// S[query][key] = softmax_scale * dot(Q[query], K[key]), unless masked.  Grid (keys / 16, queries / 16, batch * heads).
__global__ void __launch_bounds__(TILE* TILE) scores(AttentionParams p) {
  const int key = blockIdx.x * TILE + threadIdx.x % TILE, query = blockIdx.y * TILE + threadIdx.x / TILE;
  if (key >= p.n || query >= p.n || (p.causal && key > query)) return;
  const f16* Q_row = p.Q + (size_t(blockIdx.z) * p.n + query) * p.d;
  const f16* K_row = p.K + (size_t(blockIdx.z) * p.n + key) * p.d;

  float dot = 0.0f;
  for (int c = 0; c < p.d; ++c) dot += to_float(ld_global_f16(Q_row + c)) * to_float(ld_global_f16(K_row + c));
  st_global_f32(row_of_S(p, query) + key, dot * p.softmax_scale);
}

// S[query] = softmax(S[query]), one warp per row, two passes over it and a third to write.   Grid (queries, 1, b * h).
__global__ void __launch_bounds__(32) softmax(AttentionParams p) {
  const int lane = threadIdx.x, keys = p.causal ? blockIdx.x + 1 : p.n;
  float* S_row = row_of_S(p, blockIdx.x);

  float row_max = -INFINITY;
  for (int key = lane; key < keys; key += 32) row_max = fmaxf(row_max, ld_global_f32(S_row + key));
  for (int mask = 16; mask > 0; mask /= 2) row_max = fmaxf(row_max, shfl_xor(row_max, mask));

  float row_sum = 0.0f;
  for (int key = lane; key < keys; key += 32) row_sum += ex2_approx((ld_global_f32(S_row + key) - row_max) * LOG2E);
  for (int mask = 16; mask > 0; mask /= 2) row_sum += shfl_xor(row_sum, mask);

  const float normalise = 1.0f / row_sum;
  for (int key = lane; key < keys; key += 32)
    st_global_f32(S_row + key, ex2_approx((ld_global_f32(S_row + key) - row_max) * LOG2E) * normalise);
}

// O[query][column] = sum over keys of S[query][key] * V[key][column].   Grid (columns / 16, queries / 16, b * h).
__global__ void __launch_bounds__(TILE* TILE) output(AttentionParams p) {
  const int column = blockIdx.x * TILE + threadIdx.x % TILE, query = blockIdx.y * TILE + threadIdx.x / TILE;
  if (column >= p.d || query >= p.n) return;
  const float* S_row = row_of_S(p, query);
  const f16* V_column = p.V + size_t(blockIdx.z) * p.n * p.d + column;
  const int keys = p.causal ? query + 1 : p.n;
  float sum = 0.0f;
  for (int key = 0; key < keys; ++key)
    sum += ld_global_f32(S_row + key) * to_float(ld_global_f16(V_column + size_t(key) * p.d));
  st_global_f16(p.O + (size_t(blockIdx.z) * p.n + query) * p.d + column, to_f16(sum));
}

// LAUNCH  The three kernels one after the other. The pointers of `p` belong to the device.
constexpr uint32_t tiles(int elements) {
  return (elements + TILE - 1) / TILE;
}

void run(Device& device, const AttentionParams& p) {
  const uint32_t n = p.n, batch_heads = p.batch_heads;
  launch(device, scores, dim3(tiles(p.n), tiles(p.n), batch_heads), dim3(TILE * TILE), 0, p);
  launch(device, softmax, dim3(n, 1, batch_heads), dim3(32), 0, p);
  launch(device, output, dim3(tiles(p.d), tiles(p.n), batch_heads), dim3(TILE * TILE), 0, p);
}

}  // namespace
