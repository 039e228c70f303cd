// What a check on a GPU says, with a card in the host's memory: its kernel is a function of the test, and any of its steps
// can fail.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "harness/devices/gpu.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verbs/verbs.hpp"
#include "harness/verify/check.hpp"
#include "harness/verify/judge.hpp"

namespace ladder {
namespace {

struct Card {
  std::function<void(const Inputs&, Tensors&)> kernel = {};
  Status create = {}, poison = {}, run = {}, read = {}, hash = {}, guards = {}, inputs = {};  // what each step says
  std::vector<std::string> steps = {};                                                        // in their order
  std::vector<uint64_t> workspaces = {};                                                      // bytes, of each problem
  int launched_heads = 0;                                                                     // 0: those of the inputs
  Result<GpuInfo> info = failure(ExitCode::cannot_run_here, "no card");
} card;

Status step(const char* name, const Status& status) {
  card.steps.emplace_back(name);
  return status;
}

Unexpected no_card() {
  return failure(ExitCode::cannot_run_here, "no card");
}

// In place of gpu.cu and gpu_none.cpp, which the linker leaves in the library because all of their functions are here.
class CardProblem final : public GpuProblem {
 public:
  CardProblem(const Shape& shape, const Inputs& inputs) : inputs_(inputs) {
    for (TensorSpec spec : formula_of(shape).outputs(shape)) {
      if (card.launched_heads > 0) spec.shape = {1, card.launched_heads, spec.rows(), spec.columns()};
      outputs_.add(Tensor(spec)).poison();
    }
  }
  Status poison_output() override {
    for (Tensor& output : outputs_) output.poison();
    return step("poison", card.poison);
  }
  Status run(const Variant& variant, const Launch&) override {
    card.kernel(inputs_, outputs_);
    if (inputs_["Q"].spec().columns() > variant.accepts.max_d) {  // it knows nothing of the columns behind
      for (f16& value : outputs_["O"].half()) value = to_f16(0.5f);
    }
    return step("run", card.run);
  }
  Result<Tensor> read_output(std::string_view name, int) const override {
    if (const Status status = step("read", card.read); !status) return Unexpected{status.error()};
    return outputs_[name];
  }
  Result<Tensor> read_rows(std::string_view name, std::span<const OutputRow> rows) const override {
    if (const Status status = step("read rows", card.read); !status) return Unexpected{status.error()};
    const Tensor& whole = outputs_[name];
    const TensorSpec& spec = whole.spec();
    Tensor some(tensor(name, spec.element, {1, 1, std::ssize(rows), spec.columns()}));
    const size_t bytes = spec.row_bytes();
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].output != 0) return no_card();
      std::ranges::copy(
          whole.bytes().subspan(static_cast<size_t>(rows[i].cell.unit * spec.rows() + rows[i].cell.row) * bytes, bytes),
          some.bytes().subspan(i * bytes).begin());
    }
    return some;
  }
  Result<uint64_t> hash_of_outputs() const override {
    if (const Status status = step("hash", card.hash); !status) return Unexpected{status.error()};
    std::string all;
    for (const Tensor& output : outputs_)
      all.append(reinterpret_cast<const char*>(output.bytes().data()), output.bytes().size());
    return std::hash<std::string>{}(all);
  }
  Status check_guards() const override { return step("guards", card.guards); }
  Status check_inputs(const Inputs& inputs) const override {
    if (!std::ranges::equal(inputs["K"].bytes(), inputs_["K"].bytes()))
      return failure(ExitCode::check_failed, "K holds something else");
    return step("inputs", card.inputs);
  }
  Status fill_output(int, const Filling&) override { return no_card(); }
  Status negate(std::string_view, std::span<const uint8_t>) override { return no_card(); }
  Result<double> time_ms(const Variant&, std::span<const Launch>) override { return no_card(); }

 private:
  Inputs inputs_;
  Tensors outputs_;
};

}  // namespace

Result<std::unique_ptr<GpuProblem>> GpuProblem::create(const Shape& shape, const Inputs& inputs,
                                                       uint64_t workspace_bytes, const Inputs&, int) {
  card.workspaces.push_back(workspace_bytes);
  if (!card.create) return Unexpected{card.create.error()};
  return std::make_unique<CardProblem>(shape, inputs);
}
Result<std::unique_ptr<GpuProblem>> GpuProblem::create_repeated(const Shape&, const Inputs&, uint64_t) {
  return no_card();
}
Result<GpuInfo> gpu_info() {
  return card.info;
}
Result<KernelResources> gpu_resources(const Variant&, int) {
  return no_card();
}
Result<std::unique_ptr<SmClocks>> SmClocks::create() {
  return no_card();
}

}  // namespace ladder

using namespace ladder;

namespace {

// The first rung, to which reports refer, and one that takes what it does not.
const GpuLaunch LAUNCH(+[](gpu::Device&, const AttentionParams&) {});
const Registration PLAINEST(
    {.name = "00_plainest", .idea = "", .limit = "", .prediction = "", .variants = {{.on_gpu = LAUNCH}}});
const Registration WIDER({.name = "01_wider",
                          .previous = "00_plainest",
                          .idea = "",
                          .limit = "",
                          .prediction = "",
                          .variants = {{.label = "wide", .on_gpu = LAUNCH, .accepts = {.max_d = 256}}}});

constexpr Shape SHAPE{.batch = 2, .heads = 2, .n = 48, .d = 32};
const std::array TWO_SETS{InputKind::normal, InputKind::peaky};

// A right kernel: O rounded to f16, and LSE, of what the formula gives.
void attend(const Inputs& inputs, Tensors& outputs) {
  const TensorSpec &spec = outputs["O"].spec(), &queries = inputs["Q"].spec();
  const int64_t n = spec.rows(), d = spec.columns(), known = queries.units();
  const Reference right = make_reference({.batch = static_cast<int>(queries.shape[0]),
                                          .heads = static_cast<int>(queries.shape[1]),
                                          .n = static_cast<int>(n),
                                          .d = static_cast<int>(d)},
                                         inputs);
  for (size_t i = 0; i < right["O"].cells.size(); ++i) {
    const auto [head, query] = right["O"].cells[i];
    // Of more heads than the inputs have, the first ones and the last are theirs.
    const int64_t row = (head < known - 1 ? head : spec.units() - 1) * n + query;
    for (int64_t c = 0; c < d; ++c) outputs.half("O")[row * d + c] = to_f16(static_cast<float>(right["O"].row(i)[c]));
    outputs["LSE"].single()[row] = static_cast<float>(right["LSE"].values[i]);
  }
}

struct Judged {
  std::vector<CheckResult> results;
  std::vector<std::string> steps;

  // "set: kind: message" of everything that is wrong.
  std::vector<std::string> said() const {
    std::vector<std::string> all;
    for (const CheckResult& result : results) {
      for (const Failure& failure : result.failures)
        all.push_back(fmt::format("{}: {}: {}", result.inputs, to_string(failure.kind), failure.message));
    }
    return all;
  }
};

// The attention, with a change of what it has written, on a card of which a step may fail.
Judged judged(const std::function<void(Tensors&)>& change, Card with = {}, const Tensor& naive = {},
              bool same_bits = false, int launches = 1) {
  static const Problem problem = make_problem(SHAPE, TWO_SETS, 1, true);
  card = std::move(with);
  card.kernel = [&](const Inputs& inputs, Tensors& outputs) {
    attend(inputs, outputs);
    change(outputs);
  };
  const Rung rung{.name = "99_fake", .idea = "", .limit = "", .prediction = ""};
  const Variant variant{.label = "on the card", .writes_lse = true, .same_bits = same_bits};
  const auto on_card = GpuProblem::create(SHAPE, problem.inputs, 0).value();
  auto results = check_sets_on_gpu(rung, variant, problem, *on_card, naive, launches);
  return {std::move(results), card.steps};
}

void nothing(Tensors&) {}

// Element (head, query, column) of O.
f16& O_at(Tensors& outputs, int64_t head, int64_t query, int64_t column) {
  return outputs.half("O")[(head * SHAPE.n + query) * SHAPE.d + column];
}

using Said = std::vector<std::string>;

}  // namespace

TEST_CASE("on a GPU a right kernel has a right result for each input set, and its output is kept") {
  Tensor output;
  const Judged right = judged([&](Tensors& outputs) { output = outputs["O"]; });
  CHECK(right.steps == Said{"poison", "run", "read", "read", "guards", "inputs"});
  REQUIRE(right.results.size() == 2);
  for (size_t set = 0; set < 2; ++set) {
    const CheckResult& result = right.results[set];
    CHECK(result.ok);
    CHECK(right.said().empty());
    CHECK(result.rung == "99_fake");
    CHECK(result.variant == "on the card");
    CHECK(result.backend == Place::gpu);
    CHECK(result.shape == SHAPE);
    CHECK(result.inputs == to_string(TWO_SETS[set]));
    CHECK(result.max_err > 0);
    CHECK(result.max_err < result.tolerance);
    CHECK(result.rms_err < result.rms_tolerance);
    CHECK_FALSE(result.counters);
  }
  CHECK(std::ranges::equal(right.results[0].output.bytes(), output.bytes()));
  CHECK(right.results[1].output.empty());
}

TEST_CASE("on a GPU what is wrong in a head is its set's alone, and says where") {
  const Judged poisoned = judged([](Tensors& outputs) { O_at(outputs, 3, 47, 31) = O_at(outputs, 3, 9, 2) = POISON; });
  CHECK(poisoned.said() == Said{"peaky: unwritten_output: 2 of 3072 output elements were never written, the first at "
                                "batch 1, head 1, query 9, column 2"});
  const Judged wrong = judged([](Tensors& outputs) { O_at(outputs, 2, 1, 3) = to_f16(5); });
  REQUIRE(wrong.said().size() == 1);
  CHECK_THAT(wrong.said()[0], StartsWith("normal: wrong_result: max error ") &&
                                  Contains(" at batch 1, head 0, query 1, column 3: 5 instead of "));
  const Judged lse = judged([](Tensors& outputs) { outputs["LSE"].single()[1 * SHAPE.n + 6] += 0.5f; });
  REQUIRE(lse.said().size() == 1);
  CHECK_THAT(lse.said()[0], StartsWith("peaky: wrong_lse: log-sum-exp is wrong in 1 of 96 rows, the first at batch 0, "
                                       "head 1, query 6: "));
}

TEST_CASE("on a GPU what promises the same bits is launched as often as asked for, and what does not once") {
  int made = 0;
  const auto drifts = [&](Tensors& outputs) {
    if (++made < 4) return;
    f16& element = O_at(outputs, 1, 7, 5);
    element.bits ^= 1;
  };
  std::vector<std::string> steps;
  const auto said = [&](bool same_bits, int launches) {
    made = 0;
    const Judged result = judged(drifts, {}, {}, same_bits, launches);
    steps = result.steps;
    return result.said();
  };
  CHECK(said(false, 5).empty());
  CHECK(made == 1);
  CHECK(said(true, 3).empty());
  CHECK(made == 3);
  CHECK(std::ranges::count(steps, "read") == 2);  // O and LSE of the first launch alone
  const Said different = said(true, 5);
  REQUIRE(different.size() == 2);  // in every set
  CHECK(made == 4);
  CHECK_THAT(different[0],
             Contains("order_dependent: two launches give ") &&
                 Contains(" in O at batch 0, head 1, query 7, column 5; launch 4 differs from the first"));
  made = 0;
  const auto other_nan = [&](Tensors& outputs) { O_at(outputs, 1, 7, 5).bits = ++made == 1 ? 0x7e00 : 0x7e01; };
  for (const std::string& words : judged(other_nan, {}, {}, true, 3).said())
    CHECK(!Contains("two launches").match(words));
  CHECK(made == 3);
  Card silent;
  silent.hash = failure(ExitCode::check_failed, "the card's words");
  CHECK(judged(nothing, silent, {}, true, 3).said() ==
        Said{"normal: launch_failed: the card's words", "peaky: launch_failed: the card's words"});
}

TEST_CASE("on a GPU each step that fails fails the check, with its words, in every set") {
  const auto broken = [](Status Card::*which) {
    Card with;
    with.*which = failure(ExitCode::check_failed, "the card's words");
    return judged(nothing, std::move(with));
  };
  const auto all_sets = [](std::string_view kind) {
    return Said{fmt::format("normal: {}: the card's words", kind), fmt::format("peaky: {}: the card's words", kind)};
  };
  for (const auto& [which, last] : {std::pair{&Card::poison, "poison"}, {&Card::run, "run"}, {&Card::read, "read"}}) {
    const Judged died = broken(which);
    CHECK(died.said() == all_sets("launch_failed"));
    CHECK(died.steps.back() == last);  // nothing is asked of a card that has failed
    for (const CheckResult& result : died.results) CHECK(result.output.empty());
  }
  CHECK(broken(&Card::guards).said() == all_sets("guard_overwritten"));
  CHECK(broken(&Card::inputs).said() == all_sets("input_modified"));
}

TEST_CASE("on a GPU an output is held to the plainest stage's as well, each off by its set's tolerance at most") {
  const Problem problem = make_problem(SHAPE, TWO_SETS, 1, true);
  Tensor naive;
  judged([&](Tensors& outputs) { naive = outputs["O"]; });
  CHECK(judged(nothing, {}, naive).said().empty());
  double allowed[2] = {};
  for (size_t i = 0; i < problem.reference["O"].cells.size(); ++i) {
    double& of_set = allowed[problem.reference["O"].set_of(i)];
    of_set = std::max(of_set, 2 * problem.reference["O"].tolerance_of_row(i / SHAPE.n % 2, i));
  }
  CHECK(allowed[0] < allowed[1]);
  // Of the first set elements that are small, so that f16 has room for small differences.
  std::vector<int64_t> small;
  for (int64_t i = 0; i < SHAPE.n * SHAPE.d; ++i) {
    if (std::abs(naive[i]) < 0.03) small.push_back(i);
  }
  REQUIRE(small.size() >= 2);
  const auto shifted = [&](double first, double second = 0) {
    Tensor other = naive;
    other.half()[small[0]] = to_f16(static_cast<float>(naive[small[0]] + first));
    other.half()[small[1]] = to_f16(static_cast<float>(naive[small[1]] + second));
    return judged(nothing, {}, other).said();
  };
  const auto differs = [&](double by) {
    return Said{
        fmt::format("normal: differs_from_naive: differs from 00_plainest on this GPU by {:.2e} somewhere; {:.2e} is "
                    "allowed",
                    by, allowed[0])};
  };
  CHECK(shifted(0.8 * allowed[0]).empty());
  const Said beyond = shifted(1.2 * allowed[0]);
  REQUIRE(beyond.size() == 1);
  CHECK_THAT(beyond[0],
             StartsWith("normal: differs_from_naive: ") && EndsWith(fmt::format("{:.2e} is allowed", allowed[0])));
  CHECK(shifted(0.5, 0.3) == differs(0.5));  // the largest, and not the last
  CHECK(shifted(0.3, 0.5) == differs(0.5));
  Tensor nan = naive;
  nan.half()[5 * SHAPE.d] = POISON;
  nan.half()[6 * SHAPE.d] = to_f16(9);
  CHECK(judged(nothing, {}, nan).said() == differs(std::numeric_limits<double>::quiet_NaN()));
  Card broken;
  broken.run = failure(ExitCode::check_failed, "the card's words");
  CHECK(judged(nothing, broken, naive).said().size() == 2);  // and nothing is compared
}

TEST_CASE("on a GPU the plainest stage's NaN is the reference's affair, but not where the other has a number") {
  const Shape shape{.batch = 1, .heads = 1, .n = 48, .d = 32};
  Problem problem = make_question(shape, std::array{InputKind::normal}, 1);
  problem.inputs.half("Q")[0] = {0x7e00};  // of the first query
  problem.reference =
      problem.formula().make_reference(shape, problem.inputs, Cells(2, {{0, 0}, {0, 1}, {0, 2}}), 1, true);
  const Rung rung{.name = "99_fake", .idea = "", .limit = "", .prediction = ""};
  const Variant variant{.label = "on the card"};
  card = {};
  card.kernel = attend;
  const auto on_card = GpuProblem::create(shape, problem.inputs, 0).value();
  const CheckResult right = check_on_gpu(rung, variant, problem, *on_card, {});
  CHECK(right.ok);
  CHECK(check_on_gpu(rung, variant, problem, *on_card, right.output).ok);
  Tensor number = right.output;
  number.half()[3] = to_f16(0.5f);
  const CheckResult differs = check_on_gpu(rung, variant, problem, *on_card, number);
  REQUIRE(differs.failures.size() == 1);
  CHECK(differs.failures[0].kind == FailureKind::differs_from_naive);
}

TEST_CASE("on a GPU nothing is compared with the plainest stage that it cannot solve") {
  GpuInfo info;
  info.sm = 90;
  info.memory_free = 1 << 30;
  info.smem_per_block = 1 << 17;
  card = {};
  card.kernel = attend;
  card.info = info;
  Options options;
  options.rungs = {&rungs()[1]};
  options.rungs_named = true;
  options.n = {48};
  options.d = 256;
  options.inputs = {InputKind::normal};
  options.on = Where::gpu;
  options.json = "-";
  const auto code = check_verb(options);
  REQUIRE(code);
  CHECK(*code == ExitCode::done);
}

TEST_CASE("on a GPU a problem has the workspace of the stage that runs it") {
  const Rung& rung = rungs()[1];
  const Variant& plain = rung.variants[0];
  Variant storing = plain;
  storing.workspace_bytes = [](const Shape&) -> uint64_t { return 1000; };
  card = {};
  card.kernel = attend;
  GpuInfo info;
  info.memory_free = 1 << 30;
  Judge judge({.trials = {.inputs = {InputKind::normal}}});
  const std::vector<Subject> both{{&rung, &plain, "plain"}, {&rung, &storing, "storing"}};
  REQUIRE(judge.judge(*gpu_backend(info), both, {Shape{.batch = 1, .heads = 1, .n = 16, .d = 128}}));
  CHECK(card.workspaces == std::vector<uint64_t>{0, 1000});
}

TEST_CASE("on a GPU that holds more heads than can be read, the known ones are read and judged") {
  Problem problem = make_problem({.heads = 2, .n = 48, .d = 32}, InputKind::normal, 1, true);
  problem.far_heads = 3;
  card = {};
  card.kernel = attend;
  card.launched_heads = 3;
  const Rung rung{.name = "99_fake", .idea = "", .limit = "", .prediction = ""};
  const Variant variant{.label = "on the card", .writes_lse = true};
  const auto check = [&] {
    const auto on_card = GpuProblem::create(problem.shape, problem.inputs, 0).value();
    return check_on_gpu(rung, variant, problem, *on_card, {});
  };
  const CheckResult right = check();
  INFO((right.ok ? "" : right.failures[0].message));
  CHECK(right.ok);
  CHECK(right.shape.batch_heads() == 3);
  CHECK(card.steps == Said{"poison", "run", "read rows", "read rows", "guards"});  // no inputs to compare with
  for (const int64_t row : {int64_t{0}, int64_t{47}, int64_t{2 * 48}, int64_t{3 * 48 - 1}}) {
    card.kernel = [row](const Inputs& inputs, Tensors& outputs) {
      attend(inputs, outputs);
      outputs.half("O")[row * 32 + 7] = POISON;
    };
    const CheckResult result = check();
    for (const Failure& failure : result.failures) UNSCOPED_INFO(failure.message);
    REQUIRE(result.failures.size() == 1);
    const Shape launched = problem.launched();
    CHECK(
        result.failures[0].message ==
        fmt::format("1 of 3072 output elements were never written, the first at batch {}, head {}, query {}, column 7",
                    row / 48 / launched.heads, row / 48 % launched.heads, row % 48));
  }
}

TEST_CASE("properties are checked on a GPU as on the emulator, and a card that fails ends them") {
  const Rung rung{.name = "99_fake", .idea = "", .limit = "", .prediction = ""};
  const Variant variant{.label = "on the card"};
  const Shape shape{.batch = 1, .heads = 1, .n = 48, .d = 32};
  const auto said = [&] {
    Said all;
    for (const CheckResult& result : check_properties(rung, variant, shape, 1, Place::gpu)) {
      CHECK(result.backend == Place::gpu);
      CHECK(result.ok == result.failures.empty());
      CHECK(result.max_err <= result.tolerance);
      if (result.inputs == "linear_in_v") CHECK(result.max_err > 0);  // three roundings to f16
      all.push_back(result.inputs + (result.ok ? "" : ": " + result.failures[0].message));
    }
    return all;
  };
  card = {};
  card.kernel = attend;
  CHECK(said() == Said{"permuted_keys", "linear_in_v", "shifted_scores"});
  card.create = failure(ExitCode::cannot_run_here, "no room");
  CHECK(said() == Said{"properties: no room"});
  card.create = {};
  card.run = failure(ExitCode::check_failed, "the card's words");
  CHECK(said() == Said{"properties: the card's words"});
}
