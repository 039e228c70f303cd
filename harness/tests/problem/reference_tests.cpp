// The reference against the formula written down plainly, and the rules of comparing with it.
#include "harness/problem/reference.hpp"
#include "harness/tests/problem/o_tensor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

// softmax(Q K^T scale) V for one row, as the formula says, and the logarithm of its sum behind it.
std::vector<double> plain_attention(const Shape& shape, const Inputs& inputs, int64_t row) {
  const int64_t head = row / shape.n, d = shape.d;
  std::vector<double> weights(shape.n), output(d);
  double sum = 0;
  const int64_t keys = shape.causal ? row % shape.n + 1 : shape.n;
  for (int64_t j = 0; j < keys; ++j) {
    double s = 0;
    for (int64_t c = 0; c < d; ++c) {
      s += double(to_float(inputs.half("Q")[row * d + c])) * to_float(inputs.half("K")[(head * shape.n + j) * d + c]);
    }
    weights[j] = std::exp(s * shape.scale());
    sum += weights[j];
  }
  for (int64_t c = 0; c < d; ++c) {
    for (int64_t j = 0; j < keys; ++j)
      output[c] += weights[j] / sum * to_float(inputs.half("V")[(head * shape.n + j) * d + c]);
  }
  output.push_back(std::log(sum));
  return output;
}

std::vector<f16> rounded_to_f16(const Reference& reference) {
  std::vector<f16> output;
  for (const double value : reference["O"].values) output.push_back(to_f16(float(value)));
  return output;
}

}  // namespace

TEST_CASE("the reference is the formula, for any shape") {
  for (const Shape shape :
       {Shape{.batch = 2, .heads = 3, .n = 65, .d = 128}, Shape{.batch = 1, .heads = 1, .n = 1, .d = 1},
        Shape{.batch = 1, .heads = 2, .n = 130, .d = 40},
        Shape{.batch = 2, .heads = 2, .n = 67, .d = 40, .causal = true},
        Shape{.batch = 1, .heads = 1, .n = 40, .d = 16, .softmax_scale = 0.6f}}) {
    const Inputs inputs = make_inputs(InputKind::normal, shape, 5);
    const Reference reference = make_reference(shape, inputs);
    REQUIRE(reference.all_rows);
    REQUIRE(reference.rows.size() == size_t(shape.batch_heads() * shape.n));
    for (size_t i = 0; i < reference.rows.size(); ++i) {
      const auto expected = plain_attention(shape, inputs, reference.rows[i]);
      for (int c = 0; c < shape.d; ++c)
        REQUIRE(reference["O"].row(i)[c] == Approx(expected[c]).epsilon(1e-10).margin(1e-12));
      REQUIRE(reference["LSE"].values[i] == Approx(expected.back()).epsilon(1e-10).margin(1e-12));
    }
  }
}

TEST_CASE("ties give the mean of V, constant V gives itself") {
  const Shape shape{.n = 64, .d = 32};
  const Inputs ties = make_inputs(InputKind::ties, shape, 1);
  const Reference mean = make_reference(shape, ties);
  for (int c = 0; c < shape.d; ++c) {
    double expected = 0;
    for (int j = 0; j < shape.n; ++j) expected += to_float(ties.half("V")[j * shape.d + c]) / shape.n;
    CHECK(mean["O"].row(7)[c] == Approx(expected).margin(1e-12));
  }
  const Inputs constant = make_inputs(InputKind::constant_v, shape, 1);
  const Reference same = make_reference(shape, constant);
  for (int c = 0; c < shape.d; ++c) CHECK(same["O"].row(9)[c] == Approx(to_float(constant.half("V")[c])).margin(1e-12));
}

TEST_CASE(
    "what scores may be off by matters as far as values lie from the output, and not where they are all the same") {
  const Shape shape{.n = 64, .d = 32};
  const auto largest = [&](InputKind kind) {
    return std::ranges::max(make_reference(shape, make_inputs(kind, shape, 1), 1, true)["O"].row_tolerance);
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
    CHECK(compare_O(reference, rounded_to_f16(reference)).right());
    CHECK(reference.tolerance() < 0.01);
  }
}

TEST_CASE("NaN and infinity reach what depends on them, and nothing else counts there") {
  const Shape shape{.batch = 1, .heads = 3, .n = 90, .d = 32};
  const std::vector kinds{InputKind::normal, InputKind::nan_head, InputKind::not_finite};
  const Reference reference = make_reference(shape, make_inputs(kinds, shape, 1), kinds.size());
  const int nan_column = shape.d / 2, infinite_column = shape.d / 4, lowest_column = shape.d * 3 / 4,
            nan_row = shape.n / 3, infinite_row = shape.n * 2 / 3;
  for (size_t i = 0; i < reference.rows.size(); ++i) {
    const int64_t head = reference.rows[i] / shape.n, query = reference.rows[i] % shape.n;
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
  for (size_t set = 0; set < kinds.size(); ++set) CHECK(compare_O(reference, output, set).right());
  const auto put = [&](int head, int row, int column, float value) {
    f16& place = output[(int64_t{head} * shape.n + row) * shape.d + column];
    const f16 before = place;
    place = to_f16(value);
    const bool right = compare_O(reference, output, head).right();
    place = before;
    return right;
  };
  constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN(),
                  INFINITE = std::numeric_limits<float>::infinity();
  CHECK_FALSE(put(1, 7, 3, 0.5f));
  CHECK_FALSE(put(2, 7, nan_column, 0.5f));
  CHECK_FALSE(put(2, 7, infinite_column, 0.5f));
  CHECK_FALSE(put(2, 7, infinite_column, -INFINITE));
  CHECK(put(2, 7, infinite_column, NOT_A_NUMBER));  // infinity times a weight that has become zero
  CHECK_FALSE(put(2, 7, 0, NOT_A_NUMBER));
  CHECK_FALSE(put(0, 7, 0, INFINITE));
}

TEST_CASE("the tolerance is twice the error of an attention that rounds P and O to f16, plus 1e-5") {
  const Shape shape{.n = 96, .d = 64, .softmax_scale = 0.2f};
  const auto round = [](float value) { return to_float(to_f16(value)); };
  for (const InputKind kind : {InputKind::normal, InputKind::large_logits, InputKind::last_tile_max}) {
    const Inputs inputs = make_inputs(kind, shape, 4);
    const Reference reference = make_reference(shape, inputs);
    double error = 0, rms = 0;
    for (const float stale : {1.0f, std::exp2(1 / 3.0f), std::exp2(2 / 3.0f)}) {
      double squares = 0;
      for (int i = 0; i < shape.n; ++i) {
        std::vector<float> weights(shape.n);
        for (int j = 0; j < shape.n; ++j) {
          for (int c = 0; c < shape.d; ++c) {
            weights[j] += to_float(inputs.half("Q")[i * shape.d + c]) * to_float(inputs.half("K")[j * shape.d + c]);
          }
          weights[j] *= shape.softmax_scale;
        }
        const float largest = *std::ranges::max_element(weights);
        float sum = 0;
        for (float& weight : weights) sum += weight = stale * std::exp(weight - largest);
        for (int c = 0; c < shape.d; ++c) {
          float output = 0;
          for (int j = 0; j < shape.n; ++j) output += round(weights[j]) * to_float(inputs.half("V")[j * shape.d + c]);
          const double off = std::abs(round(output / sum) - reference["O"].row(i)[c]);
          // Rounded in the worse direction: half a step, 2^-11 of the power of two below the answer.
          const double half_step = std::ldexp(0.5, std::max(std::ilogb(reference["O"].row(i)[c]), -14) - 10);
          error = std::max(error, std::abs(output / sum - reference["O"].row(i)[c]) + half_step);
          squares += off * off;
        }
      }
      rms = std::max(rms, std::sqrt(squares / (shape.n * shape.d)));
    }
    INFO(to_string(kind));
    CHECK(reference.tolerance() == Approx(2 * error + 1e-5).epsilon(0.01));
    CHECK(reference["O"].rms_tolerance(0, 10000) == Approx(1.105 * rms + 1e-6).epsilon(0.01));
  }
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

TEST_CASE("on normal inputs the tolerance is within an order of f16's own rounding") {
  const Shape shape{.n = 512, .d = 128};
  const double tolerance = make_reference(shape, make_inputs(InputKind::normal, shape, 1)).tolerance();
  CHECK(tolerance > 1e-4);
  CHECK(tolerance < 2e-3);  // O's standard deviation there is about 0.07
}

TEST_CASE(
    "a large problem is sampled: both ends, edges of tiles, first and last head, and the values of the full one") {
  const Shape shape{.batch = 2, .heads = 8, .n = 4096, .d = 128};
  const Inputs inputs = make_inputs(InputKind::normal, shape, 1);
  const Reference reference = make_reference(shape, inputs);
  REQUIRE_FALSE(reference.all_rows);
  CHECK(reference.rows.size() >= 64);
  CHECK(std::ranges::is_sorted(reference.rows));
  const int64_t last_head = (shape.batch_heads() - 1) * shape.n;
  for (const int64_t row : {int64_t{0}, int64_t{63}, int64_t{64}, int64_t{127}, int64_t{128}, int64_t{4095}, last_head,
                            last_head + 4095, last_head + 4096 - 128}) {
    CHECK(std::ranges::binary_search(reference.rows, row));
  }
  for (const size_t i : {size_t{0}, reference.rows.size() / 2, reference.rows.size() - 1}) {
    const auto expected = plain_attention(shape, inputs, reference.rows[i]);
    for (int c = 0; c < shape.d; c += 17) CHECK(reference["O"].row(i)[c] == Approx(expected[c]).margin(1e-12));
  }
}

TEST_CASE("a comparison finds the largest error and its place") {
  const Shape shape{.batch = 1, .heads = 2, .n = 32, .d = 16};
  const Reference reference = make_reference(shape, make_inputs(InputKind::normal, shape, 1));
  auto output = rounded_to_f16(reference);
  output[40 * 16 + 3] = to_f16(to_float(output[40 * 16 + 3]) + 1.0f);
  const Comparison found = compare_O(reference, output);
  CHECK(found.row == 40);
  CHECK(found.column == 3);
  CHECK(found.max_err == Approx(1.0).margin(0.01));
}

TEST_CASE("an error is weighed by its own row's tolerance, and the mean error by all of them") {
  Reference reference{
      .n = 4, .sets = 2, .rows = {0, 3, 4}, .answers = {}};  // rows of the first head, one of the second
  reference.answers = {{.output = "O", .columns = 2}};
  Reference::Answer& O = reference.answers[0];
  O.values = {0, 0, 0, 0, 0, 0};
  O.baseline = {{0.125, 0.0625}, {0.5, 0.5}};
  O.row_tolerance = {3.0, 0.0, 7.0};
  Tensor output(TensorSpec{.name = "O", .heads = 2, .rows = 4, .columns = 2});
  output.half()[1] = to_f16(1.0f);  // row 0, allowed more there than ...
  output.half()[6] = to_f16(0.5f);  // ... in row 3
  output.half()[8] = to_f16(9.0f);  // another set's
  const Comparison worst = compare_to_reference(reference, O, output, 0);
  CHECK(worst.row == 3);
  CHECK(worst.column == 0);
  CHECK(worst.max_err == 0.5);
  CHECK(worst.tolerance == Approx(0.25).margin(1e-4));
  CHECK(worst.rms == Approx(std::sqrt((1.0 + 0.25) / 4)));
  CHECK(worst.rms_tolerance == Approx(O.rms_tolerance(0, 2) + std::sqrt((9.0 + 9.0) / 4)));
}

TEST_CASE("one NaN, wherever it is, makes the error NaN; infinity makes it infinite") {
  const Shape shape{.n = 32, .d = 16};
  const Reference reference = make_reference(shape, make_inputs(InputKind::normal, shape, 1));
  for (const size_t at : {size_t{0}, size_t{200}, size_t{511}}) {
    auto output = rounded_to_f16(reference);
    output[5] = to_f16(100.0f);  // a larger error elsewhere must not hide it
    output[at] = to_f16(std::numeric_limits<float>::quiet_NaN());
    CHECK(std::isnan(compare_O(reference, output).max_err));
    output[at] = to_f16(std::numeric_limits<float>::infinity());
    CHECK(std::isinf(compare_O(reference, output).max_err));
  }
}
