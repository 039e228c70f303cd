// How far an answer may be from the right one, and whether it is within that.
//
// The tolerance follows FlashAttention's own tests: a kernel may be twice as wrong as a plain attention, on the same
// inputs and rows, plus 1e-5. That plain attention rounds what every such kernel must round, the inputs, the weights P and
// the output O, each to its type, keeps scores and sums in f32, and takes a softcap's tanh from a GPU's unit. Its weights stand relative to the row's maximum, or
// to one that is stale by a third or two thirds of a power of two: which of them are rounded how depends on that, and
// the worst of the three counts. Its output is rounded in the worse direction: where the answer is a number of its type, a
// right kernel may still be a step beside it.
//
// A maximum forgives whatever stays below it. So the root of the mean squared error over all elements of an input set
// is held too, to 1.1 times that of the plain attention: weights that are rounded twice have 1.4 times. It may be more the fewer rows
// there are, and the more of its error a few rows make, as under a mask the first ones, which see few keys. Where the plain attention
// is exact with one of those maxima, the others' errors are those of a few weights, and their mean is luck: then it says nothing.
// Weights of a byte may have twice: they have three bits, below 2^-6 fewer, and where they lie in that range a kernel chooses.
#pragma once
#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/problem/tensors.hpp"

namespace ladder {

// A row of one output.
struct Cell {
  int64_t unit = 0, row = 0;  // of its tensor
  auto operator<=>(const Cell&) const = default;
};
// Those of each output that are looked at, ascending.
using Cells = std::vector<std::vector<Cell>>;

// The right answers, and what a kernel may be off by.
struct Reference {
  // The errors of the plain attention over the cells of one input set.
  struct Baseline {
    double max = 0, rms = 0;
    double luck = 0;  // of the latter: one over the root of how many rows it would be of, had all a like share in it
  };

  // One output.
  struct Answer {
    std::string_view output;  // "O"
    int64_t columns = 0;
    std::vector<Cell> cells = {};
    std::vector<double> values = {};      // [cells.size(), columns]; NaN and infinity where the inputs' reach it
    std::vector<Baseline> baseline = {};  // per input set; empty where rounding to its type is not what makes errors
    // How far a row may be off besides, [cells.size()]; empty where that was not asked for: the emulator rounds its
    // sums.
    std::vector<double> row_tolerance = {};
    int64_t group = 1;  // units that share inputs, and with them an input set
    size_t sets = 1;    // a group belongs to one of them in turn
    double rms_factor = 1.1;

    size_t set_of_unit(int64_t unit) const { return static_cast<size_t>(unit / group) % sets; }
    size_t set_of(size_t i) const { return set_of_unit(cells[i].unit); }
    std::span<const double> row(size_t i) const {
      return {values.data() + i * static_cast<size_t>(columns), static_cast<size_t>(columns)};
    }
    double tolerance(size_t set = 0) const { return baseline.empty() ? 0 : 2 * baseline[set].max + 1e-5; }
    double tolerance_of_row(size_t set, size_t i) const {
      return tolerance(set) + (row_tolerance.empty() ? 0 : row_tolerance[i]);
    }
    // Few rows have few different weights, and their mean is a matter of luck. Where nearly all answers are exact, a mean says nothing.
    double rms_tolerance(size_t set, int64_t rows_of_set) const {
      if (baseline[set].rms < baseline[set].max / 50) return tolerance(set);
      // Rows with a large share have fewer weights, too: what such rows add counts three times.
      const double alike = 1 / std::sqrt(static_cast<double>(rows_of_set));
      const double luck = std::max(alike, alike + 3 * (baseline[set].luck - alike));
      return (rms_factor + luck) * baseline[set].rms + 1e-6;
    }
  };

  std::vector<Answer> answers;

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
  Cell cell = {};
  int64_t column = 0;
  double got = 0, expected = 0;
  double rms = 0, rms_tolerance = 0;
  bool within() const { return max_err <= tolerance; }  // false for NaN
  bool rms_within() const { return rms <= rms_tolerance; }
  bool right() const { return within() && rms_within(); }
};

// Off by how much. Where the formula makes NaN, so must the kernel; where infinity, that or NaN: an infinite value times a
// weight that was rounded to zero is NaN.
double error_of(double got, double expected);

// `output` is all of the tensor. Of an answer with a baseline.
Comparison compare_to_reference(const Reference::Answer& answer, const Tensor& output, size_t set = 0);
// The same of a tensor that holds the answer's cells alone, in their order: one unit of cells.size() rows.
Comparison compare_rows_to_reference(const Reference::Answer& answer, const Tensor& rows, size_t set = 0);
// The answers in some of the cells, by their places.
Reference::Answer some_cells(const Reference::Answer& answer, std::span<const size_t> places);

}  // namespace ladder
