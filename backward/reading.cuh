// The gradients of attention, to be read before any rung: one warp a row, no tiles, no tensor cores, nothing shared and
// nobody to wait for. Every rung of backward/ computes these lines, of more rows at a time.
//   P  = exp(softmax_scale Q K^T - LSE)     dV = P^T dO
//   dS = P * (dO V^T - D)                   dK = softmax_scale dS^T Q     dQ = softmax_scale dS K
// Q, O, dO, dQ: [batch * heads, n_q, d] f16.   K, V, dK, dV: [batch * heads, n_k, d] f16.   LSE: [batch * heads, n_q].
// In the workspace, for each head: the sum of dQ, [n_q, d] f32, and D, [n_q] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128, EACH = HEAD_DIM / 32;  // of a row a lane has columns lane, lane + 32, ...
constexpr float LOG2E = 1.44269504088896341f;

__device__ __forceinline__ float* dQ_sum_of(const GradientParams& p) {
  return static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q * (HEAD_DIM + 1);
}
__device__ __forceinline__ float* D_of(const GradientParams& p) {
  return dQ_sum_of(p) + size_t(p.n_q) * HEAD_DIM;
}
__device__ __forceinline__ void load_row(float (&row)[EACH], const f16* from) {
  for (int i = 0; i < EACH; ++i) row[i] = to_float(ld_global_f16(from + threadIdx.x + 32 * i));
}
__device__ __forceinline__ void store_row(f16* to, const float (&row)[EACH], float factor) {
  for (int i = 0; i < EACH; ++i) st_global_f16(to + threadIdx.x + 32 * i, to_f16(row[i] * factor));
}
__device__ __forceinline__ float dot(const float (&a)[EACH], const float (&b)[EACH]) {
  float sum = 0.0f;
  for (int i = 0; i < EACH; ++i) sum += a[i] * b[i];
  for (int mask = 16; mask > 0; mask /= 2) sum += shfl_xor(sum, mask);
  return sum;  // every lane has it
}
__device__ __forceinline__ void add(float (&sum)[EACH], float factor, const float (&row)[EACH]) {
  for (int i = 0; i < EACH; ++i) sum[i] += factor * row[i];
}

// Before: D[query] = dot(dO[query], O[query]), and zeros for the sum of dQ.   Grid (n_q, batch * heads).
__global__ void __launch_bounds__(32) deltas(GradientParams p) {
  const size_t row = (size_t(blockIdx.y) * p.n_q + blockIdx.x) * HEAD_DIM;
  float O[EACH], dO[EACH];
  load_row(O, p.O + row);
  load_row(dO, p.dO + row);
  const float D = dot(dO, O);
  if (threadIdx.x == 0) st_global_f32(D_of(p) + blockIdx.x, D);
  for (int i = 0; i < EACH; ++i) st_global_f32(dQ_sum_of(p) + blockIdx.x * HEAD_DIM + threadIdx.x + 32 * i, 0.0f);
}

// A key walks over the queries that see it. It keeps its dK and dV, and adds its share to the dQ of each: many keys do,
// in an order that nobody knows.   Grid (n_k, batch * heads).
__global__ void __launch_bounds__(32) gradients(GradientParams p) {
  const int key = blockIdx.x, first_query = p.causal ? max(key + p.n_q - p.n_k, 0) : 0;
  const size_t key_row = (size_t(blockIdx.y) * p.n_k + key) * HEAD_DIM;
  float K[EACH], V[EACH], dK[EACH] = {}, dV[EACH] = {};
  load_row(K, p.K + key_row);
  load_row(V, p.V + key_row);
  for (int query = first_query; query < p.n_q; ++query) {
    const size_t row = size_t(blockIdx.y) * p.n_q + query;
    float Q[EACH], dO[EACH];
    load_row(Q, p.Q + row * HEAD_DIM);
    load_row(dO, p.dO + row * HEAD_DIM);
    // The weight again: the forward pass has left LSE, so it takes one exponential and no maximum.
    const float S = dot(Q, K) * p.softmax_scale, P = ex2_approx((S - ld_global_f32(p.LSE + row)) * LOG2E);
    const float dP = dot(dO, V), dS = P * (dP - ld_global_f32(D_of(p) + query));
    add(dV, P, dO);
    add(dK, dS, Q);
    for (int i = 0; i < EACH; ++i)
      red_global_add_f32(dQ_sum_of(p) + size_t(query) * HEAD_DIM + threadIdx.x + 32 * i, dS * K[i]);
  }
  store_row(p.dK + key_row, dK, p.softmax_scale);
  store_row(p.dV + key_row, dV, 1.0f);
}

// Behind: dQ, from the sum.   Grid (n_q, batch * heads).
__global__ void __launch_bounds__(32) query_gradients(GradientParams p) {
  float dQ[EACH];
  for (int i = 0; i < EACH; ++i) dQ[i] = ld_global_f32(dQ_sum_of(p) + blockIdx.x * HEAD_DIM + threadIdx.x + 32 * i);
  store_row(p.dQ + (size_t(blockIdx.y) * p.n_q + blockIdx.x) * HEAD_DIM, dQ, p.softmax_scale);
}

// LAUNCH  The end of a launch is all that anybody waits for.
void run(Device& device, const GradientParams& p) {
  const dim3 queries(p.n_q, p.batch_heads), keys(p.n_k, p.batch_heads);
  launch(device, deltas, queries, dim3(32), 0, p);
  if (p.n_k > 0) launch(device, gradients, keys, dim3(32), 0, p);
  launch(device, query_gradients, queries, dim3(32), 0, p);
}

}  // namespace
