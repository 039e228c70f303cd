// The reference against the formula written down plainly, and the rules of comparing with it.
#include "harness/problem/reference.hpp"
#include "harness/tests/problem/o_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "harness/problem/problem.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN(),
                INFINITE = std::numeric_limits<float>::infinity();

// One row of the formula and what the headers promise about it, one loop after the other and nothing shared.
struct PlainRow {
  std::vector<double> O;
  double lse = 0, lse_tolerance = 0, score_term = 0;
  // Of the plain f16 attention, for each of its three maxima.
  std::array<double, 3> max_error = {}, error_squares = {};
  int64_t finite = 0;
};

PlainRow plain_attention(const Shape& shape, const Inputs& inputs, int64_t row) {
  const int64_t first_key = row / shape.n * shape.n, d = shape.d;
  const int64_t keys = shape.causal ? row % shape.n + 1 : shape.n;
  const auto element = [&](const char* name) {
    return [values = inputs.half(name), d](int64_t in_row, int64_t column) {
      return double{to_float(values[static_cast<size_t>(in_row * d + column)])};
    };
  };
  const auto Q = element("Q"), K = element("K"), V = element("V");
  PlainRow plain;
  std::vector<double> weights(keys);
  std::vector<float> f32_weights(keys);
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t c = 0; c < d; ++c) {
      const double q = Q(row, c), k = K(first_key + j, c);
      weights[j] += q * k;
      f32_weights[j] += float(q) * float(k);
    }
    weights[j] *= shape.scale();
    f32_weights[j] *= shape.scale();
  }
  const double largest = std::ranges::max(weights);
  const float f32_largest = std::ranges::max(f32_weights);
  double sum = 0;
  float f32_sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (float& weight : f32_weights) f32_sum += weight = std::exp(weight - f32_largest);
  plain.lse = largest + std::log(sum);

  // What scores may be off by: 2^-22 |q| |k| for each 16 products and once more, k the longest key that is a number.
  double query_square = 0, longest = 0;
  for (int64_t c = 0; c < d; ++c) query_square += Q(row, c) * Q(row, c);
  for (int64_t j = 0; j < shape.n; ++j) {
    double square = 0;
    for (int64_t c = 0; c < d; ++c) square += std::pow(K(first_key + j, c), 2);
    if (std::isfinite(square)) longest = std::max(longest, std::sqrt(square));
  }
  const double score_error = (double(d) / 16 + 1) / (1 << 22) * std::sqrt(query_square) * longest * shape.scale();
  plain.lse_tolerance = 1e-5;
  for (const double error : {score_error, std::abs(plain.lse) / (1 << 22)}) {
    if (std::isfinite(error)) plain.lse_tolerance += error;
  }

  const auto in_f16 = [](float value) { return to_float(to_f16(value)); };
  for (int64_t c = 0; c < d; ++c) {
    double exact = 0, distance = 0;
    for (int64_t j = 0; j < keys; ++j) exact += weights[j] * V(first_key + j, c);
    plain.O.push_back(exact /= sum);
    if (!std::isfinite(exact)) continue;
    ++plain.finite;
    for (int64_t j = 0; j < keys; ++j) distance += weights[j] / sum * std::abs(V(first_key + j, c) - exact);
    plain.score_term = std::max(plain.score_term, score_error * distance);
    // Rounded in the worse direction: half a step, 2^-11 of the power of two below the answer; the least is 2^-14.
    const double half_step = std::ldexp(1, std::abs(exact) < 0x1p-14 ? -25 : std::ilogb(exact) - 11);
    for (int third = 0; third < 3; ++third) {
      const float stale = std::exp2(float(third) / 3);
      float output = 0;
      for (int64_t j = 0; j < keys; ++j) output += in_f16(stale * f32_weights[j]) * float(V(first_key + j, c));
      output /= stale * f32_sum;
      plain.max_error[third] = std::max(plain.max_error[third], std::abs(output - exact) + half_step);
      plain.error_squares[third] += std::pow(in_f16(output) - exact, 2);
    }
  }
  return plain;
}

Reference plain_reference(const Shape& shape, const Inputs& inputs, const std::vector<Cell>& cells, size_t sets) {
  Reference reference;
  reference.answers = {{.output = "O", .columns = shape.d, .cells = cells, .sets = sets},
                       {.output = "LSE", .columns = 1, .cells = cells, .sets = sets}};
  Reference::Answer &O = reference.answers[0], &LSE = reference.answers[1];
  O.baseline.resize(sets);
  std::vector<std::array<double, 3>> squares(sets), row_squares(sets);
  std::vector<int64_t> finite(sets);
  for (const Cell& cell : cells) {
    const PlainRow plain = plain_attention(shape, inputs, cell.unit * shape.n + cell.row);
    O.values.insert(O.values.end(), plain.O.begin(), plain.O.end());
    LSE.values.push_back(plain.lse);
    LSE.row_tolerance.push_back(plain.lse_tolerance);
    O.row_tolerance.push_back(plain.score_term);
    const size_t set = static_cast<size_t>(cell.unit) % sets;
    O.baseline[set].max = std::max(O.baseline[set].max, std::ranges::max(plain.max_error));
    for (int third = 0; third < 3; ++third) {
      squares[set][third] += plain.error_squares[third];
      row_squares[set][third] += std::pow(plain.error_squares[third], 2);
    }
    finite[set] += plain.finite;
  }
  for (size_t set = 0; set < sets; ++set) {
    const auto [least, most] = std::ranges::minmax_element(squares[set]);  // where one is exact, the others are luck
    if (finite[set] > 0 && *least >= *most / 2500) O.baseline[set].rms = std::sqrt(*most / double(finite[set]));
    if (*most > 0) O.baseline[set].luck = std::sqrt(row_squares[set][most - squares[set].begin()]) / *most;
  }
  return reference;
}

// What is not the same, in words; nothing if all is, up to the order of sums.
std::string difference(const std::vector<double>& values, const std::vector<double>& expected, const std::string& of) {
  if (values.size() != expected.size()) return fmt::format("{} {}, not {}", values.size(), of, expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = values[i], b = expected[i];
    const bool same =
        std::isfinite(b) ? std::abs(a - b) <= 1e-12 + 1e-10 * std::abs(b) : a == b || (std::isnan(a) && std::isnan(b));
    if (!same) return fmt::format("{} {}: {:.17g}, not {:.17g}", of, i, a, b);
  }
  return "";
}

std::string difference(const Reference& reference, const Reference& expected) {
  if (reference.answers.size() != expected.answers.size()) return "answers";
  for (size_t i = 0; i < expected.answers.size(); ++i) {
    const Reference::Answer &answer = reference.answers[i], &right = expected.answers[i];
    const std::string name{right.output};
    if (answer.output != name || answer.columns != right.columns) return name;
    if (answer.cells != right.cells || answer.sets != right.sets || answer.group != right.group) return name + " cells";
    // In units of 2^-24, so that what is small is compared, too.
    const auto scaled = [](std::vector<double> values) {
      for (double& value : values) value *= 0x1p24;
      return values;
    };
    const auto numbers = [&](const Reference::Answer& of) {
      std::vector<double> all;
      for (const auto& [max, rms, luck] : of.baseline) all.insert(all.end(), {max, rms, luck});
      return scaled(all);
    };
    for (const std::string& found :
         {difference(answer.values, right.values, name),
          difference(scaled(answer.row_tolerance), scaled(right.row_tolerance), name + " row tolerances"),
          difference(numbers(answer), numbers(right), name + " baselines")}) {
      if (!found.empty()) return found;
    }
  }
  return "";
}

std::vector<Cell> all_cells_of(const Shape& shape) {
  std::vector<Cell> cells;
  for (int64_t unit = 0; unit < shape.batch_heads(); ++unit) {
    for (int64_t row = 0; row < shape.n; ++row) cells.push_back({unit, row});
  }
  return cells;
}

std::vector<f16> rounded_to_f16(const Reference& reference) {
  std::vector<f16> output;
  for (const double value : reference["O"].values) output.push_back(to_f16(float(value)));
  return output;
}

}  // namespace

TEST_CASE("the reference is the formula with the errors of a plain f16 attention, for any shape and inputs") {
  struct Case {
    Shape shape;
    std::vector<InputKind> kinds;
    Exponents exponents = {};
    std::vector<Cell> cells = {};  // all, if there are none
  };
  using enum InputKind;
  const std::vector<Case> cases{
      {{.n = 1, .d = 1}, {normal}},
      {{.batch = 2, .heads = 3, .n = 65, .d = 40}, {normal, large_logits, last_tile_max}},
      {{.batch = 2, .heads = 2, .n = 67, .d = 17, .causal = true}, {normal, peaky}},
      {{.heads = 2, .n = 40, .d = 16, .softmax_scale = 0.6f}, {cancelling, edge_weights}},
      {{.heads = 2, .n = 33, .d = 8, .causal = true, .softmax_scale = 0.1f}, {constant_v, ties}},
      // Sums of the first rows, where keys that are not seen are no numbers.
      {{.heads = 4, .n = 49, .d = 16, .causal = true}, {not_finite, nan_key, nan_head, normal}},
      {{.heads = 3, .n = 66, .d = 33}, {not_finite, normal, nan_queries}},
      // Keys shorter than 1, and answers below the least power of two of f16.
      {{.heads = 2, .n = 31, .d = 24}, {normal, balanced}, {{"K", -8}, {"V", -16}}},
      {{.heads = 2, .n = 31, .d = 24}, {normal, ties}, {{"V", -30}}},
      // Some rows alone: of the first head one, of the second none, of the last the first and the last.
      {{.heads = 4, .n = 1100, .d = 9},
       {normal, peaky},
       {},
       {{0, 1024}, {2, 0}, {2, 17}, {2, 1098}, {2, 1099}, {3, 0}, {3, 1099}}},
      {{.heads = 2, .n = 1100, .d = 5, .causal = true},
       {normal},
       {},
       {{0, 0}, {0, 7}, {0, 1022}, {0, 1023}, {0, 1024}, {0, 1099}, {1, 0}, {1, 1050}}}};
  for (const Case& each : cases) {
    const Problem question = make_question(each.shape, each.kinds, 5, each.exponents);
    const std::vector<Cell> rows = each.cells.empty() ? all_cells_of(each.shape) : each.cells;
    const size_t sets = each.kinds.size();
    Reference expected = plain_reference(each.shape, question.inputs, rows, sets);
    INFO(to_string(each.shape));
    CHECK(difference(make_reference(each.shape, question.inputs, rows, sets, Beside::score_terms), expected) == "");
    expected.answers[0].row_tolerance.clear();
    CHECK(difference(make_reference(each.shape, question.inputs, rows, sets), expected) == "");
    if (!each.cells.empty()) continue;
    CHECK(difference(make_reference(each.shape, question.inputs, sets), expected) == "");
  }
}

static void check_same_answers(const Reference& got, const Reference& wanted) {
  for (size_t answer = 0; answer < 2; ++answer) {
    const auto &values = got.answers[answer].values, &others = wanted.answers[answer].values;
    REQUIRE(values.size() == others.size());
    for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(others[i]).epsilon(1e-5).margin(1e-6));
  }
}

TEST_CASE("bytes times their scales are as good as the numbers that they stand for") {
  Shape shape{.batch = 2, .heads = 4, .kv_heads = 2, .n = 40, .d = 16};
  shape.q_type = shape.o_type = Element::bf16;
  Shape plain = shape;
  plain.q_type = plain.kv_type = plain.o_type = Element::f32;
  const std::pair<Element, Scales> kinds[] = {{Element::e4m3, Scales::usual}, {Element::s8, Scales::usual},
                                              {Element::s4, Scales::usual},   {Element::e4m3, Scales::token},
                                              {Element::s8, Scales::channel}, {Element::e4m3, Scales::channel}};
  for (const auto& [byte, per] : kinds) {
    shape.kv_type = byte, shape.scales = per;
    INFO(to_string(shape));
    Inputs inputs = make_inputs(InputKind::normal, shape, 3), numbers = make_inputs(InputKind::normal, plain, 3);
    const int64_t scales_of_head = inputs["K_scales"].spec().unit_elements();
    inputs["K_scales"].set(1, 0x1p-14);
    inputs["V_scales"].set(2, 0x1p15);
    inputs["V_scales"].set(3 * scales_of_head, 0);
    for (int64_t i = 0; i < numbers["Q"].spec().elements(); ++i) numbers["Q"].set(i, inputs["Q"][size_t(i)]);
    for (const auto& [name, scales] : {std::pair{"K", "K_scales"}, std::pair{"V", "V_scales"}}) {
      const TensorSpec& spec = inputs[name].spec();
      for (int64_t i = 0; i < spec.elements(); ++i) {
        const int64_t scale = shape.has_channel_scales() ? i / spec.unit_elements() * shape.d + i % shape.d
                                                         : i * scales_of_head / spec.unit_elements();
        numbers[name].set(i, inputs[name][size_t(i)] * inputs[scales][size_t(scale)]);
      }
    }
    check_same_answers(make_reference(shape, inputs), make_reference(plain, numbers));
  }
}

TEST_CASE("rows of int8 times their scales are as good as the numbers that they stand for, and V is as O") {
  Shape shape{.batch = 2, .heads = 4, .kv_heads = 2, .n = 40, .n_k = 51, .d = 16};
  shape.q_type = shape.kv_type = Element::s8;
  shape.o_type = Element::bf16;
  Shape plain = shape;
  plain.q_type = plain.kv_type = plain.o_type = Element::f32;
  Inputs inputs = make_inputs(InputKind::normal, shape, 3), numbers = make_inputs(InputKind::normal, plain, 3);
  CHECK(inputs["V"].spec().element == Element::bf16);
  inputs["Q_scales"].set(7, 0);
  inputs["K_scales"].set(60, 0x1p-14);
  for (const auto& [name, scales] : {std::pair{"Q", "Q_scales"}, std::pair{"K", "K_scales"}, std::pair{"V", ""}}) {
    for (int64_t i = 0; i < inputs[name].spec().elements(); ++i) {
      const double scale = *scales == 0 ? 1 : inputs[scales][static_cast<size_t>(i / shape.d)];
      numbers[name].set(i, inputs[name][static_cast<size_t>(i)] * scale);
    }
  }
  check_same_answers(make_reference(shape, inputs), make_reference(plain, numbers));
}

TEST_CASE(
    "what scores may be off by matters as far as values lie from the output, and not where they are all the same") {
  const Shape shape{.n = 64, .d = 32};
  const auto largest = [&](InputKind kind) {
    return std::ranges::max(
        make_reference(shape, make_inputs(kind, shape, 1), 1, Beside::score_terms)["O"].row_tolerance);
  };
  CHECK(largest(InputKind::constant_v) < 1e-12);
  CHECK(largest(InputKind::normal) > 1e-8);
}

// Those whose answers are numbers.
std::vector<InputKind> finite_kinds() {
  std::vector<InputKind> kinds(all_input_kinds().begin(), all_input_kinds().end());
  std::erase_if(kinds, [](InputKind kind) { return !has_numbers(kind); });
  return kinds;
}

TEST_CASE("scores of any size neither overflow nor vanish") {
  const Shape shape{.n = 128, .d = 128};
  for (const InputKind kind : finite_kinds()) {
    const Reference reference = make_reference(shape, make_inputs(kind, shape, 1));
    INFO(to_string(kind));
    CHECK(std::ranges::all_of(reference["O"].values, [](double value) { return std::isfinite(value); }));
    CHECK(std::isfinite(reference["O"].baseline[0].max));
    // Rounding the right answer once must pass; an error of a hundredth must not.
    CHECK(compare_O(reference, rounded_to_f16(reference), shape.n).right());
    double largest = 1;
    for (const double value : reference["O"].values) largest = std::max(largest, std::abs(value));
    CHECK(reference.tolerance() < 0.01 * largest);
  }
}

TEST_CASE("NaN and infinity reach what depends on them, and nothing else counts there") {
  const Shape shape{.batch = 1, .heads = 3, .n = 90, .d = 32};
  const std::vector kinds{InputKind::normal, InputKind::nan_head, InputKind::not_finite};
  const Reference reference = make_reference(shape, make_inputs(kinds, shape, 1), kinds.size());
  const int nan_column = shape.d / 2, infinite_column = shape.d / 4, lowest_column = shape.d * 3 / 4,
            nan_row = shape.n / 3, infinite_row = shape.n * 2 / 3;
  for (size_t i = 0; i < reference["O"].cells.size(); ++i) {
    const auto [head, query] = reference["O"].cells[i];
    for (int c = 0; c < shape.d; ++c) {
      const double value = reference["O"].row(i)[c];
      INFO("head " << head << ", query " << query << ", column " << c);
      const bool row_is_nan = query == nan_row || query == infinite_row;
      if (head == 0) REQUIRE(std::isfinite(value));
      if (head == 1) REQUIRE(std::isnan(value));
      if (head == 2) REQUIRE(std::isnan(value) == (row_is_nan || c == nan_column));
      if (head == 2 && !row_is_nan) REQUIRE(std::isinf(value) == (c == infinite_column || c == lowest_column));
      if (head == 2 && !row_is_nan && std::isinf(value)) REQUIRE((value > 0) == (c == infinite_column));
    }
  }
  auto output = rounded_to_f16(reference);
  for (size_t set = 0; set < kinds.size(); ++set) CHECK(compare_O(reference, output, shape.n, set).right());
  const auto put = [&](int head, int row, int column, float value) {
    f16& place = output[(int64_t{head} * shape.n + row) * shape.d + column];
    const f16 before = place;
    place = to_f16(value);
    const bool right = compare_O(reference, output, shape.n, head).right();
    place = before;
    return right;
  };
  CHECK_FALSE(put(1, 7, 3, 0.5f));
  CHECK_FALSE(put(2, 7, nan_column, 0.5f));
  CHECK_FALSE(put(2, 7, infinite_column, 0.5f));
  CHECK_FALSE(put(2, 7, infinite_column, -INFINITE));
  CHECK(put(2, 7, infinite_column, NOT_A_NUMBER));  // infinity times a weight that has become zero
  CHECK_FALSE(put(2, 7, 0, NOT_A_NUMBER));
  CHECK_FALSE(put(0, 7, 0, INFINITE));
}

TEST_CASE("what an LSE may be off by: more than f32 needs, less than any mistake makes") {
  const Shape shape{.n = 256, .d = 128};
  for (const InputKind kind : {InputKind::normal, InputKind::peaky}) {
    const Inputs inputs = make_inputs(kind, shape, 1);
    const Reference reference = make_reference(shape, inputs);
    for (const int64_t row : {0, 100, 255}) {
      std::vector<float> scores(shape.n);
      for (int j = 0; j < shape.n; ++j) {
        for (int c = 0; c < shape.d; ++c) {
          scores[j] += to_float(inputs.half("Q")[row * shape.d + c]) * to_float(inputs.half("K")[j * shape.d + c]);
        }
        scores[j] /= std::sqrt(float(shape.d));
      }
      const float row_max = *std::ranges::max_element(scores);
      float sum = 0;
      for (const float score : scores) sum += std::exp(score - row_max);
      INFO(to_string(kind) << ", row " << row);
      CHECK(std::abs(row_max + std::log(sum) - reference["LSE"].values[row]) <= reference["LSE"].row_tolerance[row]);
      CHECK(reference["LSE"].row_tolerance[row] < (kind == InputKind::normal ? 1e-4 : 1e-2));
    }
  }
}

TEST_CASE("where a bias is far larger than the scores, LSE may be off by what rounding a number of its size explains") {
  const Spec spec = parse_spec("h=3 nq=16 nk=20000 d=16 bf16 alibi window=-1,300").value();
  const Problem problem = make_problem(spec, InputKind::normal, 1);
  const Reference::Answer& LSE = problem.reference["LSE"];
  const float slope = static_cast<float>(problem.inputs["slopes"][0]), log2e = 1.44269504f;
  const Tensor &Q = problem.inputs["Q"], &K = problem.inputs["K"];
  for (size_t i = 0; i < LSE.cells.size(); ++i) {
    const auto [head, query] = LSE.cells[i];
    if (head > 0) break;  // the first one's slope favours the furthest keys
    const Keys seen = runs_of_keys(spec, 0, query).front();
    std::vector<float> scores;  // in units of log2, as kernels have them
    for (int64_t key = seen.first; key < seen.last; ++key) {
      float score = 0;
      for (int64_t c = 0; c < spec.d; ++c)
        score +=
            static_cast<float>(Q[static_cast<size_t>(query * spec.d + c)] * K[static_cast<size_t>(key * spec.d + c)]);
      const float distance = static_cast<float>(std::abs(key - key_of_query(spec, 0, query)));
      scores.push_back((score * static_cast<float>(spec.scale()) - slope * distance) * log2e);
    }
    const float largest = std::ranges::max(scores);
    float sum = 0;
    for (const float score : scores) sum += std::exp2(score - largest);
    INFO("query " << query);
    CHECK(std::abs(largest / log2e + std::log(sum) - LSE.values[i]) <= LSE.row_tolerance[i]);
    CHECK(LSE.row_tolerance[i] < 1e-6 * LSE.values[i]);
  }
}

TEST_CASE("on normal inputs the tolerance is within an order of f16's own rounding") {
  const Shape shape{.n = 512, .d = 128};
  const double tolerance = make_reference(shape, make_inputs(InputKind::normal, shape, 1)).tolerance();
  CHECK(tolerance > 1e-4);
  CHECK(tolerance < 2e-3);  // O's standard deviation there is about 0.07
}

TEST_CASE("all rows are taken up to 2^30 multiply-adds of Q K^T, and one more column makes it a sample") {
  for (const Shape& shape :
       {Shape{.n = 1, .d = 1}, Shape{.batch = 2, .heads = 3, .n = 100, .d = 40},
        Shape{.batch = 1, .heads = 1, .n = 4096, .d = 64}, Shape{.batch = 8, .heads = 8, .n = 512, .d = 64}}) {
    INFO(to_string(shape));
    CHECK(choose_cells(shape) == all_cells_of(shape));
    if (double(shape.batch_heads()) * shape.n * shape.n * shape.d < 0x1p30) continue;
    Shape wider = shape;
    ++wider.d;
    CHECK(choose_cells(wider).size() <= 2048);
  }
}

TEST_CASE("of many heads each is visited, in its first row, its last and 20 or more between") {
  const std::vector<Cell> cells = choose_cells({.heads = 65, .n = 128, .d = 64});
  for (int64_t head = 0; head < 65; ++head) {
    const auto [first, behind] = std::ranges::equal_range(cells, head, {}, &Cell::unit);
    CHECK((first->row == 0 && std::prev(behind)->row == 127));
    CHECK(behind - first >= 22);
    CHECK(behind - first <= 32);
  }
}

TEST_CASE("a sample of rows has the tiles' edges in every head that it visits, and visits heads and rows evenly") {
  for (const Shape& shape :
       {Shape{.batch = 1, .heads = 1, .n = 4096, .d = 65}, Shape{.batch = 2, .heads = 8, .n = 4096, .d = 128},
        Shape{.batch = 16, .heads = 16, .n = 8192, .d = 128}, Shape{.batch = 1, .heads = 2, .n = 65536, .d = 128},
        Shape{.batch = 1, .heads = 3, .n = 1 << 20, .d = 128}, Shape{.batch = 7, .heads = 1, .n = 1 << 20, .d = 40},
        Shape{.batch = 4, .heads = 1000, .n = 100, .d = 128}, Shape{.batch = 100, .heads = 50, .n = 128, .d = 129},
        Shape{.batch = 64, .heads = 64, .n = 64, .d = 128}, Shape{.batch = 1, .heads = 2048, .n = 129, .d = 64}}) {
    INFO(to_string(shape));
    const std::vector<Cell> rows = choose_cells(shape);
    const int64_t n = shape.n, heads = shape.batch_heads();
    REQUIRE(std::ssize(rows) < heads * n);
    REQUIRE(std::ranges::is_sorted(rows));
    REQUIRE(std::ranges::adjacent_find(rows) == rows.end());
    REQUIRE(rows.front() == Cell{0, 0});
    REQUIRE(rows.back() == Cell{heads - 1, n - 1});

    // No more work than with all rows of the largest problem that is not sampled, but 64 rows at least and 2048 at most.
    const double affordable = std::clamp(0x1p30 / (double(n) * shape.d), 64.0, 2048.0);
    CHECK(double(rows.size()) <= affordable);
    if (n >= 4096) CHECK(double(rows.size()) >= 0.8 * affordable);

    std::map<int64_t, std::vector<int64_t>> of_head;
    for (const auto& [head, row] : rows) of_head[head].push_back(row);
    const auto visited = static_cast<int64_t>(of_head.size());
    CHECK(double(visited) >= std::min(double(heads), affordable / 20));
    int64_t before = -1, shortest = heads, longest = 0;
    for (const auto& [head, queries] : of_head) {
      if (before >= 0) {
        shortest = std::min(shortest, head - before);
        longest = std::max(longest, head - before);
      }
      before = head;
      // First and last rows of a warp's tiles and a block's, from both ends, and the middle.
      for (const int64_t edge :
           {0L, 15L, 16L, 63L, 64L, 127L, 128L, n / 2, n - 129, n - 128, n - 65, n - 64, n - 16, n - 1}) {
        INFO("head " << head << ", query " << edge);
        CHECK(std::ranges::binary_search(queries, edge) == (edge >= 0 && edge < n));
      }
    }
    if (visited > 1) CHECK(longest - shortest <= 1);

    // Between the edges: no head has a gap much wider than its share, and over all heads few queries come twice.
    std::set<int64_t> distinct;
    size_t between = 0;
    for (const auto& [head, queries] : of_head) {
      const double share = double(n) / (affordable / double(visited) - 14);
      for (size_t i = 1; i < queries.size(); ++i) CHECK(double(queries[i] - queries[i - 1]) <= 2.7 * share + 1);
      for (const int64_t query : queries) {
        if (query <= 128 || query >= n - 129 || query == n / 2) continue;
        distinct.insert(query);
        ++between;
      }
    }
    if (n >= 4096) CHECK(double(distinct.size()) >= 0.95 * double(between));
    for (const int64_t tile : {16, 64, 128}) {
      std::set<int64_t> residues;
      for (const Cell& cell : rows) residues.insert(cell.row % tile);
      if (std::ssize(rows) >= 15 * tile) CHECK(std::ssize(residues) == std::min(tile, n));
    }
  }
}

TEST_CASE("a large problem is sampled, with the values of the full one") {
  const Shape shape{.batch = 2, .heads = 4, .n = 2048, .d = 128};
  const Inputs inputs = make_inputs(InputKind::normal, shape, 1);
  const Reference reference = make_reference(shape, inputs);
  const std::vector<Cell>& cells = reference["O"].cells;
  REQUIRE(cells == choose_cells(shape));
  REQUIRE(std::ssize(cells) < shape.batch_heads() * shape.n);
  for (const size_t i : {size_t{0}, cells.size() / 2, cells.size() - 1}) {
    const PlainRow expected = plain_attention(shape, inputs, cells[i].unit * shape.n + cells[i].row);
    const std::span<const double> values = reference["O"].row(i);
    CHECK(difference({values.begin(), values.end()}, expected.O, "O") == "");
  }
}

TEST_CASE(
    "the tolerance is twice the plain attention's error plus 1e-5, that of the mean error 1.1 times, more for few "
    "rows") {
  Reference::Answer O{.output = "O", .columns = 1, .baseline = {{0.25, 0.125}, {1, 0.02}, {1, 0.0199}}};
  CHECK(O.tolerance(0) == Approx(0.50001).epsilon(1e-12));
  CHECK(O.rms_tolerance(0, 100) == Approx(1.2 * 0.125 + 1e-6).epsilon(1e-12));
  CHECK(O.rms_tolerance(0, 4) == Approx(1.6 * 0.125 + 1e-6).epsilon(1e-12));
  O.baseline[0].luck = 0.25;
  CHECK(O.rms_tolerance(0, 100) == Approx(1.65 * 0.125 + 1e-6).epsilon(1e-12));
  CHECK(O.rms_tolerance(1, 100) == Approx(1.2 * 0.02 + 1e-6).epsilon(1e-12));
  CHECK(O.rms_tolerance(2, 100) == Approx(2.00001).epsilon(1e-12));  // nearly all answers are exact
  CHECK(O.tolerance_of_row(1, 0) == O.tolerance(1));
  O.row_tolerance = {0.5, 3};
  CHECK(O.tolerance_of_row(1, 1) == Approx(5.00001).epsilon(1e-12));
}

// An invented reference, and an output beside it whose errors are often the same.
struct Invented {
  Reference reference;
  Tensor output;
};

Invented invent(std::mt19937& random, bool with_row_tolerances, bool with_nan) {
  const auto below = [&](unsigned end) { return random() % end; };
  const int n = 1 + int(below(5)), columns = 1 + int(below(3)), heads = 1 + int(below(6));
  Invented made{.reference = {.answers = {}}, .output = Tensor(tensor("O", Element::f16, {1, heads, n, columns}))};
  const size_t sets = 1 + below(3);
  Reference& reference = made.reference;
  for (f16& value : made.output.half()) value = to_f16(NOT_A_NUMBER);  // where the reference has no row, nobody looks
  reference.answers = {{.output = "O", .columns = columns, .sets = sets},
                       {.output = "LSE", .columns = 1, .sets = sets}};
  Reference::Answer& O = reference.answers[0];
  for (size_t set = 0; set < sets; ++set) {
    O.baseline.push_back({0.125 * (1 + below(4)), 0.03125 * (1 + below(4))});
  }
  for (int64_t row = 0; row < int64_t{heads} * n; ++row) {
    if (below(4) == 0) continue;
    for (Reference::Answer& answer : reference.answers) answer.cells.push_back({row / n, row % n});
    reference.answers[1].values.push_back(double(row));
    reference.answers[1].row_tolerance.push_back(0.5 * double(row));
    if (with_row_tolerances) O.row_tolerance.push_back(0.25 * below(4));
    for (int column = 0; column < columns; ++column) {
      float expected = float(below(16)) - 8, got = expected + 0.25f * float(below(3));
      const unsigned kind = below(16);
      if (kind == 0) expected = got = NOT_A_NUMBER;
      if (kind == 1) expected = got = below(2) == 0 ? INFINITE : -INFINITE;
      if (kind == 2) expected = INFINITE, got = NOT_A_NUMBER;
      if (with_nan && below(16) == 0) expected = below(2) == 0 ? -INFINITE : NOT_A_NUMBER;
      if (with_nan && below(32) == 0) got = below(2) == 0 ? NOT_A_NUMBER : INFINITE;
      O.values.push_back(expected);
      made.output.half()[static_cast<size_t>(row * columns + column)] = to_f16(got);
    }
  }
  return made;
}

// What tolerance.hpp says of a comparison, in two steps: all errors, and the worst of them.
Comparison plain_comparison(const Invented& made, size_t set) {
  const Reference& reference = made.reference;
  const Reference::Answer& O = reference.answers[0];
  std::vector<Comparison> elements;
  double squares = 0, term_squares = 0;
  int64_t rows = 0, numbers = 0;
  for (size_t i = 0; i < O.cells.size(); ++i) {
    const auto [unit, row] = O.cells[i];
    if (size_t(unit) % O.sets != set) continue;
    ++rows;
    const double term = O.row_tolerance.empty() ? 0 : O.row_tolerance[i];
    for (int column = 0; column < O.columns; ++column) {
      const double expected = O.values[i * O.columns + column];
      const double got = to_float(
          made.output.half()[static_cast<size_t>((unit * made.output.spec().rows() + row) * O.columns + column)]);
      double error = std::abs(got - expected);
      if (std::isnan(expected)) error = std::isnan(got) ? 0 : INFINITE;
      if (std::isinf(expected)) error = std::isnan(got) || got == expected ? 0 : INFINITE;
      elements.push_back({error, O.tolerance(set) + term, O.cells[i], column, got, expected});
      if (!std::isfinite(expected)) continue;
      squares += error * error;
      term_squares += term * term;
      ++numbers;
    }
  }
  Comparison worst{.tolerance = O.tolerance(set)};
  const auto share = [](const Comparison& of) { return of.max_err / of.tolerance; };
  for (const Comparison& element : elements) {
    if (share(element) > share(worst)) worst = element;
  }
  const auto nan = std::ranges::find_if(elements, [](const Comparison& of) { return std::isnan(of.max_err); });
  if (nan != elements.end()) {
    worst = *nan;
    worst.rms = NOT_A_NUMBER;
  } else if (numbers > 0) {
    worst.rms = std::sqrt(squares / double(numbers));
    worst.rms_tolerance = O.rms_tolerance(set, rows) + std::sqrt(term_squares / double(numbers));
  }
  return worst;
}

std::vector<double> numbers_of(const Comparison& of) {
  return {of.max_err,  of.tolerance, double(of.cell.unit), double(of.cell.row), double(of.column), of.got,
          of.expected, of.rms,       of.rms_tolerance};
}

TEST_CASE(
    "a comparison is of the set's rows: the first of the elements furthest beyond their tolerance, and the means") {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const Invented made = invent(random, i % 2 == 0, i % 3 == 0);
    const Reference& reference = made.reference;
    const Reference::Answer& O = reference.answers[0];
    Tensor rows(tensor("O", Element::f16, {1, 1, std::ssize(O.cells), O.columns}));
    for (size_t k = 0; k < O.cells.size(); ++k) {
      const auto from = made.output.half().subspan(
          static_cast<size_t>(made.output.spec().index(O.cells[k].unit, O.cells[k].row)), O.columns);
      std::ranges::copy(from, rows.half().begin() + std::ptrdiff_t(k * O.columns));
    }
    for (size_t set = 0; set < O.sets; ++set) {
      INFO(i << ", set " << set);
      const Comparison expected = plain_comparison(made, set);
      for (const Comparison& found :
           {compare_to_reference(O, made.output, set), compare_rows_to_reference(O, rows, set)}) {
        REQUIRE(difference(numbers_of(found), numbers_of(expected), "a comparison's number") == "");
        REQUIRE(found.right() == (expected.max_err <= expected.tolerance && expected.rms <= expected.rms_tolerance));
      }
    }
  }
}

TEST_CASE("the reference of some rows has what all have, of those rows, in their order") {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const Reference whole = invent(random, i % 2 == 0, true).reference;
    std::vector<size_t> places;
    for (size_t k = 0; k < whole["O"].cells.size(); ++k) {
      if (random() % 2 == 0) places.push_back(k);
    }
    if (i % 3 == 0) std::ranges::shuffle(places, random);
    Reference expected = whole, found = whole;
    for (size_t k = 0; k < whole.answers.size(); ++k) {
      const Reference::Answer& all = whole.answers[k];
      Reference::Answer& some = expected.answers[k];
      found.answers[k] = some_cells(all, places);
      some.cells.clear();
      some.values.clear();
      some.row_tolerance.clear();
      for (const size_t place : places) {
        some.cells.push_back(all.cells[place]);
        for (int c = 0; c < all.columns; ++c) some.values.push_back(all.values[place * all.columns + c]);
        if (!all.row_tolerance.empty()) some.row_tolerance.push_back(all.row_tolerance[place]);
      }
    }
    REQUIRE(difference(found, expected) == "");
  }
}
