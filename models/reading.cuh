// Attention as models ask for it, to be read before any rung: one warp a query, no tiles, no tensor cores, nothing
// shared and nobody to wait for. Every rung of models/ computes these lines, of more rows at a time.
//   S = softmax_scale Q K^T, changed by a softcap or by ALiBi     O = softmax(S) V, over the keys that a query sees
// Q, O: [batch, heads, n_q, d] bf16; K, V: [batch, kv_heads, n_k, d] bf16, in any strides.   LSE: [batch, heads, n_q].
// Or Q, O: [total_q, heads, d]; K, V: [total_k, kv_heads, d]; LSE: [heads, total_q]; with cu_seqlens, [batch + 1] each.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128, EACH = HEAD_DIM / 32;  // of a row a lane has columns lane, lane + 32, ...
constexpr float LOG2E = 1.44269504088896341f;

__device__ __forceinline__ void load_row(float (&row)[EACH], const void* tensor, int64_t at) {
  const bf16* const from = static_cast<const bf16*>(tensor) + at + threadIdx.x;
  for (int i = 0; i < EACH; ++i) row[i] = to_float(ld_global_bf16(from + 32 * i));
}
__device__ __forceinline__ float dot(const float (&a)[EACH], const float (&b)[EACH]) {
  float sum = 0.0f;
  for (int i = 0; i < EACH; ++i) sum += a[i] * b[i];
  for (int mask = 16; mask > 0; mask /= 2) sum += shfl_xor(sum, mask);
  return sum;  // every lane has it
}

// LENGTHS  Sequences are all as long as each other, or lie one behind the other, where cu_seqlens says.
struct Sequence {
  int batch, q_begin = 0, k_begin = 0, n_q, n_k;

  __device__ Sequence(const ScoreParams& p, int index) : batch(index), n_q(p.n_q), n_k(p.n_k) {
    if (p.cu_seqlens_q == nullptr) return;
    batch = 0;  // a step of it means nothing
    q_begin = ld_global_s32(p.cu_seqlens_q + index), n_q = ld_global_s32(p.cu_seqlens_q + index + 1) - q_begin;
    k_begin = ld_global_s32(p.cu_seqlens_k + index), n_k = ld_global_s32(p.cu_seqlens_k + index + 1) - k_begin;
  }
  __device__ int64_t offset(const ForwardParams::Strides& strides, int head, int row) const {
    return batch * strides.batch + head * strides.head + row * strides.row;
  }
};

// SCORE  What a model does to a product before the softmax. `distance`: how far the key lies before the query's own.
__device__ __forceinline__ float score_of(const ScoreParams& p, float product, int distance, int head) {
  float S = product * p.softmax_scale;
  if (p.softcap > 0) S = p.softcap * tanh_approx(S / p.softcap);
  if (p.alibi_slopes != nullptr) S -= ld_global_f32(p.alibi_slopes + head) * abs(distance);
  return S;
}

// A query walks over the keys that it sees.   Grid (n_q, heads, batch).
__global__ void __launch_bounds__(32) attention(IntervalParams p) {
  const Sequence sequence(p, blockIdx.z);
  const int query = blockIdx.x, head = blockIdx.y, kv_head = head / (p.heads / p.kv_heads);  // GROUPED
  if (query >= sequence.n_q) return;
  // MASK  The last query's own key is the last one. A causal mask is a window with no key behind a query's own.
  const int own = query + sequence.n_k - sequence.n_q;
  int begin = p.left < 0 ? 0 : max(own - p.left, 0);
  int end = p.right < 0 ? sequence.n_k : min(own + 1 + p.right, sequence.n_k);
  // INTERVALS  And of these keys, those that are listed for the query.
  if (p.first != nullptr) begin = max(begin, ld_global_s32(p.first + int64_t(blockIdx.z) * p.n_q + query));
  if (p.first != nullptr) end = min(end, ld_global_s32(p.end + int64_t(blockIdx.z) * p.n_q + query));

  float Q[EACH], O[EACH] = {}, row_max = -INFINITY, row_sum = 0.0f;
  load_row(Q, p.Q, sequence.offset(p.Q_strides, head, sequence.q_begin + query));
  if (p.sinks != nullptr) row_max = ld_global_f32(p.sinks + head) * LOG2E, row_sum = 1.0f;  // a key without a value
  for (int key = begin; key < end; ++key) {
    float K[EACH], V[EACH];
    load_row(K, p.K, sequence.offset(p.K_strides, kv_head, sequence.k_begin + key));
    load_row(V, p.V, sequence.offset(p.V_strides, kv_head, sequence.k_begin + key));
    const float S = score_of(p, dot(Q, K), own - key, head) * LOG2E;
    // SOFTMAX  The online softmax: weights are relative to the largest score so far. When one is larger, all that has
    //          been summed shrinks to fit.
    const float new_max = fmaxf(row_max, S), correction = ex2_approx(row_max - new_max), P = ex2_approx(S - new_max);
    row_sum = row_sum * correction + P;
    for (int i = 0; i < EACH; ++i) O[i] = O[i] * correction + P * V[i];
    row_max = new_max;
  }

  // STORE  A query that sees no key has O = 0 and LSE = -infinity.
  bf16* const to = static_cast<bf16*>(p.O) + sequence.offset(p.O_strides, head, sequence.q_begin + query);
  for (int i = 0; i < EACH; ++i) st_global_bf16(to + threadIdx.x + 32 * i, to_bf16(row_sum > 0 ? O[i] / row_sum : 0));
  if (p.LSE == nullptr || threadIdx.x != 0) return;
  int64_t row = (int64_t(blockIdx.z) * p.heads + head) * p.n_q + query;
  if (p.cu_seqlens_q != nullptr)
    row = int64_t(head) * ld_global_s32(p.cu_seqlens_q + p.batch) + sequence.q_begin + query;
  st_global_f32(p.LSE + row, row_max / LOG2E + logf(row_sum));
}

// LAUNCH
void run(Device& device, const IntervalParams& p) {
  launch(device, attention, dim3(p.n_q, p.heads, p.batch), dim3(32), 0, p);
}

}  // namespace
