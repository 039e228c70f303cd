#include "harness/problem/tolerance.hpp"

#include <cmath>
#include <limits>

namespace ladder {
namespace {

// first_of(i): the element that the row of cell i begins with.
template <class First>
Comparison compare(const Reference::Answer& answer, const Tensor& output, size_t set, const First& first_of) {
  Comparison worst;
  worst.tolerance = answer.tolerance(set);
  double squares = 0, term_squares = 0;
  int64_t elements = 0, rows = 0;
  for (size_t i = 0; i < answer.cells.size(); ++i) {
    if (answer.set_of(i) != set) continue;
    ++rows;
    const double tolerance = answer.tolerance_of_row(set, i), term = tolerance - answer.tolerance(set);
    const auto first = static_cast<size_t>(first_of(i));
    for (int64_t c = 0; c < answer.columns; ++c) {
      const double got = output[first + static_cast<size_t>(c)], expected = answer.row(i)[static_cast<size_t>(c)];
      const double error = error_of(got, expected);
      if (std::isfinite(expected)) {
        squares += error * error;
        term_squares += term * term;
        ++elements;
      }
      if (error * worst.tolerance <= worst.max_err * tolerance) continue;  // false for NaN, which therefore wins
      worst = {error, tolerance, answer.cells[i], c, got, expected};
      if (!std::isnan(error)) continue;
      worst.rms = error;
      return worst;
    }
  }
  if (elements > 0) {
    worst.rms = std::sqrt(squares / static_cast<double>(elements));
    worst.rms_tolerance = answer.rms_tolerance(set, rows) + std::sqrt(term_squares / static_cast<double>(elements));
  }
  return worst;
}

}  // namespace

double error_of(double got, double expected) {
  if (std::isfinite(expected)) return std::abs(got - expected);
  return std::isnan(got) || got == expected ? 0 : std::numeric_limits<double>::infinity();
}

Comparison compare_to_reference(const Reference::Answer& answer, const Tensor& output, size_t set) {
  return compare(answer, output, set,
                 [&](size_t i) { return output.spec().index(answer.cells[i].unit, answer.cells[i].row); });
}

Comparison compare_rows_to_reference(const Reference::Answer& answer, const Tensor& rows, size_t set) {
  return compare(answer, rows, set, [&](size_t i) { return rows.spec().index(0, static_cast<int64_t>(i)); });
}

Reference::Answer some_cells(const Reference::Answer& answer, std::span<const size_t> places) {
  Reference::Answer some = answer;
  some.cells.clear();
  some.values.clear();
  some.row_tolerance.clear();
  for (const size_t place : places) {
    some.cells.push_back(answer.cells[place]);
    some.values.insert(some.values.end(), answer.row(place).begin(), answer.row(place).end());
    if (!answer.row_tolerance.empty()) some.row_tolerance.push_back(answer.row_tolerance[place]);
  }
  return some;
}

}  // namespace ladder
