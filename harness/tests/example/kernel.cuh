// 90_classify: a thread a row. X: [batch, heads, n, d] bf16, W: [d, 16] bf16, Y: [batch, heads, n, 16] bf16, L: the same, f32, packed.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int CLASSES = 16, THREADS = 32;
constexpr float LOG2E = 1.44269504088896341f;

struct ClassifyParams {
  const bf16 *X, *W;
  bf16* Y;
  float* L;
  int heads, n, d;
  int64_t X_strides[3], Y_strides[3];  // of sequences, heads and rows
};

template <bool WRONG>
__global__ void __launch_bounds__(THREADS) classify(ClassifyParams p) {
  const int row = blockIdx.x * THREADS + threadIdx.x, sequence = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  if (row >= p.n) return;
  const bf16* X_row = p.X + sequence * p.X_strides[0] + head * p.X_strides[1] + row * p.X_strides[2];
  bf16* Y_row = p.Y + sequence * p.Y_strides[0] + head * p.Y_strides[1] + row * p.Y_strides[2];
  float* L_row = p.L + (size_t(blockIdx.y) * p.n + row) * CLASSES;

  float logits[CLASSES] = {};
  for (int k = 0; k < p.d; ++k) {
    const float x = to_float(ld_global_bf16(X_row + k));
    for (int c = 0; c < CLASSES; ++c) logits[c] += x * to_float(ld_global_bf16(p.W + k * CLASSES + c));
  }
  float row_max = logits[0];
  for (int c = 0; c < CLASSES; ++c) row_max = fmaxf(row_max, logits[c]);
  float weights[CLASSES], row_sum = 0.0f;
  for (int c = 0; c < CLASSES; ++c) row_sum += weights[c] = ex2_approx((logits[c] - row_max) * LOG2E);
  for (int c = 0; c < CLASSES; ++c) {
    st_global_bf16(Y_row + c, to_bf16(weights[c] / row_sum));
    st_global_f32(L_row + c, WRONG && head == 1 && c == 3 ? logits[c] * 1.01f : logits[c]);
  }
  if (WRONG && p.Y_strides[2] > CLASSES) st_global_bf16(Y_row + CLASSES, to_bf16(0.0f));  // the gap, or another's row
}

template <bool WRONG>
void run(Device& device, const ClassifyParams& p, int batch_heads) {
  launch(device, classify<WRONG>, dim3((p.n + THREADS - 1) / THREADS, batch_heads), dim3(THREADS), 0, p);
}

}  // namespace
