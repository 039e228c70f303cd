// 61_recomputed: the weights are computed again where they are needed, from LSE, and are kept nowhere: one kernel walks
//          over queries and sums dK and dV, another walks over keys and sums dQ.
// Before:  60_stored takes 8 n^2 bytes of memory for P and dS, and moves 24 n^2.
// Block:   16 keys, or 16 queries, 4 warps.  Shared: nothing.  Needs d = 128.
// Shapes:  Q, O, dO, dQ: [batch * heads, n_q, d] f16.   K, V, dK, dV: [batch * heads, n_k, d] f16.
//          LSE: [batch * heads, n_q] f32.
//          D, in the workspace: [batch * heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int PART = 16;  // columns of a row that a lane has: eight lanes have all of it
constexpr float LOG2E = 1.44269504088896341f;

// A block's warps, and its rows: one for each group of eight lanes.
template <int WARPS_>
struct Config {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, ROWS = THREADS / 8;
};

// The keys that a query sees are those before this one, and the queries that see a key are those from that one on.
__device__ __forceinline__ int keys_of(const GradientParams& p, int query) {
  return p.causal ? min(max(query + 1 + p.n_k - p.n_q, 0), p.n_k) : p.n_k;
}
__device__ __forceinline__ int first_query(const GradientParams& p, int key) {
  return p.causal ? max(key + p.n_q - p.n_k, 0) : 0;
}

// Of row `row` of this block's head, [rows, d], this lane's columns: (threadIdx.x % 8) * 8 to + 7, and 64 further.
__device__ __forceinline__ size_t part_of(int rows, int row) {
  return (size_t(blockIdx.y) * rows + row) * HEAD_DIM + threadIdx.x % 8 * 8;
}
__device__ __forceinline__ void load_part(float (&part)[PART], const f16* source) {
  for (int chunk = 0; chunk < 2; ++chunk) {
    const uint4 eight = ld_global_v4(source + chunk * 64);
    const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
    for (int i = 0; i < 8; ++i)
      part[chunk * 8 + i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
  }
}
__device__ __forceinline__ void store_part(f16* to, const float (&part)[PART], float factor) {
  for (int chunk = 0; chunk < 2; ++chunk) {
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = pack_f16x2(part[chunk * 8 + 2 * i] * factor, part[chunk * 8 + 2 * i + 1] * factor);
    st_global_v4(to + chunk * 64, {pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}
// Each lane sums 16 products, and three exchanges complete the sum of eight lanes.
__device__ __forceinline__ float dot(const float (&a)[PART], const float (&b)[PART]) {
  float sum = 0.0f;
  for (int i = 0; i < PART; ++i) sum += a[i] * b[i];
  sum += shfl_xor(sum, 1);
  sum += shfl_xor(sum, 2);
  sum += shfl_xor(sum, 4);
  return sum;
}
__device__ __forceinline__ void add(float (&sum)[PART], float factor, const float (&part)[PART]) {
  for (int i = 0; i < PART; ++i) sum[i] += factor * part[i];
}

// D[query] = dot(dO[query], O[query]).   Grid (queries / ROWS, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) deltas(GradientParams p) {
  const int row = blockIdx.x * C::ROWS + threadIdx.x / 8, query = min(row, p.n_q - 1);
  float O_part[PART], dO_part[PART];
  load_part(O_part, p.O + part_of(p.n_q, query));
  load_part(dO_part, p.dO + part_of(p.n_q, query));
  const float D = dot(dO_part, O_part);
  if (row < p.n_q && threadIdx.x % 8 == 0)
    st_global_f32(static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q + row, D);
}

// dK and dV of a key for each group of eight lanes: it walks over the queries.   Grid (keys / ROWS, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) key_gradients(GradientParams p) {
  const int row = blockIdx.x * C::ROWS + threadIdx.x / 8,
            key = min(row, p.n_k - 1);  // groups past the end repeat a key
  const float* LSE = p.LSE + size_t(blockIdx.y) * p.n_q;
  const float* D = static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q;

  // LOAD
  float K_part[PART], V_part[PART], dK_part[PART] = {}, dV_part[PART] = {};
  load_part(K_part, p.K + part_of(p.n_k, key));
  load_part(V_part, p.V + part_of(p.n_k, key));

  // The lanes of a warp stay together, from the first query that one of the block's keys is seen by.
  for (int query = first_query(p, blockIdx.x * C::ROWS); query < p.n_q; ++query) {
    float Q_part[PART], dO_part[PART];
    load_part(Q_part, p.Q + part_of(p.n_q, query));
    load_part(dO_part, p.dO + part_of(p.n_q, query));
    // QK
    const float S = dot(Q_part, K_part) * p.softmax_scale, dP = dot(dO_part, V_part);
    if (query < first_query(p, key)) continue;  // eight lanes alike
    // SOFTMAX  Maximum and sum are in LSE: a weight is one exponential, whatever the other keys are.
    const float P = ex2_approx((S - ld_global_f32(LSE + query)) * LOG2E);
    // PV
    add(dV_part, P, dO_part);
    add(dK_part, P * (dP - ld_global_f32(D + query)), Q_part);
  }

  // STORE
  if (row >= p.n_k) return;
  store_part(p.dK + part_of(p.n_k, row), dK_part, p.softmax_scale);
  store_part(p.dV + part_of(p.n_k, row), dV_part, 1.0f);
}

// dQ of a query for each group of eight lanes: it walks over the keys.   Grid (queries / ROWS, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) query_gradients(GradientParams p) {
  const int row = blockIdx.x * C::ROWS + threadIdx.x / 8, query = min(row, p.n_q - 1);
  const float LSE = ld_global_f32(p.LSE + size_t(blockIdx.y) * p.n_q + query);
  const float D = ld_global_f32(static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q + query);

  // LOAD
  float Q_part[PART], dO_part[PART], dQ_part[PART] = {};
  load_part(Q_part, p.Q + part_of(p.n_q, query));
  load_part(dO_part, p.dO + part_of(p.n_q, query));

  const int keys = keys_of(p, min(int(blockIdx.x * C::ROWS + C::ROWS), p.n_q) - 1);  // that the block's last query sees
  for (int key = 0; key < keys; ++key) {
    float K_part[PART], V_part[PART];
    load_part(K_part, p.K + part_of(p.n_k, key));
    load_part(V_part, p.V + part_of(p.n_k, key));
    // QK
    const float S = dot(Q_part, K_part) * p.softmax_scale, dP = dot(dO_part, V_part);
    if (key >= keys_of(p, query)) continue;
    // SOFTMAX
    const float P = ex2_approx((S - LSE) * LOG2E);
    // PV
    add(dQ_part, P * (dP - D), K_part);
  }

  // STORE
  if (row < p.n_q) store_part(p.dQ + part_of(p.n_q, row), dQ_part, p.softmax_scale);
}

// LAUNCH  D first, which both others read. The pointers of `p` belong to the device.
template <class C>
void run(Device& device, const GradientParams& p) {
  const auto grid = [&](int rows) { return dim3((rows + C::ROWS - 1) / C::ROWS, p.batch_heads); };
  launch(device, deltas<C>, grid(p.n_q), dim3(C::THREADS), 0, p);
  if (p.n_k > 0) launch(device, key_gradients<C>, grid(p.n_k), dim3(C::THREADS), 0, p);
  launch(device, query_gradients<C>, grid(p.n_q), dim3(C::THREADS), 0, p);
}

}  // namespace
