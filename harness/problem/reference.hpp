// What the answer is: computed in double precision from the inputs as a kernel gets them, f16 or bf16, with the errors of the plain
// formula in that type beside it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "harness/problem/inputs.hpp"
#include "harness/problem/tolerance.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// Keys in a row, or queries.
struct Keys {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
  bool has(int64_t i) const { return first <= i && i < last; }
};
using KeyRuns = std::vector<Keys>;
// The keys that a query of a sequence sees, in ascending runs that are apart: by length, mask and window one, or none.
void for_each_run_of_keys(const Spec& spec, int64_t sequence, int64_t query,
                          const std::function<void(const Keys&)>& visit);
KeyRuns runs_of_keys(const Spec& spec, int64_t sequence, int64_t query);
// The queries that see a key.
KeyRuns runs_of_queries(const Spec& spec, int64_t sequence, int64_t key);
// Where a query would be among the keys.
int64_t key_of_query(const Spec& spec, int64_t sequence, int64_t query);

// What is done to the scaled scores of a head, and the score that belongs to no key.
struct Modifiers {
  double softcap = 0, slope = 0;  // 0: nothing
  std::optional<double> sink;

  template <class T>
  struct Changed {
    T score, derivative;  // by the score before
  };
  // Of a key so far from the query's own.
  Changed<double> change(double score, int64_t distance) const;
  Changed<float> change(float score, int64_t distance) const;  // the tanh is a GPU's, of eleven bits
};
Modifiers modifiers_of(const Spec& spec, const Inputs& inputs, int64_t unit);

// One head of a tensor, of the rows that it has, as floats (exact), and transposed, so that all products are sums of scaled rows.
struct Rows {
  static constexpr bool transposed_too = true;
  int64_t n = 0, d = 0;
  std::vector<float> rows, transposed;  // [n, d], [d, n]
  std::vector<double> length;           // of each row, of those that are transposed

  Rows(const Tensor& tensor, int64_t unit, bool with_transposed = false);
  std::span<const float> row(int64_t i) const { return {&rows[i * d], static_cast<size_t>(d)}; }
};

// sum[i] += factors[row] * values[row * stride + i], one row after the other: a row of S or O, of K transposed or V.
void add_product(std::span<double> sum, std::span<const double> factors, const float* values, int64_t stride);
void add_product(std::span<float> sum, std::span<const float> factors, const float* values, int64_t stride);
// The same of the products' magnitudes, or with 2 as the power of their squares.
void add_magnitudes(std::span<double> sum, std::span<const double> factors, const float* values, int64_t stride,
                    int power);

// Rows of O. All when that is cheap, 2^30 multiply-adds of Q K^T at most, or of more than 64 heads 32 each. Otherwise a sample
// of at most as much work, or of 64 rows: from heads spread evenly, the first and the last among them, the first and last
// rows of tiles, and rows spread over the rest. Ascending.
std::vector<Cell> choose_cells(const Spec& spec);

// What is computed beside the values: nothing, in less than half of the time; how wrong the plain attention is; and how far O moves
// with its scores.
enum class Beside { nothing, errors, score_terms };

// O and LSE, ln of the sum of exp(scaled scores), in the given rows, ascending. Groups of heads that share keys belong to
// `sets` input sets in turn. A row without keys has O = 0 and LSE = -infinity.
//
// Row tolerances. A score is a sum of d products in f32, and none of its partial sums exceeds |q| |k|. Tensor cores
// take 16 products at a time and cut the sum off instead of rounding it, always towards zero: up to 2^-22 of it at each
// of d / 16 steps, and one more is allowed (an H200 was seen to lose a little more than 2^-21 in all at d = 128, where
// sums that are rounded stay below). A change of all scores by that much changes LSE by as much; the exponentials (2 ulp) and their sum in
// f32 are within 1e-5. The largest score is rounded with its bias, in units of log2, on its way back from these, and in the sum with
// the logarithm: by half an ulp each time, four times 2^-24 of LSE. O is off, to first order, no further than the scores, times the
// mean distance of the values from O: Beside::score_terms.
Reference make_reference(const Spec& spec, const Inputs& inputs, const std::vector<Cell>& cells, size_t sets = 1,
                         Beside beside = Beside::errors);
Reference make_reference(const Spec& spec, const Inputs& inputs, size_t sets = 1, Beside beside = Beside::errors);

}  // namespace ladder
