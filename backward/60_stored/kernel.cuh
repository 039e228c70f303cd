// 60_stored: the gradients of attention as six kernels, one per formula. The n x n weights P and their gradients dS lie
//          in global memory between them.
//          Any n_q and n_k, any head dimension up to 256, any GPU: what the other rungs of this part start from.
//          Q, O, dO, dQ: [batch * heads, n_q, d] f16.   K, V, dK, dV: [batch * heads, n_k, d] f16.
//          LSE: [batch * heads, n_q] f32.
//          In the workspace, for each head: P and dS, [n_q, n_k] f32 each, and D, [n_q] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int TILE = 16;  // weights and gradients are computed by 16x16 threads, one element each
constexpr float LOG2E = 1.44269504088896341f;

// Of a head's share of the workspace.
__device__ __forceinline__ float* P_of(const GradientParams& p) {
  return static_cast<float*>(p.workspace) + blockIdx.z * (2 * size_t(p.n_q) * p.n_k + p.n_q);
}
__device__ __forceinline__ float* dS_of(const GradientParams& p) {
  return P_of(p) + size_t(p.n_q) * p.n_k;
}
__device__ __forceinline__ float* D_of(const GradientParams& p) {
  return dS_of(p) + size_t(p.n_q) * p.n_k;
}

// The keys that a query sees are those before this one, and the queries that see a key are those from that one on.
__device__ __forceinline__ int keys_of(const GradientParams& p, int query) {
  return p.causal ? min(max(query + 1 + p.n_k - p.n_q, 0), p.n_k) : p.n_k;
}
__device__ __forceinline__ int first_query(const GradientParams& p, int key) {
  return p.causal ? max(key + p.n_q - p.n_k, 0) : 0;
}

__device__ __forceinline__ float dot(const f16* a, const f16* b, int d) {
  float sum = 0.0f;
  for (int c = 0; c < d; ++c) sum += to_float(ld_global_f16(a + c)) * to_float(ld_global_f16(b + c));
  return sum;
}

// D[query] = dot(dO[query], O[query]), one warp per row.   Grid (queries, 1, batch * heads).
__global__ void __launch_bounds__(32) deltas(GradientParams p) {
  const size_t row = (size_t(blockIdx.z) * p.n_q + blockIdx.x) * p.d;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < p.d; c += 32)
    sum += to_float(ld_global_f16(p.dO + row + c)) * to_float(ld_global_f16(p.O + row + c));
  for (int mask = 16; mask > 0; mask /= 2) sum += shfl_xor(sum, mask);
  if (threadIdx.x == 0) st_global_f32(D_of(p) + blockIdx.x, sum);
}

// P[query][key] = exp(softmax_scale * dot(Q[query], K[key]) - LSE[query]).
// Grid (keys / 16, queries / 16, batch * heads).
__global__ void __launch_bounds__(TILE* TILE) weights(GradientParams p) {
  const int key = blockIdx.x * TILE + threadIdx.x % TILE, query = blockIdx.y * TILE + threadIdx.x / TILE;
  if (query >= p.n_q || key >= keys_of(p, query)) return;
  const size_t Q_row = size_t(blockIdx.z) * p.n_q + query, K_row = size_t(blockIdx.z) * p.n_k + key;
  const float S = dot(p.Q + Q_row * p.d, p.K + K_row * p.d, p.d) * p.softmax_scale;
  st_global_f32(P_of(p) + size_t(query) * p.n_k + key, ex2_approx((S - ld_global_f32(p.LSE + Q_row)) * LOG2E));
}

// dS[query][key] = P[query][key] * (dot(dO[query], V[key]) - D[query]).   The same grid.
__global__ void __launch_bounds__(TILE* TILE) score_gradients(GradientParams p) {
  const int key = blockIdx.x * TILE + threadIdx.x % TILE, query = blockIdx.y * TILE + threadIdx.x / TILE;
  if (query >= p.n_q || key >= keys_of(p, query)) return;
  const size_t dO_row = size_t(blockIdx.z) * p.n_q + query, V_row = size_t(blockIdx.z) * p.n_k + key;
  const float dP = dot(p.dO + dO_row * p.d, p.V + V_row * p.d, p.d);
  const size_t pair = size_t(query) * p.n_k + key;
  st_global_f32(dS_of(p) + pair, ld_global_f32(P_of(p) + pair) * (dP - ld_global_f32(D_of(p) + query)));
}

// dQ[query] = softmax_scale * sum over keys of dS[query][key] * K[key].
// Grid (columns / 16, queries / 16, batch * heads).
__global__ void __launch_bounds__(TILE* TILE) query_gradients(GradientParams p) {
  const int column = blockIdx.x * TILE + threadIdx.x % TILE, query = blockIdx.y * TILE + threadIdx.x / TILE;
  if (column >= p.d || query >= p.n_q) return;
  const f16* K_column = p.K + size_t(blockIdx.z) * p.n_k * p.d + column;
  const int keys = keys_of(p, query);
  float sum = 0.0f;
  for (int key = 0; key < keys; ++key)
    sum +=
        ld_global_f32(dS_of(p) + size_t(query) * p.n_k + key) * to_float(ld_global_f16(K_column + size_t(key) * p.d));
  st_global_f16(p.dQ + (size_t(blockIdx.z) * p.n_q + query) * p.d + column, to_f16(sum * p.softmax_scale));
}

// to[key] = factor * sum over queries of pairs[query][key] * rows[query]: a transposed matrix is one whose columns are
// walked down.   Grid (columns / 16, keys / 16, batch * heads).
__device__ __forceinline__ void sum_over_queries(const GradientParams& p, f16* to, const float* pairs, const f16* rows,
                                                 float factor) {
  const int column = blockIdx.x * TILE + threadIdx.x % TILE, key = blockIdx.y * TILE + threadIdx.x / TILE;
  if (column >= p.d || key >= p.n_k) return;
  const f16* row_column = rows + size_t(blockIdx.z) * p.n_q * p.d + column;
  float sum = 0.0f;
  for (int query = first_query(p, key); query < p.n_q; ++query)
    sum +=
        ld_global_f32(pairs + size_t(query) * p.n_k + key) * to_float(ld_global_f16(row_column + size_t(query) * p.d));
  st_global_f16(to + (size_t(blockIdx.z) * p.n_k + key) * p.d + column, to_f16(sum * factor));
}
// dV = P^T dO
__global__ void __launch_bounds__(TILE* TILE) value_gradients(GradientParams p) {
  sum_over_queries(p, p.dV, P_of(p), p.dO, 1.0f);
}
// dK = softmax_scale dS^T Q
__global__ void __launch_bounds__(TILE* TILE) key_gradients(GradientParams p) {
  sum_over_queries(p, p.dK, dS_of(p), p.Q, p.softmax_scale);
}

// LAUNCH  The six kernels one after the other. The pointers of `p` belong to the device.
constexpr uint32_t tiles(int elements) {
  return (elements + TILE - 1) / TILE;
}

void run(Device& device, const GradientParams& p) {
  const uint32_t queries = p.n_q, batch_heads = p.batch_heads;
  const dim3 pairs(tiles(p.n_k), tiles(p.n_q), batch_heads), of_keys(tiles(p.d), tiles(p.n_k), batch_heads);
  launch(device, deltas, dim3(queries, 1, batch_heads), dim3(32), 0, p);
  if (p.n_k > 0) {
    launch(device, weights, pairs, dim3(TILE * TILE), 0, p);
    launch(device, value_gradients, of_keys, dim3(TILE * TILE), 0, p);
    launch(device, score_gradients, pairs, dim3(TILE * TILE), 0, p);
    launch(device, key_gradients, of_keys, dim3(TILE * TILE), 0, p);
  }
  launch(device, query_gradients, dim3(tiles(p.d), tiles(p.n_q), batch_heads), dim3(TILE * TILE), 0, p);
}

}  // namespace
