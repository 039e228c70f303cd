#include "harness/verify/properties.hpp"

#include <cmath>
#include <numeric>

#include "harness/problem/reference.hpp"

namespace ladder {
namespace {

// Multiples of 1/64, below 8: a normal number drawn by 32 bits ends at 6.7. So sums of two, and shifts by a small integer,
// are exact in f16.
f16 on_grid(f16 value) {
  return to_f16(std::round(to_float(value) * 64.0f) / 64.0f);
}

template <class Change>
Tensor changed(const Tensor& tensor, const Change& change) {
  Tensor result = tensor;
  size_t i = 0;
  for (f16& value : result.half()) value = change(value, i++);
  return result;
}

// NaN if either is.
double larger(double a, double b) {
  return std::isnan(a) || b <= a ? a : b;
}

// Within each head, row j becomes row (j * step + offset) mod n; step has no factor in common with n.
Tensor permuted(const Tensor& values, const Shape& shape) {
  const int64_t n = shape.n, d = shape.d;
  int64_t step = n / 2 + 1;
  while (std::gcd(step, n) != 1) ++step;
  return changed(values, [&](f16, size_t i) {
    const int64_t head = i / (n * d), row = i / d % n, column = i % d;
    return values.half()[(head * n + (row * step + 5) % n) * d + column];
  });
}

// The last row of a prefix: within the tiles at the middle of the sequence, at the end of none.
int64_t last_of_prefix(const Shape& shape) {
  return shape.n / 2 + shape.n / 12;
}

// Within each head, the rows behind the prefix times -2.
Tensor with_other_suffix(const Tensor& values, const Shape& shape) {
  return changed(values, [&](f16 value, size_t i) {
    const bool behind = int64_t(i) / shape.d % shape.n > last_of_prefix(shape);
    return behind ? to_f16(-2 * to_float(value)) : value;
  });
}

// All rows behind the prefix zeroed.
Tensor prefixes(const Tensor& values, const Shape& shape) {
  return changed(values, [&](f16 value, size_t i) {
    return int64_t(i) / shape.d % shape.n > last_of_prefix(shape) ? f16{0} : value;
  });
}

}  // namespace

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = larger(largest, std::abs(a[i] - b[i]));
  return largest;
}

Result<std::vector<PropertyResult>> check_properties_of(const Run& run, const Shape& shape, uint64_t seed) {
  Inputs inputs = make_inputs(InputKind::normal, shape, seed);
  const auto grid = [](f16 value, size_t) { return on_grid(value); };
  inputs["K"] = changed(inputs["K"], grid);
  inputs["V"] = changed(inputs["V"], grid);
  const double tolerance = make_reference(shape, inputs).tolerance();

  const auto base = run(inputs);
  if (!base) return passed_on(base);
  std::vector<PropertyResult> results;

  Inputs other = inputs;
  other["K"] = shape.causal ? with_other_suffix(inputs["K"], shape) : permuted(inputs["K"], shape);
  other["V"] = shape.causal ? with_other_suffix(inputs["V"], shape) : permuted(inputs["V"], shape);
  auto output = run(other);
  if (!output) return passed_on(output);
  if (shape.causal) {
    results.push_back({"prefix", largest_difference(prefixes(*base, shape), prefixes(*output, shape)), 0});
  } else {
    results.push_back({"permuted_keys", largest_difference(*base, *output), 2 * tolerance});
  }

  // V = V1 + V2 with V2 = V of the reverse row order, both on the grid.
  other = inputs;
  other["V"] = changed(inputs["V"], [&](f16, size_t i) { return inputs.half("V")[inputs["V"].size() - 1 - i]; });
  const auto second = run(other);
  if (!second) return passed_on(second);
  other["V"] =
      changed(inputs["V"], [&](f16 value, size_t i) { return to_f16(to_float(value) + to_float(other.half("V")[i])); });
  const auto sum = run(other);
  if (!sum) return passed_on(sum);
  other["V"] = changed(inputs["V"], [](f16 value, size_t) { return to_f16(2 * to_float(value)); });
  const auto twice = run(other);
  if (!twice) return passed_on(twice);
  double deviation = 0;
  for (size_t i = 0; i < base->size(); ++i) {
    const double one = (*base)[i], two = (*second)[i];
    deviation = larger(deviation, std::abs((*sum)[i] - (one + two)));
    deviation = larger(deviation, std::abs((*twice)[i] - 2 * one));
  }
  results.push_back({"linear_in_v", deviation, 4 * tolerance});

  other = inputs;
  other["K"] = changed(inputs["K"], [](f16 value, size_t) { return to_f16(to_float(value) + 4.0f); });
  output = run(other);
  if (!output) return passed_on(output);
  results.push_back({"shifted_scores", largest_difference(*base, *output), 2 * tolerance});
  return results;
}

}  // namespace ladder
