// How far an answer may be from the right one, and whether it is within that.
//
// The tolerance follows FlashAttention's own tests: a kernel may be twice as wrong as a plain f16 attention, on the
// same inputs and rows, plus 1e-5. That plain attention rounds to f16 what every such kernel must round, the inputs,
// the weights P and the output O, and keeps scores and sums in f32. Its weights stand relative to the row's maximum, or
// to one that is stale by a third or two thirds of a power of two: which of them are rounded how depends on that, and
// the worst of the three counts. Its output is rounded in the worse direction: where the answer is a number of f16, a
// right kernel may still be a step beside it.
//
// A maximum forgives whatever stays below it. So the root of the mean squared error over all elements of an input set
// is held too, to 1.1 times that of the plain attention: weights that are rounded twice have 1.4 times.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/problem/tensors.hpp"

namespace ladder {

// The right answers, and what a kernel may be off by.
struct Reference {
  // The errors of the plain f16 attention over the rows of one input set.
  struct Baseline {
    double max = 0, rms = 0;
  };

  // One output.
  struct Answer {
    std::string_view output;  // "O"
    int columns = 0;
    std::vector<double> values = {};      // [rows.size(), columns]; NaN and infinity where the inputs' reach it
    std::vector<Baseline> baseline = {};  // per input set; empty where rounding to f16 is not what makes errors
    // How far a row may be off besides, [rows.size()]; empty where that was not asked for: the emulator rounds its
    // sums.
    std::vector<double> row_tolerance = {};

    std::span<const double> row(size_t i) const {
      return {values.data() + i * static_cast<size_t>(columns), static_cast<size_t>(columns)};
    }
    double tolerance(size_t set = 0) const { return baseline.empty() ? 0 : 2 * baseline[set].max + 1e-5; }
    double tolerance_of_row(size_t set, size_t i) const {
      return tolerance(set) + (row_tolerance.empty() ? 0 : row_tolerance[i]);
    }
    // Few rows have few different weights, and their mean is a matter of luck. Where nearly all answers are exact, a
    // mean says nothing.
    double rms_tolerance(size_t set, int64_t rows_of_set) const {
      if (baseline[set].rms < baseline[set].max / 50) return tolerance(set);
      return (1.1 + 0.5 / std::sqrt(static_cast<double>(rows_of_set))) * baseline[set].rms + 1e-6;
    }
  };

  int n = 0;
  size_t sets = 1;            // head i belongs to input set i % sets
  bool all_rows = false;      // otherwise a deterministic sample
  std::vector<int64_t> rows;  // (batch * heads + head) * n + query, ascending
  std::vector<Answer> answers;

  size_t set_of(int64_t row) const { return static_cast<size_t>(row / n) % sets; }
  const Answer& operator[](std::string_view output) const {
    return *std::ranges::find(answers, output, &Answer::output);
  }
  // Of the first output.
  double tolerance(size_t set = 0) const { return answers.front().tolerance(set); }
};

// One input set against the reference. Where the formula makes NaN of the inputs, so must the kernel; where it makes
// infinity, that or NaN. Anything else there is an infinite error.
struct Comparison {
  double max_err = 0;  // of the element nearest to its tolerance, or furthest beyond, of equals the first; NaN as soon
  double tolerance = 0;  // as one should be a number and is NaN
  int64_t row = 0;       // as in Reference::rows
  int column = 0;
  double got = 0, expected = 0;
  double rms = 0, rms_tolerance = 0;
  bool within() const { return max_err <= tolerance; }  // false for NaN
  bool rms_within() const { return rms <= rms_tolerance; }
  bool right() const { return within() && rms_within(); }
};

// `output` is all of the tensor. Of an answer with a baseline.
Comparison compare_to_reference(const Reference& reference, const Reference::Answer& answer, const Tensor& output,
                                size_t set = 0);

// The same of a tensor that holds the reference's rows alone, in their order: [1, rows.size(), columns].
Comparison compare_rows_to_reference(const Reference& reference, const Reference::Answer& answer, const Tensor& rows,
                                     size_t set = 0);
// The reference of some of its rows: the places in Reference::rows, ascending or not.
Reference some_rows(const Reference& reference, std::span<const size_t> places);

}  // namespace ladder
