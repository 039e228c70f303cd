// What must hold for any right kernel, whatever the reference says: facts about attention itself.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// Runs a kernel on the given inputs and returns all of O.
using Run = std::function<Result<Tensor>(const Inputs&)>;

struct PropertyResult {
  std::string_view name;
  double deviation = 0;  // largest difference between outputs that should agree; NaN if either has one
  double bound = 0;      // what rounding explains
  bool holds() const { return deviation <= bound; }
};

// permuted_keys   keys and values in another order: the sums are the same; dense only
// prefix          other keys and values behind a query: not a bit of the rows up to it changes; causal only
// linear_in_v     O(V1 + V2) = O(V1) + O(V2), and O(2 V) = 2 O(V)
// shifted_scores  a constant added to all keys adds a constant to all scores of a row, which the softmax cancels
Result<std::vector<PropertyResult>> check_properties_of(const Run& run, const Shape& shape, uint64_t seed);

// Largest |a - b|; NaN if any difference is.
double largest_difference(const Tensor& a, const Tensor& b);

}  // namespace ladder
