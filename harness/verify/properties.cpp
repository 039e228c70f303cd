#include "harness/verify/properties.hpp"

#include <cmath>
#include <numeric>

#include "harness/problem/reference.hpp"

namespace ladder {
namespace {

template <class Change>
Tensor changed(const Tensor& tensor, const Change& change) {
  Tensor result = tensor;
  for (size_t i = 0; i < tensor.size(); ++i) result.set(static_cast<int64_t>(i), change(tensor[i], i));
  return result;
}

// Multiples of 1/64, in f16, below 8: a normal number drawn by 32 bits ends at 6.7. So sums of two, and shifts by a small integer,
// are exact. Of a type with fewer bits multiples of so much more.
Tensor on_grid(const Tensor& tensor) {
  const double step = 16 * info(tensor.spec().element).eps;
  return changed(tensor, [step](double value, size_t) { return std::round(value / step) * step; });
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
  return changed(values, [&](double, size_t i) {
    const int64_t head = i / (n * d), row = i / d % n, column = i % d;
    return values[(head * n + (row * step + 5) % n) * d + column];
  });
}

// The last row of a prefix: within the tiles at the middle of the sequence, at the end of none.
int64_t last_of_prefix(const Shape& shape) {
  return shape.n / 2 + shape.n / 12;
}

// With other values in the rows behind the prefix, within each head.
Tensor with_suffix(const Tensor& values, const Shape& shape, double (*other)(double)) {
  return changed(values, [&](double value, size_t i) {
    return int64_t(i) / shape.d % shape.n > last_of_prefix(shape) ? other(value) : value;
  });
}
Tensor prefixes(const Tensor& values, const Shape& shape) {
  return with_suffix(values, shape, [](double) { return 0.0; });
}

}  // namespace

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = larger(largest, std::abs(a[i] - b[i]));
  return largest;
}

Result<std::vector<PropertyResult>> check_properties_of(const Run& run, const Shape& shape, uint64_t seed) {
  Inputs inputs = make_inputs(InputKind::normal, shape, seed);
  inputs["K"] = on_grid(inputs["K"]);
  inputs["V"] = on_grid(inputs["V"]);
  const double tolerance = make_reference(shape, inputs).tolerance();

  Inputs other = inputs, second = inputs, sum = inputs, twice = inputs, shifted = inputs;
  for (const char* name : {"K", "V"}) {
    const auto change = [](double value) { return -2 * value; };
    other[name] = shape.causal ? with_suffix(inputs[name], shape, change) : permuted(inputs[name], shape);
  }
  // V = V1 + V2 with V2 = V of the reverse row order, both on the grid.
  const Tensor& V = inputs["V"];
  second["V"] = changed(V, [&](double, size_t i) { return V[V.size() - 1 - i]; });
  sum["V"] = changed(second["V"], [&](double value, size_t i) { return V[i] + value; });
  twice["V"] = changed(V, [](double value, size_t) { return 2 * value; });
  shifted["K"] = changed(inputs["K"], [](double value, size_t) { return value + 4; });

  std::vector<Tensor> outputs;
  for (const Inputs* const each : {&inputs, &other, &second, &sum, &twice, &shifted}) {
    auto output = run(*each);
    if (!output) return passed_on(output);
    outputs.push_back(std::move(*output));
  }
  const Tensor& base = outputs[0];
  double deviation = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    deviation = larger(deviation, std::abs(outputs[3][i] - (base[i] + outputs[2][i])));
    deviation = larger(deviation, std::abs(outputs[4][i] - 2 * base[i]));
  }
  return std::vector<PropertyResult>{
      shape.causal ? PropertyResult{"prefix", largest_difference(prefixes(base, shape), prefixes(outputs[1], shape)), 0}
                   : PropertyResult{"permuted_keys", largest_difference(base, outputs[1]), 2 * tolerance},
      {"linear_in_v", deviation, 4 * tolerance},
      {"shifted_scores", largest_difference(base, outputs[5]), 2 * tolerance}};
}

}  // namespace ladder
