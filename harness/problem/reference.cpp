#include "harness/problem/reference.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "harness/base/parallel.hpp"

namespace ladder {
namespace {

constexpr double AFFORDABLE_MACS = double(1 << 30);  // multiply-adds of Q K^T: a second or so on two cores

// One head's K and V as floats (exact). K is transposed, so that both products below are sums of scaled rows.
struct Head {
  std::vector<float> K_transposed;  // [d, n]
  std::vector<float> V;             // [n, d]
  double largest_key = 0;           // largest finite |k|
};

Head load_head(const Shape& shape, const Inputs& inputs, int64_t head) {
  const int64_t n = shape.n, d = shape.d, offset = head * n * d;
  const std::span<const f16> K = inputs.half("K"), V = inputs.half("V");
  Head loaded{std::vector<float>(n * d), std::vector<float>(n * d)};
  std::vector<double> key_squares(n);
  parallel_for(n, 256, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t c = 0; c < d; ++c) {
        loaded.K_transposed[c * n + j] = to_float(K[offset + j * d + c]);
        loaded.V[j * d + c] = to_float(V[offset + j * d + c]);
        key_squares[j] += std::pow(loaded.K_transposed[c * n + j], 2);
      }
    }
  });
  for (const double square : key_squares) {
    if (std::isfinite(square)) loaded.largest_key = std::max(loaded.largest_key, std::sqrt(square));
  }
  return loaded;
}

// sum[i] += factors[row] * values[row * stride + i], one row after the other: a row of S or O, of K transposed or V.
template <class T>
inline __attribute__((always_inline)) void add_rows(T* __restrict sum, int64_t count, const T* factors, int64_t rows,
                                                    const float* __restrict values, int64_t stride) {
  constexpr int64_t TOGETHER = 8;  // so that a sum is loaded and stored once for as many products
  int64_t row = 0;
  for (; row + TOGETHER <= rows; row += TOGETHER, values += TOGETHER * stride) {
    for (int64_t i = 0; i < count; ++i) {
      T each = sum[i];
      for (int64_t k = 0; k < TOGETHER; ++k) each += factors[row + k] * static_cast<T>(values[k * stride + i]);
      sum[i] = each;
    }
  }
  for (; row < rows; ++row, values += stride) {
    for (int64_t i = 0; i < count; ++i) sum[i] += factors[row] * static_cast<T>(values[i]);
  }
}
// With wider vectors where there are any, and the same to the last bit: no clone has an FMA.
#if defined(__x86_64__)
#define LADDER_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LADDER_CLONES
#endif
LADDER_CLONES void add_product(std::span<double> sum, std::span<const double> factors, const float* values,
                               int64_t stride) {
  add_rows(sum.data(), std::ssize(sum), factors.data(), std::ssize(factors), values, stride);
}
LADDER_CLONES void add_product(std::span<float> sum, std::span<const float> factors, const float* values,
                               int64_t stride) {
  add_rows(sum.data(), std::ssize(sum), factors.data(), std::ssize(factors), values, stride);
}

float rounded(double value) {
  return to_float(to_f16(static_cast<float>(value)));
}

// The most that rounding to f16 changes a number of this size.
double half_step(double value) {
  constexpr int STORED_BITS = 10, LEAST_EXPONENT = -14;
  return std::ldexp(0.5, std::max(std::ilogb(value), LEAST_EXPONENT) - STORED_BITS);  // ilogb(0) is far below
}

// What one row gives.
struct RowResult {
  double lse, lse_tolerance, score_term = 0;
};

// The errors of the plain f16 attention so far, for each of the maxima that its weights stand relative to.
constexpr std::array STALENESS = {1.0f, 1.25992105f, 1.58740105f};  // 2^(0, 1/3, 2/3)
struct Errors {
  std::array<double, STALENESS.size()> max = {}, squares = {};
  int64_t elements = 0;

  void add(const Errors& other) {
    for (size_t i = 0; i < STALENESS.size(); ++i) {
      max[i] = std::max(max[i], other.max[i]);
      squares[i] += other.squares[i];
    }
    elements += other.elements;
  }
  Reference::Baseline worst() const {
    return {std::ranges::max(max),
            std::sqrt(std::ranges::max(squares) / static_cast<double>(std::max<int64_t>(elements, 1)))};
  }
};

// Computes one row of O in double, and adds up how wrong the plain f16 attention is on it.
struct RowSolver {
  const Shape& shape;
  const Head& head;
  bool with_score_term;
  std::vector<double> S;
  std::vector<float> S_f32, P;
  std::vector<float> plain, query_f32;
  std::vector<double> query_f64;
  Errors errors;

  RowSolver(const Shape& shape, const Head& head, bool with_score_term)
      : shape(shape),
        head(head),
        with_score_term(with_score_term),
        S(shape.n),
        S_f32(shape.n),
        P(shape.n),
        plain(shape.d),
        query_f32(shape.d),
        query_f64(shape.d) {}

  RowResult solve(const f16* query, int64_t keys, double* exact) {
    const int64_t n = shape.n, d = shape.d;
    std::fill(S.begin(), S.end(), 0.0);
    std::fill(S_f32.begin(), S_f32.end(), 0.0f);
    constexpr int64_t BLOCK = 1024;  // of scores: 12 KiB, so that they stay in L1 while K streams by
    for (int64_t c = 0; c < d; ++c) query_f64[c] = query_f32[c] = to_float(query[c]);
    for (int64_t j = 0; j < keys; j += BLOCK) {
      const auto block = std::min(BLOCK, keys - j);
      add_product({&S[j], size_t(block)}, query_f64, &head.K_transposed[j], n);
      add_product({&S_f32[j], size_t(block)}, query_f32, &head.K_transposed[j], n);
    }
    const double scale = shape.scale();
    double exact_max = -std::numeric_limits<double>::infinity();
    float plain_max = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < keys; ++j) {
      S[j] *= scale;
      S_f32[j] *= static_cast<float>(scale);
      exact_max = std::max(exact_max, S[j]);  // of the numbers: NaN reaches its weight below
      plain_max = std::max(plain_max, S_f32[j]);
    }
    double exact_sum = 0;
    float plain_sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      S[j] = std::exp(S[j] - exact_max);
      S_f32[j] = std::exp(S_f32[j] - plain_max);
      exact_sum += S[j];
      plain_sum += S_f32[j];
    }

    std::fill(exact, exact + d, 0.0);
    add_product({exact, size_t(d)}, {S.data(), size_t(keys)}, head.V.data(), d);
    double query_square = 0;
    for (int64_t c = 0; c < d; ++c) {
      query_square += std::pow(query_f32[c], 2);
      exact[c] /= exact_sum;
    }
    for (size_t i = 0; i < STALENESS.size(); ++i) {
      for (int64_t j = 0; j < keys; ++j) P[j] = rounded(S_f32[j] * STALENESS[i]);
      std::fill(plain.begin(), plain.end(), 0.0f);
      add_product(plain, {P.data(), size_t(keys)}, head.V.data(), d);
      for (int64_t c = 0; c < d; ++c) {
        if (!std::isfinite(exact[c])) continue;
        const float value = plain[c] / (plain_sum * STALENESS[i]);
        const double error = rounded(value) - exact[c];
        errors.max[i] = std::max(errors.max[i], std::abs(value - exact[c]) + half_step(exact[c]));
        errors.squares[i] += error * error;
      }
    }
    errors.elements += std::count_if(exact, exact + d, [](double value) { return std::isfinite(value); });

    double score_error =
        0x1p-22 * (1 + static_cast<double>(d) / 16) * std::sqrt(query_square) * head.largest_key * scale;
    if (!std::isfinite(score_error)) score_error = 0;  // the inputs are not; nor is the answer
    RowResult result{.lse = exact_max + std::log(exact_sum), .lse_tolerance = 1e-5 + score_error};
    if (with_score_term) {
      std::vector<double> distance(d);
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t c = 0; c < d; ++c) distance[c] += S[j] * std::abs(head.V[j * d + c] - exact[c]);
      }
      for (const double value : distance) {
        // Of the numbers: NaN, where O is none, is never the larger one.
        result.score_term = std::max(result.score_term, score_error * value / exact_sum);
      }
    }
    return result;
  }
};

}  // namespace

std::vector<int64_t> choose_rows(const Shape& shape, bool& all_rows) {
  const int64_t total = shape.batch_heads() * shape.n;
  all_rows = double(total) * shape.n * shape.d <= AFFORDABLE_MACS;
  std::vector<int64_t> rows;
  if (all_rows) {
    rows.resize(total);
    std::iota(rows.begin(), rows.end(), int64_t{0});
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
      // Steps by the golden ratio visit a head evenly, and over the heads nearly every residue of a tile's size.
      const double fraction = std::fmod((i * spread + k) * 0.6180339887498949, 1.0);
      rows.push_back(head * n + static_cast<int64_t>(fraction * n));
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

Reference make_reference(const Shape& shape, const Inputs& inputs, size_t sets, bool with_score_terms) {
  bool all_rows = false;
  Reference reference = make_reference(shape, inputs, choose_rows(shape, all_rows), sets, with_score_terms);
  reference.all_rows = all_rows;
  return reference;
}

Reference make_reference(const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows, size_t sets,
                         bool with_score_terms) {
  const std::span<const f16> Q = inputs.half("Q");
  Reference reference;
  reference.n = shape.n;
  reference.sets = sets;
  reference.rows = std::move(rows);
  reference.answers = {{.output = "O", .columns = shape.d}, {.output = "LSE", .columns = 1}};
  Reference::Answer &O = reference.answers[0], &LSE = reference.answers[1];
  O.values.resize(reference.rows.size() * shape.d);
  LSE.values.resize(reference.rows.size());
  LSE.row_tolerance.resize(reference.rows.size());
  if (with_score_terms) O.row_tolerance.resize(reference.rows.size());
  std::vector<Errors> errors(sets);
  constexpr int64_t ROWS_AT_A_TIME = 16;
  for (size_t begin = 0; begin < reference.rows.size();) {
    const int64_t head_index = reference.rows[begin] / shape.n;
    const auto same_head = [&](int64_t row) { return row / shape.n == head_index; };
    const size_t end =
        std::find_if_not(reference.rows.begin() + begin, reference.rows.end(), same_head) - reference.rows.begin();
    const Head head = load_head(shape, inputs, head_index);
    // Added up in their order, whoever is done first: the same problem has the same tolerances to the last bit.
    std::vector<Errors> parts((end - begin + ROWS_AT_A_TIME - 1) / ROWS_AT_A_TIME);
    parallel_for(end - begin, ROWS_AT_A_TIME, [&](int64_t first, int64_t last) {
      RowSolver solver(shape, head, with_score_terms);
      for (int64_t i = first; i < last; ++i) {
        const size_t row = begin + i;
        const int64_t keys = shape.causal ? reference.rows[row] % shape.n + 1 : shape.n;
        const RowResult result = solver.solve(&Q[reference.rows[row] * shape.d], keys, &O.values[row * shape.d]);
        LSE.values[row] = result.lse;
        LSE.row_tolerance[row] = result.lse_tolerance;
        if (with_score_terms) O.row_tolerance[row] = result.score_term;
      }
      parts[static_cast<size_t>(first / ROWS_AT_A_TIME)] = solver.errors;
    });
    for (const Errors& part : parts) errors[reference.set_of(head_index * shape.n)].add(part);
    begin = end;
  }
  for (const Errors& each : errors) O.baseline.push_back(each.worst());
  return reference;
}

}  // namespace ladder
