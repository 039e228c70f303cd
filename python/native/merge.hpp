// Two partial results become one: attention over some keys, and over others, of the same queries.
#pragma once
#include "common/attention.hpp"

namespace emulator {
class Device;
}
namespace gpu {
struct Device;
}

// O = (e^LSE O + e^other_LSE other) / (e^LSE + e^other_LSE), and LSE the logarithm of that divisor, in place. [batch, heads, n, d] and
// [batch, heads, n]: d = 128 elements lie side by side on 16 bytes, all else where the strides say.
struct MergeParams {
  void* O;            // f32, or as `other`
  float* LSE;         // -infinity for a query that saw no key: it weighs nothing
  const void* other;  // f16 or bf16
  const float* other_LSE;
  ForwardParams::Strides O_strides, LSE_strides, other_strides, other_LSE_strides;
  int batch, heads, n;
  bool in_f32, is_bf16;  // O; `other`
};

void merge(gpu::Device& device, const MergeParams& p);
void merge(emulator::Device& device, const MergeParams& p);
