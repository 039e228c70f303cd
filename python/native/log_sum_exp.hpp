// The log-sum-exp of scores, for rungs that write none: what gradients start from, and what joins partial results.
#pragma once
#include "common/attention.hpp"

namespace emulator {
class Device;
}
namespace gpu {
struct Device;
}

// LSE = ln of the sum of exp(softmax_scale Q K^T), over the keys that a query sees. Q: [batch, heads, n_q, d], K: [batch, heads, n_k, d], of
// which d = 128 elements lie side by side on 16 bytes; LSE: [batch, heads, n_q], contiguous.
struct LogSumExpParams {
  const f16 *Q, *K;
  float* LSE;  // -infinity for a query that sees no key
  ForwardParams::Strides Q_strides, K_strides;
  int batch, heads, n_q, n_k;
  float softmax_scale;
  bool causal;  // the last query sees all keys, the one before it all but the last, ...
};

void log_sum_exp(gpu::Device& device, const LogSumExpParams& p);
void log_sum_exp(emulator::Device& device, const LogSumExpParams& p);
