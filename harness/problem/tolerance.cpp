#include "harness/problem/tolerance.hpp"

#include <cmath>
#include <limits>

namespace ladder {
namespace {

// place(i): where the tensor has the reference's row i.
template <class Place>
Comparison compare(const Reference& reference, const Reference::Answer& answer, const Tensor& output, size_t set,
                   const Place& place) {
  Comparison worst;
  worst.tolerance = answer.tolerance(set);
  double squares = 0, term_squares = 0;
  int64_t elements = 0, rows = 0;
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    if (reference.set_of(reference.rows[i]) != set) continue;
    ++rows;
    const double tolerance = answer.tolerance_of_row(set, i), term = tolerance - answer.tolerance(set);
    const size_t first = place(i) * static_cast<size_t>(answer.columns);
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

}  // namespace

Comparison compare_to_reference(const Reference& reference, const Reference::Answer& answer, const Tensor& output,
                                size_t set) {
  return compare(reference, answer, output, set, [&](size_t i) { return static_cast<size_t>(reference.rows[i]); });
}

Comparison compare_rows_to_reference(const Reference& reference, const Reference::Answer& answer, const Tensor& rows,
                                     size_t set) {
  return compare(reference, answer, rows, set, [](size_t i) { return i; });
}

Reference some_rows(const Reference& reference, std::span<const size_t> places) {
  Reference some{.n = reference.n, .sets = reference.sets, .rows = {}, .answers = {}};
  for (const size_t place : places) some.rows.push_back(reference.rows[place]);
  for (const Reference::Answer& answer : reference.answers) {
    Reference::Answer& part = some.answers.emplace_back(
        Reference::Answer{.output = answer.output, .columns = answer.columns, .baseline = answer.baseline});
    for (const size_t place : places) {
      part.values.insert(part.values.end(), answer.row(place).begin(), answer.row(place).end());
      if (!answer.row_tolerance.empty()) part.row_tolerance.push_back(answer.row_tolerance[place]);
    }
  }
  return some;
}

}  // namespace ladder
