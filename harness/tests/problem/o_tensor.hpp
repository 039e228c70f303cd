// For tests that compute O themselves.
#pragma once
#include <algorithm>
#include <span>

#include "harness/problem/reference.hpp"

// All of O as a tensor, of heads of n rows.
inline ladder::Tensor o_tensor(std::span<const f16> values, const ladder::Reference& reference, int64_t n) {
  const int64_t columns = reference["O"].columns;
  ladder::Tensor tensor(ladder::tensor("O", ladder::Element::f16, {1, std::ssize(values) / (n * columns), n, columns}));
  std::ranges::copy(values, tensor.half().begin());
  return tensor;
}

inline ladder::Comparison compare_O(const ladder::Reference& reference, std::span<const f16> output, int64_t n,
                                    size_t set = 0) {
  return compare_to_reference(reference["O"], o_tensor(output, reference, n), set);
}
