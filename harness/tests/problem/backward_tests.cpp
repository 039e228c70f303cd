// The gradients' reference against what a gradient is: how much the loss sum(dO * O) changes with one number of an input.
#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/problem/formula.hpp"
#include "harness/problem/problem.hpp"
#include "harness/problem/spec.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

// In f32, so that nothing is rounded that matters here.
Problem problem_of(const char* words) {
  const Spec f32{
      .formula = "backward", .d = 16, .q_type = Element::f32, .kv_type = Element::f32, .o_type = Element::f32};
  const Spec spec = parse_spec(words, f32).value();
  const InputKind kinds[] = {InputKind::normal, InputKind::sinks};
  return make_problem(spec, std::span(kinds, spec.key_heads() > 1 ? 2 : 1), 7);
}

// The formula of the forward pass, one loop after the other, of the heads from `first_unit` on in such steps.
double loss(const Spec& spec, const Tensors& inputs, int64_t first_unit = 0, int64_t step = 1) {
  double sum = 0;
  const int group = spec.heads / spec.key_heads();
  const auto at = [&](const char* name, int64_t unit, int64_t row, int64_t c) {
    return inputs[name][static_cast<size_t>(inputs[name].spec().index(unit, row) + c)];
  };
  for (int64_t unit = first_unit; unit < spec.batch_heads(); unit += step) {
    const int64_t sequence = unit / spec.heads, n_q = spec.lens_q.count > 0 ? spec.lens_q.of[sequence] : spec.n,
                  n_k = spec.lens_k.count > 0 ? spec.lens_k.of[sequence] : spec.keys();
    const auto head = static_cast<size_t>(unit % spec.heads);
    for (int64_t query = 0; query < n_q; ++query) {
      const int64_t own = query + n_k - n_q, begin = spec.left < 0 ? 0 : std::max<int64_t>(own - spec.left, 0),
                    end = spec.causal ? std::clamp<int64_t>(own + 1, 0, n_k) : n_k;
      double weights = spec.sink ? std::exp(inputs["sinks"][head]) : 0, weighted = 0;
      for (int64_t key = begin; key < end; ++key) {
        double score = 0, dP = 0;
        for (int64_t c = 0; c < spec.d; ++c) {
          score += at("Q", unit, query, c) * at("K", unit / group, key, c);
          dP += at("dO", unit, query, c) * at("V", unit / group, key, c);
        }
        score *= spec.scale();
        if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
        if (spec.alibi) score -= inputs["slopes"][head] * std::abs(static_cast<double>(key - own));
        weights += std::exp(score);
        weighted += std::exp(score) * dP;
      }
      if (begin < end) sum += weighted / weights;
    }
  }
  return sum;
}
// By how much `loss_at` changes with a step, of fourth order in it.
template <class LossAt>
double difference(const LossAt& loss_at) {
  constexpr double STEP = 1.0 / 128;  // exact in f32
  const double near = (loss_at(STEP) - loss_at(-STEP)) / (2 * STEP),
               far = (loss_at(2 * STEP) - loss_at(-2 * STEP)) / (4 * STEP);
  return (4 * near - far) / 3;
}

}  // namespace

TEST_CASE("a gradient is the difference that a small step of an input makes") {
  const char* words = GENERATE("h=2 n=32", "h=2 n=32 causal", "b=2 h=2 kv=1 nq=24 nk=32 causal", "h=4 kv=2 nq=32 nk=8",
                               "h=1 nq=32 nk=24 causal", "b=3 h=2 n=32 causal lens_q=32,20,5 lens_k=7,32,0",
                               "h=2 n=32 softcap=2", "h=2 n=32 causal alibi window=9,0", "b=2 h=4 kv=2 n=24 sink",
                               "b=2 h=2 n=24 causal window=9,0 softcap=5 alibi sink lens_q=24,11 lens_k=7,24");
  CAPTURE(words);
  Problem problem = problem_of(words);
  for (const auto& [input, output] : {std::pair{"Q", "dQ"}, {"K", "dK"}, {"V", "dV"}}) {
    const Reference::Answer& gradient = problem.reference[output];
    Tensor& tensor = problem.inputs[input];
    int64_t rows = 0;
    for (int64_t unit = 0; unit < tensor.spec().units(); ++unit) rows += tensor.spec().rows_of(unit);
    REQUIRE(std::ssize(gradient.values) == rows * gradient.columns);
    for (size_t i = 0; i < gradient.values.size(); i += 101) {
      const Cell cell = gradient.cells[i / gradient.columns];
      const int64_t at = tensor.spec().index(cell.unit, cell.row) + static_cast<int64_t>(i) % gradient.columns;
      const double value = tensor[static_cast<size_t>(at)];
      const double expected = difference([&](double step) {
        tensor.set(at, value + step);
        return loss(problem.shape, problem.inputs);
      });
      tensor.set(at, value);
      CAPTURE(input, i);
      CHECK(gradient.values[i] == Approx(expected).margin(2e-6));
    }
  }
}

TEST_CASE("a sink's gradient is the same difference, of each sequence") {
  const char* words = GENERATE("h=3 n=24 sink", "b=2 h=4 kv=2 nq=9 nk=24 causal sink softcap=3",
                               "h=2 nq=20 nk=8 causal sink alibi",  // the first queries see nothing but their sink
                               "b=2 h=2 n=24 sink lens_q=24,5 lens_k=0,24");
  CAPTURE(words);
  Problem problem = problem_of(words);
  const Reference::Answer& gradient = problem.reference["dsinks"];
  REQUIRE(std::ssize(gradient.values) == problem.shape.batch_heads());
  Tensor& sinks = problem.inputs["sinks"];
  for (int64_t unit = 0; unit < problem.shape.batch_heads(); ++unit) {
    const int64_t head = unit % problem.shape.heads;
    const double value = sinks[static_cast<size_t>(head)];
    const double expected = difference([&](double step) {
      sinks.set(head, value + step);
      return loss(problem.shape, problem.inputs, unit, problem.shape.batch_heads());
    });
    sinks.set(head, value);
    CAPTURE(unit);
    CHECK(gradient.values[unit] == Approx(expected).margin(2e-6));
    CHECK(gradient.row_tolerance[unit] <= 1e-3);
  }
}

TEST_CASE("rows without keys and keys that nobody sees have gradients of zero, and what no row holds reaches nobody") {
  const Problem few_keys =
      problem_of("h=2 nq=40 nk=8 causal");  // the first 32 queries see none, the next one a key whose weight is 1
                                            // whatever happens
  for (const Cell& cell : few_keys.reference["dQ"].cells) {
    const auto row = few_keys.reference["dQ"].row(static_cast<size_t>(&cell - few_keys.reference["dQ"].cells.data()));
    CHECK(std::ranges::all_of(row, [](double value) { return value == 0; }) == (cell.row <= 32));
  }
  const Problem lengths = problem_of("b=3 h=2 n=32 lens_q=32,0,5 lens_k=7,32,0");
  Spec padded = lengths.shape;
  padded.lens_q = padded.lens_k = {};
  CHECK(formula_of(padded).work(lengths.shape).bytes < formula_of(padded).work(padded).bytes / 2);
  for (const Reference::Answer& answer : lengths.reference.answers) {
    CHECK(std::ranges::all_of(answer.values, [](double value) { return std::isfinite(value); }));
    const int64_t used = answer.output == "dQ" ? 32 + 0 + 5 : 7 + 32 + 0;
    CHECK(std::ssize(answer.cells) == 2 * used);
    for (size_t i = 0; i < answer.cells.size(); ++i) {
      const bool meets = answer.cells[i].unit < 2;  // only the first sequence has both
      CHECK(std::ranges::all_of(answer.row(i), [](double value) { return value == 0; }) == !meets);
    }
  }
}

TEST_CASE("a sample of gradients is the whole's, and each output has a tolerance of its own") {
  const Problem problem = problem_of("h=4 kv=2 nq=48 nk=32");
  const Formula& formula = formula_of(problem.shape);
  const Cells some{{{0, 3}, {3, 47}}, {{1, 0}}, {{0, 31}, {1, 31}}};
  const Reference sample = formula.make_reference(problem.shape, problem.inputs, some, 2, true);
  for (const Reference::Answer& answer : sample.answers) {
    const Reference::Answer& whole = problem.reference[answer.output];
    for (size_t i = 0; i < answer.cells.size(); ++i) {
      const auto at = std::ranges::find(whole.cells, answer.cells[i]) - whole.cells.begin();
      CHECK(std::ranges::equal(answer.row(i), whole.row(static_cast<size_t>(at))));
      CHECK(answer.row_tolerance[i] > 0);
    }
  }
  Spec f16 = problem.shape;
  f16.q_type = f16.kv_type = f16.o_type = Element::f16;
  const Problem rounded = make_problem(f16, InputKind::normal, 1);
  CHECK(rounded.reference["dV"].tolerance() > 1e-4);
  CHECK(rounded.reference["dV"].tolerance() != rounded.reference["dK"].tolerance());
  CHECK(rounded.reference["dK"].tolerance() != rounded.reference["dQ"].tolerance());
  CHECK(formula.work(f16).flops == 2.5 * formula_of(Spec{}).work(f16).flops);
}
