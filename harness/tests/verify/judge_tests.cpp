// The judge over a back end of the test's: what is run and in which order, what is kept, and how it ends.
#include "harness/verify/judge.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr Shape SHAPE{.n = 16, .d = 8};

// Right, if `runs` does not say otherwise; it notes who was run on which problem.
struct Fake final : Backend {
  bool shares_memory = false;
  std::optional<double> most = {};
  std::function<std::vector<Trial>(const Shape&)> make = [](const Shape& shape) {
    return std::vector<Trial>{{.shape = shape, .kinds = {InputKind::normal}},
                              {.shape = shape, .kinds = {InputKind::peaky}}};
  };
  using Runs = Result<std::vector<CheckResult>>(const Subject&, const Trial&, const std::atomic<bool>&);
  std::function<Runs> runs = [](const Subject&, const Trial&, const std::atomic<bool>&) {
    return std::vector<CheckResult>(1);
  };
  double work = 60;  // so much that a launch goes alone
  std::vector<std::pair<std::string, const Problem*>> seen = {};
  std::mutex mutex = {};
  mutable std::vector<TrialChoice> asked = {};

  Place place() const override { return Place::emulator; }
  Status fits(const Shape&, uint64_t) const override { return {}; }
  std::vector<Trial> trials(const Subject&, const Shape& shape, const TrialChoice& choice) const override {
    asked.push_back(choice);
    return make(shape);
  }
  double seconds(const Variant&, const Trial&) const override { return work; }
  std::optional<double> patience(const Variant&, const Trial&, bool) const override { return most; }
  bool by_trial() const override { return shares_memory; }
  Result<std::vector<CheckResult>> run(const Subject& subject, const Trial& trial, const Problem& problem,
                                       const std::atomic<bool>& stop) override {
    {
      const std::lock_guard guard(mutex);
      seen.emplace_back(subject.name, &problem);
    }
    return runs(subject, trial, stop);
  }
};

const Rung& any_rung() {
  static const Rung rung = [] {
    Rung made;
    made.name = "99_fake";
    made.variants.emplace_back();
    made.variants[0].accepts.min_d = 1;
    return made;
  }();
  return rung;
}

std::vector<Subject> subjects(std::initializer_list<const char*> names) {
  std::vector<Subject> all;
  for (const char* name : names) all.push_back({&any_rung(), &any_rung().variants[0], name});
  return all;
}

std::vector<std::string> names(const Fake& backend) {
  std::vector<std::string> names;
  for (const auto& [name, problem] : backend.seen) names.push_back(name);
  return names;
}

CheckResult wrong(FailureKind kind) {
  CheckResult result;
  result.failures.push_back({kind, "so"});
  return result;
}

}  // namespace

TEST_CASE("subjects come one after the other, or trial by trial where they share its memory, and its problem always") {
  for (const bool shares : {false, true}) {
    Fake backend;
    backend.shares_memory = shares;
    Judge judge({});
    REQUIRE(judge.judge(backend, subjects({"a", "b"}), {SHAPE}));
    using Names = std::vector<std::string>;
    CHECK(names(backend) == (shares ? Names{"a", "b", "a", "b"} : Names{"a", "a", "b", "b"}));
    CHECK(backend.seen[0].second == backend.seen[shares ? 1 : 2].second);
    CHECK(judge.done == 4);
    REQUIRE(judge.report.lines.size() == 2);
    CHECK(judge.report.lines[0].results.size() == 2);
  }
}

TEST_CASE("small launches go side by side, and their results stand in the order of the plan") {
  if (std::thread::hardware_concurrency() < 2) return;
  using namespace std::chrono;
  Fake backend;
  backend.work = 0.1;
  std::atomic<int> begun = 0;
  backend.runs = [&](const Subject& subject, const Trial& trial, const std::atomic<bool>&) {
    const auto end = steady_clock::now() + 30s;
    for (++begun; begun < 2 && steady_clock::now() < end;) std::this_thread::sleep_for(1ms);
    std::vector<CheckResult> results(1);
    results[0].inputs = subject.name + " " + std::string(to_string(trial.kinds[0]));
    results[0].ok = begun >= 2;
    return results;
  };
  Judge judge({});
  REQUIRE(judge.judge(backend, subjects({"a", "b"}), {SHAPE}));
  REQUIRE(judge.report.lines.size() == 2);
  CHECK(judge.report.lines[0].results[0].ok);
  CHECK(judge.report.lines[0].results[1].inputs == "a peaky");
  CHECK(judge.report.lines[1].results[0].inputs == "b normal");
}

TEST_CASE("what a launch throws beside others is thrown by the judge") {
  Fake backend;
  backend.work = 0.1;
  backend.runs = [](const Subject& subject, const Trial&,
                    const std::atomic<bool>&) -> Result<std::vector<CheckResult>> {
    if (subject.name == "b") throw std::bad_alloc();
    return std::vector<CheckResult>(1);
  };
  Judge judge({});
  CHECK_THROWS_AS(judge.judge(backend, subjects({"a", "b"}), {SHAPE}), std::bad_alloc);
}

TEST_CASE("with the first failure a subject's check ends, and nobody else's; other counts are none") {
  Fake backend;
  backend.runs = [](const Subject& subject, const Trial&, const std::atomic<bool>&) {
    return std::vector<CheckResult>{
        wrong(subject.name == "a" ? FailureKind::wrong_result : FailureKind::counts_differ)};
  };
  Judge judge({.first_failure = true});
  REQUIRE(judge.judge(backend, subjects({"a", "b"}), {SHAPE}));
  CHECK(names(backend) == std::vector<std::string>{"a", "b", "b"});
  CHECK_FALSE(judge.report.lines[1].counts_right());
  Judge of_answers({.answers_only = true});
  REQUIRE(of_answers.judge(backend, subjects({"b"}), {SHAPE}));
  CHECK(of_answers.report.lines[0].results[0].ok);
}

TEST_CASE("a subject may be looked at quickly beside one that is judged thoroughly") {
  Fake backend;
  std::vector<Subject> both = subjects({"a", "b"});
  both[1].quick = true;
  Judge judge({.trials = {.inputs = {InputKind::normal}, .thorough = true}});
  REQUIRE(judge.judge(backend, both, {SHAPE}));
  REQUIRE(backend.asked.size() == 2);
  CHECK((backend.asked[0].thorough && !backend.asked[0].quick));
  CHECK((backend.asked[1].quick && !backend.asked[1].thorough));
}

TEST_CASE("a launch that takes too long is stopped, and the report says by which limit and how to raise it") {
  Fake backend;
  backend.runs = [](const Subject&, const Trial&, const std::atomic<bool>& stop) {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::vector<CheckResult>{};
  };
  Judge judge({.timeout = 0.05});
  REQUIRE(judge.judge(backend, subjects({"a"}), {SHAPE}));
  CHECK_FALSE(judge.lost);
  REQUIRE(judge.report.lines[0].results.size() == 2);
  const CheckResult& stopped = judge.report.lines[0].results[0];
  REQUIRE(stopped.has(FailureKind::hangs));
  CHECK_THAT(stopped.failures[0].message, Contains("0.05 s") && Contains("--timeout 0.5"));
}

TEST_CASE(
    "what keeps a launch on the emulator waiting is not counted as its work, and no loop of it goes on for ever") {
  using namespace std::chrono;
  Fake backend;
  backend.most = 0.05;
  backend.runs = [](const Subject& subject, const Trial&, const std::atomic<bool>& stop) {
    const auto start = steady_clock::now();
    while (!stop && (subject.name == "loops" || steady_clock::now() - start < 200ms)) {
      if (subject.name == "waits") std::this_thread::sleep_for(1ms);
    }
    return std::vector<CheckResult>(1);
  };
  Judge judge({});
  REQUIRE(judge.judge(backend, subjects({"waits", "loops"}), {SHAPE}));
  CHECK_FALSE(judge.report.lines[0].results[0].has(FailureKind::hangs));
  CHECK(judge.report.lines[1].results[0].has(FailureKind::hangs));
}

TEST_CASE("of a problem for which there is no memory a note says so, once, but where it is what was asked") {
  Fake backend;
  backend.runs = [](const Subject&, const Trial& trial, const std::atomic<bool>&) -> Result<std::vector<CheckResult>> {
    if (trial.kinds[0] == InputKind::normal) return failure(ExitCode::cannot_run_here, "no memory");
    return std::vector<CheckResult>(1);
  };
  Judge judge({});
  CHECK_FALSE(judge.judge(backend, subjects({"a"}), {SHAPE}));
  const int far_heads = GENERATE(0, 10);
  backend.make = [far_heads](const Shape& shape) {
    Shape wider = shape;
    wider.heads = 2;
    return std::vector<Trial>{{.shape = wider, .kinds = {InputKind::normal}, .far_heads = far_heads},
                              {.shape = shape, .kinds = {InputKind::peaky}}};
  };
  backend.shares_memory = true;
  Judge others({});
  CHECK(others.judge(backend, subjects({"a", "b"}), {SHAPE}));
  REQUIRE(others.report.notes.size() == 1);
  CHECK_THAT(others.report.notes[0], Contains("no memory"));
  CHECK(others.report.lines.size() == 2);
}

TEST_CASE("the emulator's time for the ends of a grid is that of the whole grid where a workspace makes it run") {
  const auto emulator = emulator_backend();
  const Trial trial{.shape = {.heads = 2, .n = 4288}, .kinds = {InputKind::normal}, .ends_only = true};
  Variant variant;
  const double of_ends = emulator->seconds(variant, trial);
  variant.workspace_bytes = [](const Shape&) -> uint64_t { return 4; };
  CHECK(emulator->seconds(variant, trial) == Approx(of_ends * 2 * 4288 / 256));
  CHECK(*emulator->patience(variant, trial, true) > *emulator->patience(Variant(), trial, true));
  CHECK_FALSE(emulator->patience(variant, trial, false));
}
