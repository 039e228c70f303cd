#include "harness/reference.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "harness/parallel.hpp"

namespace ladder {
namespace {

constexpr double AFFORDABLE_MACS = double(1 << 30);  // multiply-adds of Q K^T: a second or so on two cores

std::vector<int64_t> choose_rows(const Shape& shape, bool& all_rows) {
  const int64_t total = shape.batch_heads() * shape.n;
  all_rows = double(total) * shape.n * shape.d <= AFFORDABLE_MACS;
  std::vector<int64_t> rows;
  if (all_rows) {
    rows.resize(total);
    for (int64_t row = 0; row < total; ++row) rows[row] = row;
    return rows;
  }
  const auto budget = std::clamp<int64_t>(AFFORDABLE_MACS / (double(shape.n) * shape.d), 64, 2048);
  const int64_t heads = std::min<int64_t>(shape.batch_heads(), budget / 16);
  const int64_t n = shape.n;
  // Tiles are 16 rows of a warp and 64 or 128 rows of a block.
  const int64_t edges[] = {0, 15, 16, 63, 64, 127, 128, n / 2, n - 129, n - 128, n - 65, n - 64, n - 16, n - 1};
  for (int64_t i = 0; i < heads; ++i) {
    const int64_t head = heads == 1 ? 0 : i * (shape.batch_heads() - 1) / (heads - 1);  // first and last included
    for (const int64_t edge : edges) {
      if (edge >= 0 && edge < n) rows.push_back(head * n + edge);
    }
    const int64_t spread = budget / heads - std::ssize(edges);
    for (int64_t k = 0; k < spread; ++k) {
      // Steps by the golden ratio visit a head evenly, and every residue of every tile size over the heads.
      const double fraction = std::fmod((i * spread + k) * 0.6180339887498949, 1.0);
      rows.push_back(head * n + std::min<int64_t>(n - 1, fraction * n));
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// One head's K and V as floats (exact). K is transposed, so that both products below are sums of scaled rows.
struct Head {
  std::vector<float> K_transposed;  // [d, n]
  std::vector<float> V;             // [n, d]
  double largest_key = 0;           // largest |k|
};

Head load_head(const Shape& shape, const Inputs& inputs, int64_t head) {
  const int64_t n = shape.n, d = shape.d, offset = head * n * d;
  Head loaded{std::vector<float>(n * d), std::vector<float>(n * d)};
  std::vector<double> key_squares(n);
  parallel_for(n, 256, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t c = 0; c < d; ++c) {
        loaded.K_transposed[c * n + j] = to_float(inputs.K[offset + j * d + c]);
        loaded.V[j * d + c] = to_float(inputs.V[offset + j * d + c]);
        key_squares[j] += std::pow(loaded.K_transposed[c * n + j], 2);
      }
    }
  });
  loaded.largest_key = std::sqrt(*std::ranges::max_element(key_squares));
  return loaded;
}

// sum[i] += factor * values[i]
template <class T>
void add_scaled(T* __restrict sum, T factor, const float* __restrict values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * static_cast<T>(values[i]);
}

float rounded(double value) {
  return to_float(to_f16(static_cast<float>(value)));
}

// Computes one row of O in double into `exact`, and its LSE; `keys` are visible. Returns the f16 implementation's largest
// error on it.
struct RowSolver {
  const Shape& shape;
  const Head& head;
  std::vector<double> S;
  std::vector<float> P;
  std::vector<float> naive;

  RowSolver(const Shape& shape, const Head& head) : shape(shape), head(head), S(shape.n), P(shape.n), naive(shape.d) {}

  double solve(const f16* query, int64_t keys, double* exact, double& lse, double& lse_tolerance) {
    const int64_t n = shape.n, d = shape.d;
    std::fill(S.begin(), S.end(), 0.0);
    constexpr int64_t BLOCK = 1024;  // of scores: 8 KiB, so that they stay in L1 while K streams by
    for (int64_t j = 0; j < keys; j += BLOCK) {
      for (int64_t c = 0; c < d; ++c) {
        add_scaled<double>(&S[j], to_float(query[c]), &head.K_transposed[c * n + j], std::min(BLOCK, keys - j));
      }
    }
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    for (double& s : S) s *= scale;

    double exact_max = -std::numeric_limits<double>::infinity();
    float naive_max = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < keys; ++j) {
      P[j] = rounded(S[j]);  // the f16 implementation's scores
      exact_max = std::max(exact_max, S[j]);
      naive_max = std::max(naive_max, P[j]);
    }
    double exact_sum = 0;
    float naive_sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      S[j] = std::exp(S[j] - exact_max);
      P[j] = std::exp(P[j] - naive_max);
      exact_sum += S[j];
      naive_sum += P[j];
    }
    for (int64_t j = 0; j < keys; ++j) P[j] = rounded(P[j] / naive_sum);

    std::fill(exact, exact + d, 0.0);
    std::fill(naive.begin(), naive.end(), 0.0f);
    for (int64_t j = 0; j < keys; ++j) {
      add_scaled<double>(exact, S[j], &head.V[j * d], d);
      add_scaled<float>(naive.data(), P[j], &head.V[j * d], d);
    }
    lse = exact_max + std::log(exact_sum);
    double query_square = 0, error = 0;
    for (int64_t c = 0; c < d; ++c) {
      query_square += std::pow(to_float(query[c]), 2);
      exact[c] /= exact_sum;
      error = std::max(error, std::abs(rounded(naive[c]) - exact[c]));
    }
    lse_tolerance = 1e-5 + 0x1p-22 * (1 + d / 16) * std::sqrt(query_square) * head.largest_key * scale;
    return error;
  }
};

template <class At>
Comparison compare(const Reference& reference, const At& at) {
  Comparison worst;
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    for (int c = 0; c < reference.d; ++c) {
      const double got = to_float(at(i, c)), expected = reference.row(i)[c];
      const double error = std::abs(got - expected);
      if (error <= worst.max_err) continue;  // false for NaN, which therefore wins
      worst = {error, reference.rows[i], c, got, expected};
      if (std::isnan(error)) return worst;
    }
  }
  return worst;
}

}  // namespace

Reference make_reference(const Shape& shape, const Inputs& inputs) {
  Reference reference;
  reference.d = shape.d;
  reference.rows = choose_rows(shape, reference.all_rows);
  reference.output.resize(reference.rows.size() * shape.d);
  reference.lse.resize(reference.rows.size());
  reference.lse_tolerance.resize(reference.rows.size());
  std::mutex mutex;
  for (size_t begin = 0; begin < reference.rows.size();) {
    const int64_t head_index = reference.rows[begin] / shape.n;
    const auto same_head = [&](int64_t row) { return row / shape.n == head_index; };
    const size_t end =
        std::find_if_not(reference.rows.begin() + begin, reference.rows.end(), same_head) - reference.rows.begin();
    const Head head = load_head(shape, inputs, head_index);
    parallel_for(end - begin, 16, [&](int64_t first, int64_t last) {
      RowSolver solver(shape, head);
      double error = 0;
      for (int64_t i = first; i < last; ++i) {
        const size_t row = begin + i;
        const int64_t keys = shape.causal ? reference.rows[row] % shape.n + 1 : shape.n;
        error = std::max(error,
                         solver.solve(&inputs.Q[reference.rows[row] * shape.d], keys, &reference.output[row * shape.d],
                                      reference.lse[row], reference.lse_tolerance[row]));
      }
      const std::scoped_lock lock(mutex);
      reference.naive_error = std::max(reference.naive_error, error);
    });
    begin = end;
  }
  return reference;
}

Comparison compare_to_reference(const Reference& reference, std::span<const f16> output) {
  return compare(reference, [&](size_t i, int c) { return output[reference.rows[i] * reference.d + c]; });
}

Comparison compare_rows_to_reference(const Reference& reference, std::span<const f16> rows) {
  return compare(reference, [&](size_t i, int c) { return rows[i * reference.d + c]; });
}

}  // namespace ladder
