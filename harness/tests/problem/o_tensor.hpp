// For tests that compute O themselves.
#pragma once
#include <algorithm>
#include <span>

#include "harness/problem/reference.hpp"

// All of O as a tensor: [heads, n, d].
inline ladder::Tensor o_tensor(std::span<const f16> values, const ladder::Reference& reference) {
  const int columns = reference["O"].columns;
  const auto heads = static_cast<int64_t>(values.size()) / (int64_t{reference.n} * columns);
  ladder::Tensor tensor({.name = "O", .heads = heads, .rows = reference.n, .columns = columns});
  std::ranges::copy(values, tensor.half().begin());
  return tensor;
}

inline ladder::Comparison compare_O(const ladder::Reference& reference, std::span<const f16> output, size_t set = 0) {
  return compare_to_reference(reference, reference["O"], o_tensor(output, reference), set);
}
