// Host functions in a kernel's place: a right one, and some that are wrong.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/devices/guarded.hpp"
#include "harness/verify/check.hpp"

namespace host_kernels {

using namespace ladder;

constexpr Shape SHAPE{.batch = 1, .heads = 2, .n = 64, .d = 32};

// Attention in double. `weight(key, score)` scales exp(score): anything but 1 is wrong. `bias` is added to the output. When
// causal, a query sees its own key and `extra` more.
constexpr auto EVEN = [](int, double) { return 1.0; };
template <class Weight = decltype(EVEN)>
void attention(const AttentionParams& p, const Weight& weight = EVEN, float bias = 0, int64_t extra = 0) {
  const auto widened = [&](const f16* values) {  // once, and not for each product
    std::vector<double> wide(int64_t{p.batch_heads} * p.n * p.d);
    std::transform(values, values + wide.size(), wide.begin(), to_float);
    return wide;
  };
  const std::vector<double> Q = widened(p.Q), K = widened(p.K), V = widened(p.V);
  for (int64_t row = 0; row < int64_t{p.batch_heads} * p.n; ++row) {
    const int64_t head = row / p.n;
    std::vector<double> weights(p.n), sums(p.d);
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    const int64_t keys = p.causal ? std::min<int64_t>(p.n, row % p.n + 1 + extra) : p.n;
    for (int j = 0; j < keys; ++j) {
      for (int c = 0; c < p.d; ++c) weights[j] += Q[row * p.d + c] * K[(head * p.n + j) * p.d + c] * p.softmax_scale;
      largest = std::max(largest, weights[j]);
    }
    for (int j = 0; j < keys; ++j) {
      weights[j] = std::exp(weights[j] - largest) * weight(j, weights[j]);
      total += weights[j];
      for (int c = 0; c < p.d; ++c) sums[c] += weights[j] * V[(head * p.n + j) * p.d + c];
    }
    for (int c = 0; c < p.d; ++c) p.O[row * p.d + c] = to_f16(float(sums[c] / total) + bias);
    if (p.LSE) p.LSE[row] = float(largest + std::log(total));
  }
}

// Kernels get addresses that only the emulator can follow: these functions go where the elements are.
inline AttentionParams on_host(const emulator::Device& device, AttentionParams p) {
  const auto follow = [&]<class T>(T*& pointer) {
    for (const emulator::Device::Buffer& buffer : device.buffers()) {
      if (reinterpret_cast<const std::byte*>(pointer) != buffer.begin) continue;
      pointer = reinterpret_cast<T*>(const_cast<std::byte*>(buffer.memory));
      return;
    }
  };
  follow(p.Q);
  follow(p.K);
  follow(p.V);
  follow(p.O);
  follow(p.LSE);
  follow(p.workspace);
  return p;
}

using Kernel = void(emulator::Device&, const AttentionParams&);

inline void right(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given));
}
// Right, and then a change to what is there.
template <class Change>
Kernel* then(Change) {
  return [](emulator::Device& device, const AttentionParams& given) {
    right(device, given);
    Change()(on_host(device, given));
  };
}
inline void biased(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given), EVEN, 0.01f);
}
inline void first_keys_only(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given), [&](int j, double) { return j < given.n / 2 ? 1.0 : 0.0; });
}
inline void silent(emulator::Device&, const AttentionParams&) {}
inline Kernel* const writes_nan =
    then([](const AttentionParams& p) { p.O[3] = to_f16(std::numeric_limits<float>::quiet_NaN()); });

// The head that begins so many elements behind the first.
inline void attend_head(AttentionParams all, size_t offset) {
  all.Q += offset;
  all.K += offset;
  all.V += offset;
  all.O += offset;
  all.batch_heads = 1;
  attention(all);
}

inline Rung rung_of(Kernel* kernel) {
  Rung rung;
  rung.name = "99_fake";
  Variant variant;
  variant.label = "on the host";
  variant.accepts.min_d = 1;
  if (kernel) variant.on_emulator = kernel;
  rung.variants.push_back(variant);
  return rung;
}

inline CheckResult check(const Rung& rung) {
  static const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  return check_on_emulator(rung, rung.variants.front(), problem);
}

// Wrong, and for this reason alone.
inline bool only(const CheckResult& result, FailureKind kind) {
  return !result.ok && !result.failures.empty() &&
         std::ranges::all_of(result.failures, [=](const Failure& failure) { return failure.kind == kind; });
}

}  // namespace host_kernels
