// The input sets that a kernel must survive. All values are f16, made from a seed, the same on every machine.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/stage.hpp"

namespace ladder {

// Q, K and V of one problem, each [batch, heads, n, d] contiguous on the host.
struct Inputs {
  std::vector<f16> Q, K, V;
};

enum class InputKind {
  normal,          // N(0, 1)
  large_logits,    // Q and K from N(0, 8): the softmax is nearly one-hot, exponents overflow without a running maximum
  peaky,           // Q and K from N(0, 16)
  one_hot,         // every query meets exactly one key with a dominating score
  constant_v,      // V is constant: any weights that sum to 1 give it back
  last_tile_max,   // each row's maximum is among the last keys
  first_tile_max,  // ... among the first
  negative_rows,   // all scores far below zero
  ties,            // all scores equal: O is the mean of V
};

std::span<const InputKind> all_input_kinds();
std::string_view to_string(InputKind kind);

Inputs make_inputs(InputKind kind, const Shape& shape, uint64_t seed);

// The kernel's arguments, without pointers.
AttentionParams params_for(const Shape& shape);

float to_float(f16 value);  // exact
f16 to_f16(float value);    // round to nearest even

}  // namespace ladder
