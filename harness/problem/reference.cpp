#include "harness/problem/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "common/emulator/multiply.hpp"
#include "harness/base/parallel.hpp"
#include "harness/stages/blocks.hpp"

namespace ladder {
namespace {

constexpr double AFFORDABLE_MACS = double(1 << 30);  // multiply-adds of Q K^T: a second or so on two cores

// Keys that a row of O is made of, what they and the values have to be multiplied by, and how long the longest finite one is.
struct Head {
  Rows K, V;
  double K_scale = 1, V_scale = 1, largest_key = 0;
  std::vector<float> K_scales, V_scales;  // of each key, or of each column, if it has its own
  // Of keys of bytes that tensor cores multiply: columns of K transposed, [d rounded up][n rounded up], and the powers that they say.
  size_t stride = 0;
  std::vector<float> factors = {}, powers = {};

  Head(const Spec& spec, const Inputs& inputs, int64_t head)
      : K(inputs["K"], head, Rows::transposed_too), V(inputs["V"], head) {
    if (spec.has_token_scales() || spec.has_channel_scales() || spec.has_row_scales()) {
      K_scales = Rows(inputs["K_scales"], head).rows;
      if (!spec.has_row_scales()) V_scales = Rows(inputs["V_scales"], head).rows;
      for (int64_t key = 0; key < K.n; ++key) {
        double squares = 0;
        for (int64_t c = 0; spec.has_channel_scales() && c < K.d; ++c)
          squares += std::pow(double(K.rows[size_t(key * K.d + c)]) * K_scales[size_t(c)], 2);
        K.length[size_t(key)] =
            spec.has_channel_scales() ? std::sqrt(squares) : K.length[size_t(key)] * K_scales[size_t(key)];
      }
    } else if (spec.has_scales()) {
      K_scale = inputs["K_scales"][static_cast<size_t>(head)];
      V_scale = inputs["V_scales"][static_cast<size_t>(head)];
    }
    for (const double length : K.length) {
      if (std::isfinite(length)) largest_key = std::max(largest_key, length);
    }
    if (spec.has_Q_scales()) keep_factors();
  }

 private:
  void keep_factors() {
    stride = static_cast<size_t>((K.n + 7) / 8 * 8);
    const auto [zero, power_of_zero] = emulator::factor_e4m3(0);
    factors.assign(depth() * stride, zero);
    powers.assign(depth() * stride, power_of_zero);
    for (int64_t c = 0; c < K.d; ++c) {
      for (int64_t i = 0; i < K.n; ++i) {
        const size_t to = static_cast<size_t>(c) * stride + static_cast<size_t>(i);
        const auto [value, power] = emulator::factor_e4m3(K.transposed[static_cast<size_t>(c * K.n + i)]);
        factors[to] = value, powers[to] = power;
      }
    }
  }
  size_t depth() const {
    return (static_cast<size_t>(K.d) + emulator::DEPTH_E4M3 - 1) / emulator::DEPTH_E4M3 * emulator::DEPTH_E4M3;
  }

 public:
  // scores[stride] of a query, as a tensor core adds them: 32 products at a time, of which it keeps 14 bits.
  void add_scores(std::span<const float> query, std::vector<float>& scores) const {
    scores.assign(stride, 0);
    std::vector<emulator::Factor> of_query(depth(), emulator::factor_e4m3(0));
    std::ranges::transform(query, of_query.begin(), emulator::factor_e4m3);
    for (size_t k = 0; k < depth(); k += emulator::DEPTH_E4M3) {
      emulator::add_products_e4m3(&of_query[k], &factors[k * stride], &powers[k * stride], stride, scores.data(),
                                  stride);
    }
  }
};

// sum[i] += product(factors[row], values[row * stride + i]), one row after the other: a row of S or O, of K transposed or V.
template <class T, class Product>
inline __attribute__((always_inline)) void add_rows(std::span<T> sums, std::span<const T> factors,
                                                    const float* __restrict values, int64_t stride, Product product) {
  T* const __restrict sum = sums.data();
  const int64_t count = std::ssize(sums), rows = std::ssize(factors);
  constexpr int64_t TOGETHER = 8;  // so that a sum is loaded and stored once for as many products
  int64_t row = 0;
  for (; row + TOGETHER <= rows; row += TOGETHER, values += TOGETHER * stride) {
    for (int64_t i = 0; i < count; ++i) {
      T each = sum[i];
      for (int64_t k = 0; k < TOGETHER; ++k) each += product(factors[row + k], T(values[k * stride + i]));
      sum[i] = each;
    }
  }
  for (; row < rows; ++row, values += stride) {
    for (int64_t i = 0; i < count; ++i) sum[i] += product(factors[row], T(values[i]));
  }
}
}  // namespace

// With wider vectors where there are any, and the same to the last bit: no clone has an FMA.
#if defined(__x86_64__)
#define LADDER_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LADDER_CLONES
#endif
LADDER_CLONES void add_product(std::span<double> sum, std::span<const double> factors, const float* values,
                               int64_t stride) {
  add_rows(sum, factors, values, stride, std::multiplies());
}
LADDER_CLONES void add_product(std::span<float> sum, std::span<const float> factors, const float* values,
                               int64_t stride) {
  add_rows(sum, factors, values, stride, std::multiplies());
}
LADDER_CLONES void add_magnitudes(std::span<double> sum, std::span<const double> factors, const float* values,
                                  int64_t stride, int power) {
  if (power == 1) {
    add_rows(sum, factors, values, stride, [](double factor, double value) { return std::abs(factor * value); });
  } else {
    add_rows(sum, factors, values, stride,
             [](double factor, double value) { return (factor * value) * (factor * value); });
  }
}

namespace {

// Of a log-sum-exp, whose maximum and sum meet as numbers of its size: that of a bias or a sink where there is one.
double error_of_size(double lse) {
  return std::isfinite(lse) ? 0x1p-22 * std::abs(lse) : 0;
}

// What one row gives.
struct RowResult {
  double lse, lse_tolerance, score_term = 0;
};

// The maxima that the plain attention's weights stand relative to: a row's own, and two that are off by 1/3 and 2/3 log2 units. How a
// row's few large weights are rounded is a matter of luck: in f16 these are rounded as others are, in bf16 the second is nearly
// exact, so in other types it is off by another amount in each row.
using Staleness = std::array<float, 3>;
Staleness staleness_of(Element element, int64_t row) {
  const float second =
      element == Element::f16
          ? 1.25992105f
          : std::exp2(static_cast<float>(std::fmod(static_cast<double>(row + 1) * 0.6180339887498949, 1.0)));
  return {1.0f, second, 1.58740105f};
}

// The errors of the plain attention so far, for each of these.
struct Errors {
  using Each = std::array<double, std::tuple_size_v<Staleness>>;
  Each max = {}, squares = {}, squares_of_rows = {};  // the last: of what a row adds to the squares, the square
  int64_t elements = 0;

  void add(const Errors& other) {
    for (size_t i = 0; i < max.size(); ++i) {
      max[i] = std::max(max[i], other.max[i]);
      squares[i] += other.squares[i];
      squares_of_rows[i] += other.squares_of_rows[i];
    }
    elements += other.elements;
  }
  // Where one of them is exact, as with a single key that outweighs all, the others' errors come of a few weights. Their mean
  // is luck: it is 0 then, and says nothing.
  Reference::Baseline worst() const {
    const auto [least, most] = std::ranges::minmax_element(squares);
    return {std::ranges::max(max),
            *least < *most / 2500 ? 0 : std::sqrt(*most / static_cast<double>(std::max<int64_t>(elements, 1))),
            *most > 0 ? std::sqrt(squares_of_rows[static_cast<size_t>(most - squares.begin())]) / *most : 0};
  }
};

template <class T>
Modifiers::Changed<T> changed(const Modifiers& modifiers, T score, int64_t distance) {
  T derivative = 1;
  if (modifiers.softcap > 0) {
    T tanh = std::tanh(score / static_cast<T>(modifiers.softcap));
    if constexpr (std::is_same_v<T, float>) tanh = static_cast<float>(rounded(Element::f16, tanh));
    score = tanh * static_cast<T>(modifiers.softcap);
    derivative = 1 - tanh * tanh;
  }
  return {score - static_cast<T>(modifiers.slope) * static_cast<T>(std::abs(distance)), derivative};
}

// Computes one row of O in double, and adds up how wrong the plain attention is on it.
struct RowSolver {
  const Spec& spec;
  const Head& head;
  Beside beside;
  std::vector<double> S = std::vector<double>(spec.keys()), query_f64 = std::vector<double>(spec.d);
  std::vector<float> S_f32 = std::vector<float>(spec.keys()), query_f32 = std::vector<float>(spec.d);
  std::vector<float> P = S_f32, plain = query_f32, plain_rounded = plain, of_bytes = {};
  std::vector<double> half_steps = query_f64;
  Errors errors = {};

  // visit(a run, where its first score is)
  template <class Visit>
  static int64_t for_each(const KeyRuns& runs, const Visit& visit) {
    int64_t at = 0;
    for (const Keys& run : runs) visit(run, std::exchange(at, at + run.size()));
    return at;
  }

  // `own` is where the query would be among the keys.
  RowResult solve(const Tensor& Q, double Q_scale, int64_t query, const KeyRuns& runs, int64_t own,
                  const Modifiers& modifiers, double* exact) {
    const int64_t d = spec.d, keys = for_each(runs, [](const Keys&, int64_t) {});
    std::fill(exact, exact + d, 0.0);
    if (keys == 0) {
      errors.elements += d;
      return {.lse = modifiers.sink.value_or(-std::numeric_limits<double>::infinity()),
              .lse_tolerance = modifiers.sink ? 1e-5 + error_of_size(*modifiers.sink) : 0};
    }
    std::ranges::fill(S, 0.0);
    std::ranges::fill(S_f32, 0.0f);
    constexpr int64_t BLOCK = 1024;  // of scores: 12 KiB, so that they stay in L1 while K streams by
    Q.read(query, query_f32);
    std::ranges::copy(query_f32, query_f64.begin());
    // Beside bytes that are f16 in a kernel, queries and weights are, too. Of four bits weights times V's scales are bf16.
    const bool of_keys = spec.has_token_scales(), of_columns = spec.has_channel_scales(),
               are_bytes = spec.has_Q_scales();
    const bool become_f16 = spec.has_scales() && !are_bytes && !Spec::is_nibble(spec.kv_type);
    const Element multiplied = become_f16                                           ? Element::f16
                               : spec.has_scales() && Spec::is_nibble(spec.kv_type) ? Element::bf16
                                                                                    : spec.v_type();
    // A column's scale of K is its query's, and those of a head relative to the largest, so that a query's numbers do not grow.
    float unit = 1;
    if (of_columns) {
      if (const float most = std::ranges::max(head.K_scales); most > 0) unit = std::exp2(float(std::ilogb(most) + 1));
      for (int64_t c = 0; c < d; ++c) {
        query_f64[c] *= head.K_scales[c];
        query_f32[c] *= head.K_scales[c] / unit;
      }
    }
    if (become_f16) info(multiplied).round(query_f32);
    for (float& number : query_f32) number *= unit;
    const bool adds_plainly = beside != Beside::nothing && !are_bytes;
    if (are_bytes && beside != Beside::nothing) head.add_scores(query_f32, of_bytes);
    for_each(runs, [&](const Keys& run, int64_t at) {
      for (int64_t j = 0; j < run.size(); j += BLOCK) {
        const auto block = std::min(BLOCK, run.size() - j);
        const float* const from = &head.K.transposed[run.first + j];
        add_product({&S[at + j], size_t(block)}, query_f64, from, head.K.n);
        if (adds_plainly) add_product({&S_f32[at + j], size_t(block)}, query_f32, from, head.K.n);
        if (are_bytes && beside != Beside::nothing)
          std::copy_n(&of_bytes[size_t(run.first + j)], block, &S_f32[at + j]);
      }
    });
    const auto scale_keys = [&](auto& values, const std::vector<float>& scales) {
      for_each(runs, [&](const Keys& run, int64_t at) {
        for (int64_t j = 0; !of_columns && !scales.empty() && j < run.size(); ++j)
          values[at + j] *= scales[run.first + j];
      });
    };
    scale_keys(S, head.K_scales);
    scale_keys(S_f32, head.K_scales);
    // sum += the rows of V times these factors.
    const auto add_values = [&]<class T>(std::vector<T>& factors, T* sum) {
      for_each(runs, [&](const Keys& run, int64_t at) {
        add_product(std::span(sum, size_t(d)), {&factors[at], size_t(run.size())}, &head.V.rows[run.first * d], d);
      });
    };
    const double scale = spec.scale() * head.K_scale * Q_scale;
    const bool modified = modifiers.softcap > 0 || modifiers.slope != 0;
    double exact_max = modifiers.sink.value_or(-std::numeric_limits<double>::infinity());
    auto plain_max = static_cast<float>(exact_max);
    double largest_tanh = 0;  // times the softcap
    for_each(runs, [&](const Keys& run, int64_t at) {
      for (int64_t j = at; j < at + run.size(); ++j) {
        S[j] *= scale;
        S_f32[j] *= static_cast<float>(scale);
        if (modified) {
          const int64_t distance = run.first + j - at - own;
          S[j] = modifiers.change(S[j], distance).score;
          S_f32[j] = modifiers.change(S_f32[j], distance).score;
          largest_tanh =
              std::max(largest_tanh, std::abs(S[j] + modifiers.slope * static_cast<double>(std::abs(distance))));
        }
        exact_max = std::max(exact_max, S[j]);  // of the numbers: NaN reaches its weight below
        plain_max = std::max(plain_max, S_f32[j]);
      }
    });
    // The logarithm of nothing but zeros is -infinity, though O is NaN then.
    const auto scores = std::span(S).first(size_t(keys));
    const bool is_none = exact_max == -std::numeric_limits<double>::infinity() &&
                         std::ranges::none_of(scores, [](double score) { return std::isnan(score); });
    double exact_sum = modifiers.sink ? std::exp(*modifiers.sink - exact_max) : 0;
    for (int64_t j = 0; j < keys; ++j) {
      S[j] = std::exp(S[j] - exact_max);
      exact_sum += S[j];
    }

    if (of_keys) {
      std::vector<double> scaled = S;
      scale_keys(scaled, head.V_scales);
      add_values(scaled, exact);
    } else {
      add_values(S, exact);
    }
    double query_square = 0;
    // A query's numbers beside keys that are as long as what they stand for.
    const auto without_scale = [&](int64_t c) {
      return !of_columns ? 1 : head.K_scales[c] > 0 ? 1.0 / head.K_scales[c] : 0;
    };
    const auto V_scale_of = [&](int64_t c) { return of_columns ? head.V_scales[c] : head.V_scale; };
    for (int64_t c = 0; c < d; ++c) {
      query_square += std::pow(query_f32[c] * without_scale(c), 2);
      exact[c] = exact[c] * V_scale_of(c) / exact_sum;
    }
    RowResult result{.lse = is_none ? exact_max : exact_max + std::log(exact_sum), .lse_tolerance = 0};
    if (beside == Beside::nothing) return result;

    float plain_sum = modifiers.sink ? std::exp(static_cast<float>(*modifiers.sink) - plain_max) : 0;
    for (int64_t j = 0; j < keys; ++j) {
      S_f32[j] = std::exp(S_f32[j] - plain_max);
      plain_sum += S_f32[j];
    }
    for (int64_t c = 0; c < d; ++c) half_steps[c] = half_step(spec.o_type, exact[c]);
    Staleness staleness = staleness_of(multiplied, query);
    // With a scale the largest weight of a part of the keys is no 1 that is exact any more, and of alike scales all parts' are wrong alike.
    // So once each of 32 keys has a maximum of its own.
    constexpr int64_t PART = 32;
    std::vector<float> largest_of_part(static_cast<size_t>(of_keys ? (keys + PART - 1) / PART : 0), 0x1p-126f);
    for (int64_t j = 0; of_keys && j < keys; ++j)
      largest_of_part[j / PART] = std::max(largest_of_part[j / PART], S_f32[j]);
    if (of_keys) staleness.back() = 1;
    for (size_t i = 0; i < staleness.size(); ++i) {
      const bool in_parts = of_keys && i + 1 == staleness.size();
      for (int64_t j = 0; j < keys; ++j) P[j] = S_f32[j] * staleness[i];
      for (int64_t j = 0; in_parts && j < keys; ++j) P[j] /= largest_of_part[j / PART];
      scale_keys(P, head.V_scales);
      // In f16 not all of these fit, and a kernel sees to it that they do: the largest is 1 to 2.
      float largest = of_keys && become_f16 ? *std::max_element(P.begin(), P.begin() + keys) : 1;
      largest = largest > 0 && std::isfinite(largest) ? std::exp2(static_cast<float>(std::ilogb(largest))) : 1;
      for (int64_t j = 0; of_keys && j < keys; ++j) P[j] /= largest;
      info(multiplied).round({P.data(), size_t(keys)});
      for (int64_t j = 0; of_keys && j < keys; ++j) P[j] *= largest * (in_parts ? largest_of_part[j / PART] : 1);
      std::fill(plain.begin(), plain.end(), 0.0f);
      add_values(P, plain.data());
      for (int64_t c = 0; c < d; ++c)
        plain[c] = plain[c] * static_cast<float>(V_scale_of(c)) / (plain_sum * staleness[i]);
      plain_rounded = plain;
      info(spec.o_type).round(plain_rounded);
      double squares = 0;
      for (int64_t c = 0; c < d; ++c) {
        if (!std::isfinite(exact[c])) continue;
        const double error = plain_rounded[c] - exact[c];
        errors.max[i] = std::max(errors.max[i], std::abs(plain[c] - exact[c]) + half_steps[c]);
        squares += error * error;
      }
      errors.squares[i] += squares;
      errors.squares_of_rows[i] += squares * squares;
    }
    errors.elements += std::count_if(exact, exact + d, [](double value) { return std::isfinite(value); });

    const double largest_score = std::sqrt(query_square) * head.largest_key * scale;
    double score_error = 0x1p-22 * (1 + static_cast<double>(d) / 16) * largest_score;
    if (become_f16) {  // and what rounding the query takes from it
      double squares = 0;
      for (int64_t c = 0; c < d; ++c) squares += std::pow((query_f64[c] - query_f32[c]) * without_scale(c), 2);
      score_error += std::sqrt(squares) * head.largest_key * scale;
    }
    // A GPU's tanh is wrong by 2^-11 of its value at most.
    if (modifiers.softcap > 0) score_error += 0x1p-11 * largest_tanh;
    if (!std::isfinite(score_error)) score_error = 0;  // the inputs are not; nor is the answer
    result.lse_tolerance = 1e-5 + score_error + error_of_size(result.lse);
    const double plain_off = std::abs(plain_max + std::log(plain_sum) - result.lse);
    if (are_bytes && std::isfinite(plain_off)) result.lse_tolerance += 2 * plain_off;
    if (beside == Beside::score_terms) {
      std::vector<double> distance(d);
      for_each(runs, [&](const Keys& run, int64_t at) {
        for (int64_t j = 0; j < run.size(); ++j) {
          const std::span<const float> V = head.V.row(run.first + j);
          const double scale_of_V = of_keys ? head.V_scales[run.first + j] : head.V_scale;
          for (int64_t c = 0; c < d; ++c)
            distance[c] += S[at + j] * std::abs(V[c] * (of_columns ? head.V_scales[c] : scale_of_V) - exact[c]);
        }
      });
      for (const double value : distance) {
        // Of the numbers: NaN, where O is none, is never the larger one.
        result.score_term = std::max(result.score_term, score_error * value / exact_sum);
      }
    }
    return result;
  }
};

}  // namespace

Rows::Rows(const Tensor& tensor, int64_t unit, bool with_transposed)
    : n(tensor.spec().rows_of(unit)), d(tensor.spec().columns()), rows(n * d) {
  tensor.read(tensor.spec().index(unit, 0), rows);
  if (!with_transposed) return;
  transposed.resize(n * d);
  length.resize(n);
  parallel_for(n, 64, [&](int64_t first, int64_t last) {  // so many lie side by side in the cache
    for (int64_t c = 0; c < d; ++c) {
      for (int64_t i = first; i < last; ++i) {
        transposed[c * n + i] = rows[i * d + c];
        length[i] += std::pow(rows[i * d + c], 2);
      }
    }
    for (int64_t i = first; i < last; ++i) length[i] = std::sqrt(length[i]);
  });
}

Modifiers::Changed<double> Modifiers::change(double score, int64_t distance) const {
  return changed(*this, score, distance);
}
Modifiers::Changed<float> Modifiers::change(float score, int64_t distance) const {
  return changed(*this, score, distance);
}

Modifiers modifiers_of(const Spec& spec, const Inputs& inputs, int64_t unit) {
  const auto head = static_cast<size_t>(unit % spec.heads);
  Modifiers modifiers{.softcap = spec.softcap, .sink = {}};
  if (spec.alibi) modifiers.slope = inputs["slopes"][head];
  if (spec.sink) modifiers.sink = inputs["sinks"][head];
  return modifiers;
}

int64_t key_of_query(const Spec& spec, int64_t sequence, int64_t query) {
  return query + keys_of(spec, sequence) - queries_of(spec, sequence);
}

void for_each_run_of_keys(const Spec& spec, int64_t sequence, int64_t query,
                          const std::function<void(const Keys&)>& visit) {
  const auto [first, end] = seen_otherwise(spec, sequence, query);
  if (!spec.blocks) {
    if (first < end) visit({first, end});
    return;
  }
  Keys run{first, first};
  const auto see = [&](int64_t from, int64_t to) {
    if (from != run.last && run.first < run.last) visit(run);
    run = {from == run.last ? run.first : from, to};
  };
  const int64_t row = query % Blocks::QUERIES, q_block = query / Blocks::QUERIES, size = spec.blocks.keys;
  for (int64_t block = first / size; block * size < end; ++block) {
    const uint64_t draw = blocks::draw(spec, sequence, q_block, block);
    const blocks::Kind kind = blocks::drawn(spec, draw);
    const int64_t from = std::max<int64_t>(first, block * size), to = std::min<int64_t>(end, (block + 1) * size);
    if (kind == blocks::Kind::whole) see(from, to);
    for (int64_t key = from; kind == blocks::Kind::part && key < to; ++key) {
      if (blocks::pair(draw, row, key % size)) see(key, key + 1);
    }
  }
  if (run.first < run.last) visit(run);
}

KeyRuns runs_of_keys(const Spec& spec, int64_t sequence, int64_t query) {
  KeyRuns runs;
  for_each_run_of_keys(spec, sequence, query, [&](const Keys& run) { runs.push_back(run); });
  return runs;
}

KeyRuns runs_of_queries(const Spec& spec, int64_t sequence, int64_t key) {
  const int64_t queries = queries_of(spec, sequence);
  KeyRuns runs;
  for (int64_t query = 0; query < queries; ++query) {
    bool sees = false;
    for_each_run_of_keys(spec, sequence, query, [&](const Keys& run) { sees |= run.has(key); });
    if (!sees) continue;
    if (runs.empty() || runs.back().last < query) runs.push_back({query, query});
    runs.back().last = query + 1;
  }
  return runs;
}

std::vector<Cell> choose_cells(const Spec& spec) {
  const int64_t units = spec.batch_heads(), n = spec.n;
  const double macs_of_row = double(spec.keys()) * spec.d;
  std::vector<Cell> cells;
  const auto add = [&](int64_t unit, int64_t row) {
    const int64_t rows = spec.lens_q.count > 0 ? spec.lens_q.of[unit / spec.heads] : n;
    if (row >= 0 && row < rows) cells.push_back({unit, row});
  };
  const bool is_affordable = double(units * n) * macs_of_row <= AFFORDABLE_MACS;
  constexpr int64_t MANY = 64, OF_EACH = 32;  // units, and rows: who takes which tile shows in any of its rows
  if (is_affordable && (units <= MANY || n <= OF_EACH || spec.lens_q.count > 0)) {
    for (int64_t row = 0; row < units * n; ++row) add(row / n, row % n);
    return cells;
  }
  const int64_t budget = is_affordable
                             ? units * OF_EACH
                             : std::clamp<int64_t>(static_cast<int64_t>(AFFORDABLE_MACS / macs_of_row), 64, 2048);
  const int64_t heads = std::min<int64_t>(units, budget / 16);
  // Tiles are 16 rows of a warp and 64 or 128 rows of a block.
  const int64_t edges[] = {0, 15, 16, 63, 64, 127, 128, n / 2, n - 129, n - 128, n - 65, n - 64, n - 16, n - 1};
  for (int64_t i = 0; i < heads; ++i) {
    const int64_t unit = heads == 1 ? 0 : i * (units - 1) / (heads - 1);  // first and last included
    for (const int64_t edge : edges) add(unit, edge);
    const int64_t spread = budget / heads - std::ssize(edges);
    for (int64_t k = 0; k < spread; ++k) {
      // Steps by the golden ratio visit a head evenly, and over the heads nearly every residue of a tile's size.
      const double fraction = std::fmod((i * spread + k) * 0.6180339887498949, 1.0);
      add(unit, static_cast<int64_t>(fraction * n));
    }
  }
  std::ranges::sort(cells);
  cells.erase(std::unique(cells.begin(), cells.end()), cells.end());
  return cells;
}

Reference make_reference(const Spec& spec, const Inputs& inputs, size_t sets, Beside beside) {
  return make_reference(spec, inputs, choose_cells(spec), sets, beside);
}

Reference make_reference(const Spec& spec, const Inputs& inputs, const std::vector<Cell>& cells, size_t sets,
                         Beside beside) {
  const Tensor& Q = inputs["Q"];
  const int64_t group = spec.heads / spec.key_heads();
  const auto scale_of_Q = [&](const Cell& cell) {
    if (!spec.has_Q_scales() && !spec.has_row_scales()) return 1.0;
    const Tensor& scales = inputs["Q_scales"];
    return scales[static_cast<size_t>(scales.spec().index(cell.unit, spec.has_row_scales() ? cell.row : 0))];
  };
  Reference reference;
  reference.answers = {{.output = "O", .columns = spec.d, .cells = cells, .group = group, .sets = sets},
                       {.output = "LSE", .columns = 1, .cells = cells, .group = group, .sets = sets}};
  Reference::Answer &O = reference.answers[0], &LSE = reference.answers[1];
  if (spec.has_Q_scales()) O.rms_factor = 2;
  O.values.resize(cells.size() * spec.d);
  LSE.values.resize(cells.size());
  LSE.row_tolerance.resize(cells.size());
  if (beside == Beside::score_terms) O.row_tolerance.resize(cells.size());
  std::vector<Errors> errors(sets);
  constexpr int64_t ROWS_AT_A_TIME = 2;  // of a large problem a head has 16 in all
  for (size_t begin = 0; begin < cells.size();) {
    const int64_t key_head = cells[begin].unit / group;
    const auto same_head = [&](const Cell& cell) { return cell.unit / group == key_head; };
    const size_t end = std::find_if_not(cells.begin() + begin, cells.end(), same_head) - cells.begin();
    const Head head(spec, inputs, key_head);
    // Added up in their order, whoever is done first: the same problem has the same tolerances to the last bit.
    std::vector<Errors> parts((end - begin + ROWS_AT_A_TIME - 1) / ROWS_AT_A_TIME);
    parallel_for(end - begin, ROWS_AT_A_TIME, [&](int64_t first, int64_t last) {
      RowSolver solver{spec, head, beside};
      for (size_t i = begin + first; i < begin + last; ++i) {
        const auto [unit, row] = cells[i];
        const int64_t sequence = unit / spec.heads;
        const RowResult result =
            solver.solve(Q, scale_of_Q(cells[i]), Q.spec().index(unit, row), runs_of_keys(spec, sequence, row),
                         key_of_query(spec, sequence, row), modifiers_of(spec, inputs, unit), &O.values[i * spec.d]);
        LSE.values[i] = result.lse;
        LSE.row_tolerance[i] = result.lse_tolerance;
        if (beside == Beside::score_terms) O.row_tolerance[i] = result.score_term;
      }
      parts[static_cast<size_t>(first / ROWS_AT_A_TIME)] = solver.errors;
    });
    for (const Errors& part : parts) errors[O.set_of(begin)].add(part);
    begin = end;
  }
  for (const Errors& each : errors) O.baseline.push_back(each.worst());
  return reference;
}

}  // namespace ladder
