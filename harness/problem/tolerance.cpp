#include "harness/problem/tolerance.hpp"

#include <cmath>
#include <limits>

namespace ladder {

Comparison compare_to_reference(const Reference& reference, const Reference::Answer& answer, const Tensor& output,
                                size_t set) {
  Comparison worst;
  worst.tolerance = answer.tolerance(set);
  double squares = 0, term_squares = 0;
  int64_t elements = 0, rows = 0;
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    if (reference.set_of(reference.rows[i]) != set) continue;
    ++rows;
    const double tolerance = answer.tolerance_of_row(set, i), term = tolerance - answer.tolerance(set);
    const size_t first = static_cast<size_t>(reference.rows[i] * answer.columns);
    for (int c = 0; c < answer.columns; ++c) {
      const double got = output[first + static_cast<size_t>(c)], expected = answer.row(i)[c];
      // An infinite value times a weight that f16 has rounded to zero is NaN, and so infinity may become one.
      const bool same_kind = std::isnan(got) || (std::isinf(expected) && got == expected);
      const double error = std::isfinite(expected) ? std::abs(got - expected)
                           : same_kind             ? 0
                                                   : std::numeric_limits<double>::infinity();
      if (std::isfinite(expected)) {
        squares += error * error;
        term_squares += term * term;
        ++elements;
      }
      if (error * worst.tolerance <= worst.max_err * tolerance) continue;  // false for NaN, which therefore wins
      worst.max_err = error;
      worst.tolerance = tolerance;
      worst.row = reference.rows[i];
      worst.column = c;
      worst.got = got;
      worst.expected = expected;
      if (std::isnan(error)) {
        worst.rms = error;
        return worst;
      }
    }
  }
  if (elements > 0) {
    worst.rms = std::sqrt(squares / static_cast<double>(elements));
    worst.rms_tolerance = answer.rms_tolerance(set, rows) + std::sqrt(term_squares / static_cast<double>(elements));
  }
  return worst;
}

}  // namespace ladder
