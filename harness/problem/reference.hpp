// What the answer is, and how far a kernel in f16 may be from it.
//
// The answer is computed in double precision from the f16 inputs. The tolerance follows FlashAttention's own tests: a
// kernel may be twice as wrong as a plain f16 attention, on the same inputs and rows, plus 1e-5. That plain attention rounds
// to f16 what every such kernel must round, the inputs, the weights P and the output O, and keeps scores and sums in f32.
// Its weights stand relative to the row's maximum, or to one that is stale by a third or two thirds of a power of two:
// which of them are rounded how depends on that, and the worst of the three counts. Its output is rounded in the worse
// direction: where the answer is a number of f16, a right kernel may still be a step beside it.
//
// A maximum forgives whatever stays below it. So the root of the mean squared error over all elements of an input set is
// held too, to 1.1 times that of the plain attention: weights that are rounded twice have 1.4 times.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/problem/inputs.hpp"
#include "harness/stage.hpp"

namespace ladder {

struct Reference {
  // The errors of the plain f16 attention over the rows of one input set.
  struct Baseline {
    double max = 0, rms = 0;
  };

  int n = 0, d = 0;
  bool all_rows = false;           // otherwise a deterministic sample
  std::vector<int64_t> rows;       // (batch * heads + head) * n + query, ascending
  std::vector<double> output;      // [rows.size(), d]; NaN and infinity where the inputs' reach it
  std::vector<Baseline> baseline;  // per input set; head i belongs to set i % baseline.size()
  std::vector<double> lse;         // [rows.size()]: ln of the sum of exp(scaled scores)
  // How far a kernel's LSE may be off. A score is a sum of d products in f32, and none of its partial sums exceeds
  // |q| |k|. Tensor cores take 16 products at a time and cut the sum off instead of rounding it, always towards zero:
  // up to 2^-22 of it at each of d / 16 steps (an H200 was seen to lose a little more than 2^-21 in all at d = 128, where
  // sums that are rounded stay below). A change of all scores by that much changes LSE by as much. The exponentials (2 ulp)
  // and their sum in f32 are within the 1e-5.
  std::vector<double> lse_tolerance;
  // How far O may be off for the same reason, [rows.size()]: to first order no further than the scores, times the mean
  // distance of the values from O. Empty where it was not asked for: the emulator rounds its sums.
  std::vector<double> score_term;

  size_t sets() const { return baseline.size(); }
  size_t set_of(int64_t row) const { return static_cast<size_t>(row / n) % baseline.size(); }
  double tolerance(size_t set = 0) const { return 2 * baseline[set].max + 1e-5; }
  // Few rows have few different weights, and their mean is a matter of luck. Where nearly all answers are exact, a mean
  // says nothing.
  double rms_tolerance(size_t set, int64_t rows_of_set) const {
    if (baseline[set].rms < baseline[set].max / 50) return tolerance(set);
    return (1.1 + 0.5 / std::sqrt(static_cast<double>(rows_of_set))) * baseline[set].rms + 1e-6;
  }
  std::span<const double> row(size_t i) const { return {output.data() + i * d, static_cast<size_t>(d)}; }
};

// All rows when that is cheap, and a sample when not: the first and last rows of tiles of the first and last heads, and
// rows spread over the rest. Heads belong to `sets` input sets in turn.
Reference make_reference(const Shape& shape, const Inputs& inputs, size_t sets = 1, bool with_score_terms = false);
// The same of the given rows: (batch * heads + head) * n + query, ascending.
Reference make_reference(const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows, size_t sets = 1,
                         bool with_score_terms = false);

// One input set against the reference. Where the formula makes NaN of the inputs, so must the kernel; where it makes
// infinity, that or NaN. Anything else there is an infinite error.
struct Comparison {
  double max_err = 0;    // of the element nearest to its tolerance, or furthest beyond; NaN as soon as one should be a
  double tolerance = 0;  // number and is NaN
  int64_t row = 0;       // as in Reference::rows
  int column = 0;
  double got = 0, expected = 0;
  double rms = 0, rms_tolerance = 0;
  bool within() const { return max_err <= tolerance; }  // false for NaN
  bool rms_within() const { return rms <= rms_tolerance; }
  bool right() const { return within() && rms_within(); }
};

// `output` is all of O, [batch, heads, n, d].
Comparison compare_to_reference(const Reference& reference, std::span<const f16> output, size_t set = 0);
// `rows` holds the reference's rows only, in their order: [reference.rows.size(), d].
Comparison compare_rows_to_reference(const Reference& reference, std::span<const f16> rows, size_t set = 0);

}  // namespace ladder
