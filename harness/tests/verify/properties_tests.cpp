// What the properties of attention launch, and how far apart they say that outputs are.
#include "harness/verify/properties.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "harness/problem/formula.hpp"
#include "harness/problem/reference.hpp"
#include "harness/tests/catch.hpp"
#include "harness/tests/verify/host_kernels.hpp"

using namespace ladder;
using namespace host_kernels;

namespace {

constexpr uint64_t SEED = 5;
constexpr Shape DENSE{.batch = 2, .heads = 1, .n = 64, .d = 8};
constexpr Shape MASKED{.batch = 2, .heads = 1, .n = 96, .d = 8, .causal = true};

// In the order in which they are launched.
enum Launch { BASE, OTHER, SECOND_V, SUM_OF_V, TWICE_V, SHIFTED_K, LAUNCHES };

// All launches of a shape. Each one's answer is a constant that makes every property hold exactly, but for `wrong`, which
// may change it.
struct Launches {
  std::vector<Inputs> inputs;
  std::vector<PropertyResult> results;
};
template <class Wrong>
Launches launched(const Shape& shape, const Wrong& wrong) {
  Launches all;
  const Run run = [&](const Inputs& inputs) -> Result<Tensor> {
    constexpr float ANSWERS[LAUNCHES] = {0.5f, 0.5f, 0.25f, 0.75f, 1.0f, 0.5f};
    Tensor output(formula_of(shape).outputs(shape).front());
    std::ranges::fill(output.half(), to_f16(ANSWERS[all.inputs.size()]));
    wrong(static_cast<Launch>(all.inputs.size()), output.half());
    all.inputs.push_back(inputs);
    return output;
  };
  all.results = check_properties_of(run, shape, SEED).value();
  REQUIRE(all.inputs.size() == LAUNCHES);
  return all;
}
Launches launched(const Shape& shape) {
  return launched(shape, [](Launch, std::span<f16>) {});
}

// The numbers of a row of a tensor; heads come after one another.
std::vector<float> row_of(const Tensor& tensor, const Shape& shape, int64_t row) {
  std::vector<float> numbers;
  for (const f16 value : tensor.half().subspan(row * shape.d, shape.d)) numbers.push_back(to_float(value));
  return numbers;
}

bool same(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

// The first row with another key or value, of a head.
int64_t first_changed(const Launches& all, const Shape& shape, int64_t head) {
  for (int64_t row = 0; row < shape.n; ++row) {
    for (const char* name : {"K", "V"}) {
      if (row_of(all.inputs[BASE][name], shape, head * shape.n + row) !=
          row_of(all.inputs[OTHER][name], shape, head * shape.n + row))
        return row;
    }
  }
  return shape.n;
}

}  // namespace

TEST_CASE("properties are tried on normal inputs, keys and values rounded to where their sums are exact") {
  for (const Shape& shape : {DENSE, MASKED}) {
    const Inputs normal = make_inputs(InputKind::normal, shape, SEED);
    const Inputs base = launched(shape).inputs[BASE];
    CHECK(same(base["Q"], normal["Q"]));
    for (const char* name : {"K", "V"}) {
      for (size_t i = 0; i < base[name].size(); ++i) {
        const double value = base[name][i];
        if (value * 64 != std::round(value * 64) || std::abs(value) >= 8 ||
            std::abs(value - normal[name][i]) > 1.0 / 128)
          FAIL_CHECK(name << " has " << value << " for " << normal[name][i]);
      }
    }
  }
}

TEST_CASE(
    "keys and values change places together, each head's within it; one at most stays, and none keeps its neighbour") {
  for (const int n : {32, 45, 64, 90, 96}) {
    INFO(n << " keys");
    Shape shape = DENSE;
    shape.n = n;
    const Launches all = launched(shape);
    const Inputs &base = all.inputs[BASE], &other = all.inputs[OTHER];
    CHECK(same(base["Q"], other["Q"]));
    for (int64_t head = 0; head < shape.batch_heads(); ++head) {
      std::vector<int64_t> from;  // where each row comes from
      for (int64_t row = head * n; row < (head + 1) * n; ++row) {
        for (int64_t source = head * n; source < (head + 1) * n; ++source) {
          if (row_of(other["K"], shape, row) == row_of(base["K"], shape, source) &&
              row_of(other["V"], shape, row) == row_of(base["V"], shape, source))
            from.push_back(source - head * n);
        }
      }
      REQUIRE(std::ssize(from) == n);
      CHECK(std::ssize(std::set(from.begin(), from.end())) == n);
      int staying = 0;
      for (int row = 0; row < n; ++row) {
        staying += from[row] == row;
        const int64_t step = (from[(row + 1) % n] - from[row] + n) % n;
        CHECK(std::min(step, n - step) >= n / 4);  // a tile has keys of both halves
      }
      CHECK(staying <= 1);
    }
  }
}

TEST_CASE("of a causal prefix no key changes, and behind it each, in the middle of a tile") {
  for (const int n : {64, 96, 128, 192, 256, 512}) {
    INFO(n << " keys");
    Shape shape = MASKED;
    shape.n = n;
    const Launches all = launched(shape);
    CHECK(same(all.inputs[BASE]["Q"], all.inputs[OTHER]["Q"]));
    const int64_t first = first_changed(all, shape, 0);
    CHECK((n / 2 < first && first < n - 1));
    CHECK(first % 8 != 0);
    for (int64_t head = 0; head < shape.batch_heads(); ++head) {
      CHECK(first_changed(all, shape, head) == first);
      for (int64_t row = head * n + first; row < (head + 1) * n; ++row) {
        for (const char* name : {"K", "V"}) {
          if (row_of(all.inputs[BASE][name], shape, row) == row_of(all.inputs[OTHER][name], shape, row))
            FAIL_CHECK(name << " of row " << row << " is the same");
        }
      }
    }
  }
}

TEST_CASE("of a causal kernel the rows up to the first key that changes are compared, and no other") {
  const int64_t first = first_changed(launched(MASKED), MASKED, 0);
  for (int64_t head = 0; head < MASKED.batch_heads(); ++head) {
    for (const int64_t row : {int64_t{0}, first - 1, first, int64_t{MASKED.n - 1}}) {
      for (const int column : {0, MASKED.d - 1}) {
        INFO("row " << row << " of head " << head << ", column " << column);
        const Launches all = launched(MASKED, [&](Launch launch, std::span<f16> output) {
          if (launch == OTHER) output[(head * MASKED.n + row) * MASKED.d + column] = to_f16(0.625f);
        });
        CHECK(all.results[0].name == "prefix");
        CHECK(all.results[0].deviation == (row < first ? 0.125 : 0));
        CHECK(all.results[0].holds() == (row >= first));  // not a bit may change
      }
    }
  }
}

TEST_CASE("values are added, doubled and keys shifted without rounding, and nothing else changes") {
  for (const Shape& shape : {DENSE, MASKED}) {
    const Launches all = launched(shape);
    const Inputs& base = all.inputs[BASE];
    for (const Launch launch : {SECOND_V, SUM_OF_V, TWICE_V}) {
      CHECK(same(all.inputs[launch]["Q"], base["Q"]));
      CHECK(same(all.inputs[launch]["K"], base["K"]));
    }
    CHECK(same(all.inputs[SHIFTED_K]["Q"], base["Q"]));
    CHECK(same(all.inputs[SHIFTED_K]["V"], base["V"]));
    const Tensor &V = base["V"], &second = all.inputs[SECOND_V]["V"];
    const double shift = all.inputs[SHIFTED_K]["K"][0] - base["K"][0];
    CHECK(shift >= 1);  // of every score by as much as the sum of a query: far from nothing
    for (size_t i = 0; i < V.size(); ++i) {
      if (second[i] != V[V.size() - 1 - i] || all.inputs[SUM_OF_V]["V"][i] != V[i] + second[i] ||
          all.inputs[TWICE_V]["V"][i] != 2 * V[i] || all.inputs[SHIFTED_K]["K"][i] != base["K"][i] + shift)
        FAIL_CHECK("element " << i);
    }
  }
}

TEST_CASE(
    "a deviation is the largest of all elements, of each launch, and NaN if one is; bounds are of the tolerance") {
  // Of each property, by how much its outputs disagree where one of the answers is off by one.
  constexpr double BY_ONE[LAUNCHES][3] = {{1, 2, 1}, {1, 0, 0}, {0, 1, 0}, {0, 1, 0}, {0, 1, 0}, {0, 0, 1}};
  const Launches right = launched(DENSE);
  const double tolerance = make_reference(DENSE, right.inputs[BASE]).tolerance();
  REQUIRE(tolerance > 0);
  REQUIRE(right.results.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(right.results[i].name == std::array{"permuted_keys", "linear_in_v", "shifted_scores"}[i]);
    CHECK(right.results[i].deviation == 0);
    // Two outputs that may be off by the tolerance each; three of them, one of which counts twice.
    CHECK(right.results[i].bound == std::array{2, 4, 2}[i] * tolerance);
  }
  const size_t elements = static_cast<size_t>(DENSE.elements());
  for (int wrong = BASE; wrong < LAUNCHES; ++wrong) {
    for (const size_t at : {size_t{0}, elements / 2, elements - 1}) {
      for (const float off : {0.125f, -0.125f, std::numeric_limits<float>::quiet_NaN()}) {
        INFO("launch " << wrong << ", element " << at << ", off by " << off);
        const Launches all = launched(DENSE, [&](Launch launch, std::span<f16> output) {
          if (launch != wrong) return;
          // A smaller one beside it, on either side where there is one.
          for (const size_t beside : {at - 1, at + 1}) {
            if (beside < elements) output[beside] = to_f16(to_float(output[beside]) + 0.0625f);
          }
          output[at] = to_f16(to_float(output[at]) + off);
        });
        for (int i = 0; i < 3; ++i) {
          const double expected = BY_ONE[wrong][i] == 0 ? 0 : BY_ONE[wrong][i] * std::abs(off);
          CHECK(
              (all.results[i].deviation == expected || (std::isnan(expected) && std::isnan(all.results[i].deviation))));
          CHECK(all.results[i].holds() == (expected <= all.results[i].bound));
        }
      }
    }
  }
}

TEST_CASE("a launch that fails ends the properties with its error, whichever it is") {
  for (const Shape& shape : {DENSE, MASKED}) {
    for (int failing = BASE; failing < LAUNCHES; ++failing) {
      int launches = 0;
      const auto results = check_properties_of(
          [&](const Inputs&) -> Result<Tensor> {
            if (launches++ == failing) return failure(ExitCode::check_failed, fmt::format("launch {}", failing));
            return Tensor(formula_of(shape).outputs(shape).front());
          },
          shape, SEED);
      REQUIRE_FALSE(results);
      CHECK(results.error().message == fmt::format("launch {}", failing));
      CHECK(launches == failing + 1);
    }
  }
}

namespace {

// A runner of host functions with a chosen fault.
Run runner(void (*kernel)(const AttentionParams&), const Shape& shape) {
  return [kernel, shape](Inputs inputs) -> Result<Tensor> {
    Tensor output(formula_of(shape).outputs(shape).front());
    Arguments arguments{.spec = shape};
    arguments.add({"O", output.bytes().data(), {}});
    for (Tensor& input : inputs) arguments.add({input.name().data(), input.bytes().data(), {}});
    AttentionParams params;
    convert(arguments, params);
    kernel(params);
    return output;
  };
}

std::vector<std::string> broken(void (*kernel)(const AttentionParams&), const Shape& shape = SHAPE) {
  std::vector<std::string> names;
  const auto properties = check_properties_of(runner(kernel, shape), shape, 1);
  for (const PropertyResult& property : properties.value()) {
    if (!property.holds()) names.emplace_back(property.name);
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

constexpr Shape UNDER_A_MASK{.batch = 1, .heads = 2, .n = 64, .d = 32, .causal = true};

TEST_CASE("attention has all properties") {
  const auto plain = [](const AttentionParams& p) { attention(p); };
  CHECK(broken(plain) == Names{});
  CHECK(broken(plain, UNDER_A_MASK) == Names{});
}

TEST_CASE("each property is broken by the fault it guards against") {
  // Slight faults, so that loose bounds would let them pass. Weights by position: order matters.
  CHECK(broken([](const AttentionParams& p) { attention(p, [](int j, double) { return 1.0 + 0.2 * (j % 2); }); }) ==
        Names{"permuted_keys"});
  // One key of the future is seen.
  CHECK(broken([](const AttentionParams& p) { attention(p, EVEN, 0, 1); }, UNDER_A_MASK) == Names{"prefix"});
  // A constant in the output: no longer linear.
  CHECK(broken([](const AttentionParams& p) { attention(p, EVEN, 0.05f); }) == Names{"linear_in_v"});
  // An exponential that is slightly off for large scores: no longer a matter of differences.
  CHECK(broken([](const AttentionParams& p) {
          attention(p, [](int, double score) { return std::exp(0.002 * score * score); });
        }) == Names{"shifted_scores"});
  // NaN agrees with nothing.
  CHECK(broken([](const AttentionParams& p) { std::fill_n(p.O, SHAPE.elements(), POISON); }) ==
        Names{"permuted_keys", "linear_in_v", "shifted_scores"});
}
