// What the answer is, and how far a kernel in f16 may be from it.
//
// The answer is computed in double precision from the f16 inputs. The tolerance follows FlashAttention's own tests: a
// kernel may be twice as wrong as a plain f16 implementation, on the same inputs and rows, plus 1e-5. That plain
// implementation rounds to f16 after each step, as separate GPU kernels would: the scores S, the normalised weights P
// and the output O; its sums are f32.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "harness/inputs.hpp"
#include "harness/stage.hpp"

namespace ladder {

struct Reference {
  int d = 0;
  bool all_rows = false;       // otherwise a deterministic sample
  std::vector<int64_t> rows;   // (batch * heads + head) * n + query, ascending
  std::vector<double> output;  // [rows.size(), d]
  double naive_error = 0;      // largest |f16 implementation - double| over these rows
  std::vector<double> lse;     // [rows.size()]: ln of the sum of exp(scaled scores)
  // How far a kernel's LSE may be off. A score is a sum of d products in f32, and none of its partial sums exceeds
  // |q| |k|. Tensor cores take 16 products at a time and cut the sum off instead of rounding it, always towards zero:
  // up to 2^-22 of it at each of d / 16 steps (an H200 was seen to lose a little more than 2^-21 in all at d = 128, where
  // sums that are rounded stay below). A change of all scores by that much changes LSE by as much. The exponentials (2 ulp) and their sum in f32 are within the 1e-5.
  std::vector<double> lse_tolerance;

  double tolerance() const { return 2 * naive_error + 1e-5; }
  std::span<const double> row(size_t i) const { return {output.data() + i * d, static_cast<size_t>(d)}; }
};

// All rows when that is cheap, and a sample when not: the first and last rows of tiles of the first and last heads, and
// rows spread over the rest.
Reference make_reference(const Shape& shape, const Inputs& inputs);

// Largest error, where it is, and the two values there.
struct Comparison {
  double max_err = 0;  // NaN as soon as one value is NaN
  int64_t row = 0;     // as in Reference::rows
  int column = 0;
  double got = 0, expected = 0;
};

// `output` is all of O, [batch, heads, n, d].
Comparison compare_to_reference(const Reference& reference, std::span<const f16> output);
// `rows` holds the reference's rows only, in their order: [reference.rows.size(), d].
Comparison compare_rows_to_reference(const Reference& reference, std::span<const f16> rows);

}  // namespace ladder
