// What a kernel in f16 may round and what it may not: attention in plain C++ that rounds in a chosen place, and whether the
// input sets notice. No kernel of the ladder takes part, so nothing here knows one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "harness/problem/reference.hpp"
#include "harness/tests/catch.hpp"
#include "harness/tests/problem/o_tensor.hpp"

using namespace ladder;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 256, .d = 64};
constexpr int TILE = 64;

float in_f16(float value) {
  return to_float(to_f16(value));
}

// To so many bits of mantissa, the first of which is not stored: f16 has 11.
float in_bits(float value, int bits) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

// FlashAttention's recurrence over tiles of keys, one query at a time, in f32.
struct Recipe {
  float scale = 1;                                                      // of the scores, times the right one
  std::function<float(float)> weight = in_f16;                          // what PV takes for P
  std::function<float(float)> sum = [](float value) { return value; };  // of an accumulator, after each tile
  float correction = 1;                                                 // times the right one
  float threshold = 0;   // a maximum is kept until it is outgrown by so many powers of two
  bool on_grid = false;  // maxima are rounded up to powers of two
};

std::vector<f16> attention(const Inputs& inputs, const Recipe& recipe) {
  const int n = SHAPE.n, d = SHAPE.d;
  const float scale = SHAPE.scale() * recipe.scale * 1.44269504f;
  const auto widened = [&](const char* name) {  // once, and not for each product
    const auto& values = inputs.half(name);
    std::vector<float> wide(values.size());
    std::ranges::transform(values, wide.begin(), to_float);
    return wide;
  };
  const std::vector<float> Q = widened("Q"), K = widened("K"), V = widened("V");
  std::vector<f16> output(Q.size());
  for (int i = 0; i < n; ++i) {
    float row_max = -std::numeric_limits<float>::infinity(), row_sum = 0;
    std::vector<float> O(d);
    for (int first = 0; first < n; first += TILE) {
      float S[TILE] = {}, tile_max = row_max;
      for (int j = 0; j < TILE; ++j) {
        for (int c = 0; c < d; ++c) S[j] += Q[i * d + c] * K[(first + j) * d + c];
        S[j] *= scale;
        tile_max = std::max(tile_max, S[j]);
      }
      if (recipe.on_grid) tile_max = std::ceil(tile_max);
      if (!(tile_max <= row_max + recipe.threshold)) {
        const float correction = first == 0 ? 0 : std::exp2(row_max - tile_max) * recipe.correction;
        row_sum *= correction;
        for (float& value : O) value *= correction;
        row_max = tile_max;
      }
      for (int j = 0; j < TILE; ++j) {
        const float weight = std::exp2(S[j] - row_max), P = recipe.weight(weight);
        row_sum += weight;
        for (int c = 0; c < d; ++c) O[c] += P * V[(first + j) * d + c];
        if (j % 16 == 15) {  // the depth of an mma
          for (float& value : O) value = recipe.sum(value);
        }
      }
    }
    for (int c = 0; c < d; ++c) output[i * d + c] = to_f16(O[c] / row_sum);
  }
  return output;
}

struct Known {
  InputKind kind;
  Inputs inputs;
  Reference reference;
};
const std::vector<Known>& problems() {
  static const std::vector<Known> all = [] {
    std::vector<Known> made;
    for (const InputKind kind : all_input_kinds()) {
      Inputs inputs = make_inputs(kind, SHAPE, 1);
      Reference reference = make_reference(SHAPE, inputs);
      made.push_back({kind, std::move(inputs), std::move(reference)});
    }
    return made;
  }();
  return all;
}

bool is_rejected(const Recipe& recipe) {
  return std::ranges::any_of(problems(), [&](const Known& known) {
    return !compare_O(known.reference, attention(known.inputs, recipe), SHAPE.n).right();
  });
}

const std::pair<const char*, Recipe> RIGHT[] = {
    {"running maximum", {}},
    {"kept until outgrown by 2^8", {.threshold = 8}},
    {"maximum rounded up to a power of two", {.on_grid = true}},
    {"weights in f32", {.weight = [](float weight) { return weight; }}},
};

}  // namespace

TEST_CASE("what rounds more, drops something or is slightly off is rejected") {
  CHECK(is_rejected({.scale = 1.001f}));
  CHECK(is_rejected({.scale = 0.999f}));
  CHECK(is_rejected({.scale = 1.0005f}));  // a constant, such as log2 e
  CHECK(is_rejected({.scale = 0.9995f}));
  CHECK(is_rejected({.weight = [](float weight) { return in_bits(weight, 9); }}));
  CHECK(is_rejected({.weight = [](float weight) { return in_f16(1.7f * in_f16(weight / 1.7f)); }}));  // twice
  CHECK(is_rejected({.weight = [](float weight) { return weight < 0x1p-12f ? 0 : in_f16(weight); }}));
  CHECK(is_rejected({.sum = in_f16}));
  for (const float factor : {0.0f, 0.7f, 0.9f, 1.1f, 1.4f}) {
    INFO(factor);
    CHECK(is_rejected({.correction = factor}));
    CHECK(is_rejected({.correction = factor, .threshold = 8}));
  }
  CHECK(is_rejected({.threshold = 18}));  // weights beyond f16's range
}

// What a check of all rungs and variants on a GPU gave, of each input set the result nearest to its tolerance.
struct Recorded {
  double max_err = 0, tolerance = 0;
};
std::map<std::string, Recorded> recorded_tolerances() {
  std::map<std::string, Recorded> found;
  std::ifstream file(LADDER_SOURCE_DIR "/docs/results/h200_tolerances.csv");
  std::string line;
  std::getline(file, line);  // names of the columns
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string inputs, max_err, tolerance;
    std::getline(fields, inputs, ',');
    std::getline(fields, max_err, ',');
    std::getline(fields, tolerance, ',');
    found[inputs] = {std::stod(max_err), std::stod(tolerance)};
  }
  return found;
}

// Rounding P once and summing in f32 is right, whatever maximum the weights stand relative to.
// The table stands in docs/checks.md; with LADDER_RECORD in the environment it is written there.
TEST_CASE("on every input set a right kernel is right, and the tolerance is within 10 times the largest error of one") {
  std::string table =
      "| input set | tolerance | largest error of a right kernel | tolerance / error | the same on an H200 |\n"
      "|---|---:|---:|---:|---:|\n";
  const std::map<std::string, Recorded> on_gpu = recorded_tolerances();
  for (const Known& known : problems()) {
    double largest = 0, tolerance = 0;
    for (const auto& [name, recipe] : RIGHT) {
      const Comparison found = compare_O(known.reference, attention(known.inputs, recipe), SHAPE.n);
      INFO(name << ", " << to_string(known.kind));
      CHECK(found.right());
      largest = std::max(largest, found.max_err);
      tolerance = known.reference.tolerance();
    }
    INFO(to_string(known.kind));
    const bool has_numbers = known.reference["O"].baseline[0].max > 0;
    if (!has_numbers) {
      table += fmt::format("| `{}` | none: NaN throughout | | | |\n", to_string(known.kind));
      continue;
    }
    double step = 0;  // of f16, at the largest answer
    for (const double value : known.reference["O"].values) {
      if (std::isfinite(value) && value != 0) step = std::max(step, std::ldexp(1.0, std::ilogb(value) - 10));
    }
    CHECK((tolerance <= 10 * largest || tolerance <= 1.25 * step));  // nearly all are exact, or a step beside it
    const auto ratio = [](double allowed, double error) {
      return error > 1e-12 ? fmt::format("{:.1f}", allowed / error) : std::string("exact");
    };
    const auto recorded = on_gpu.find(std::string(to_string(known.kind)));
    std::string recorded_ratio = "not yet recorded";
    if (recorded != on_gpu.end()) {
      const auto [max_err, allowed] = recorded->second;
      CHECK((allowed <= 10 * max_err || tolerance <= 1.25 * step));
      recorded_ratio = ratio(allowed, max_err);
    }
    table += fmt::format("| `{}` | {:.1e} | {:.1e} | {} | {} |\n", to_string(known.kind), tolerance, largest,
                         ratio(tolerance, largest), recorded_ratio);
  }
  const std::string path = LADDER_SOURCE_DIR "/docs/checks.md", begin = "<!-- tolerances:begin -->\n",
                    end = "<!-- tolerances:end -->";
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t from = text.find(begin) + begin.size(), to = text.find(end);
  REQUIRE(to != std::string::npos);
  if (std::getenv("LADDER_RECORD") != nullptr) std::ofstream(path) << text.replace(from, to - from, table);
  CHECK(text.substr(from, table.size()) == table);
}
