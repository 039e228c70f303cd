// What a reader of `ladder check` sees, word for word.
#include "harness/verify/check_report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <limits>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr Shape SHAPE{.batch = 2, .heads = 3, .n = 64, .d = 32};

CheckResult result(std::string inputs, double error, double tolerance, std::vector<Failure> failures = {}) {
  CheckResult made;
  made.shape = SHAPE;
  made.inputs = std::move(inputs);
  made.max_err = error;
  made.tolerance = tolerance;
  made.failures = std::move(failures);
  made.ok = made.failures.empty();
  made.seconds = 0.25;
  return made;
}

CheckLine line(std::string name, std::vector<CheckResult> results, Backend backend = Backend::emulator) {
  return {.name = std::move(name),
          .backend = backend,
          .shape = SHAPE,
          .results = std::move(results),
          .problems = 1,
          .directory = "folder/99_fake"};
}

std::string printed(const CheckReport& report) {
  unsetenv("COLUMNS");  // as wide as it is
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  print(report, file);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

// A file: "  line 1", "  line 2", ... "  line 10", and an empty line.
std::string source() {
  static const std::string path = [] {
    std::string name = fmt::format("{}/ladder_check_report_XXXXXX", P_tmpdir);
    const int descriptor = mkstemp(name.data());
    std::FILE* const file = fdopen(descriptor, "w");
    for (int i = 1; i <= 10; ++i) fmt::print(file, "  line {}\n", i);
    fmt::print(file, "\n");
    std::fclose(file);
    return name;
  }();
  return path;
}

Failure failure_of(FailureKind kind, std::string message, std::string detail = "",
                   std::vector<emulator::SourceLine> where = {}) {
  return {kind, std::move(message), std::move(detail), std::move(where)};
}

constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("a report is a table, what was tried, the tolerance, and each failure once") {
  using enum FailureKind;
  const CheckReport report{
      .lines = {line("90_right",
                     {result("normal", 1e-4, 3e-4), result("peaky", 2e-4, 3e-4), result("ties", 1e-4, 1e-3)}),
                line("91_slow",
                     {result("normal", 1e-4, 3e-4, {failure_of(counts_differ, "mma: predicted 4, counted 8")})}),
                line("92_wrong", {result("normal", 1e-4, 3e-4),
                                  result("peaky", 1e-2, 3e-4,
                                         {failure_of(wrong_result, "max error 1.0e-02"),
                                          failure_of(counts_differ, "votes: predicted 1, counted 2")})}),
                line("93_card", {result("normal", 1e-4, 3e-4)}, Backend::gpu)},
      .notes = {"A note.", "Another one."}};
  CHECK(printed(report) == R"(stage     on   results  error of tolerance         answers  counts    time
90_right  cpu        3  2.0e-04 of 3.0e-04 peaky   right    right   0.75 s
91_slow   cpu        1  1.0e-04 of 3.0e-04 normal  right    DIFFER  0.25 s
92_wrong  cpu        2  1.0e-02 of 3.0e-04 peaky   WRONG            0.50 s
93_card   gpu        1  1.0e-04 of 3.0e-04 normal  right            0.25 s
Normal inputs at B=2 H=3 N=64 d=32, hostile ones and other problems beside them.
Tolerance: twice the error of a plain f16 attention on the same inputs, plus 1e-5.

91_slow on the emulator: answers right, counts DIFFER
  counts_differ: mma: predicted 4, counted 8
  Met with normal at B=2 H=3 N=64 d=32.
  To read: docs/emulator.md, "What is counted"; folder/99_fake/README.md, "What breaks".

92_wrong on the emulator: answers WRONG
  wrong_result: max error 1.0e-02
  Met with peaky at B=2 H=3 N=64 d=32 alone.
  To read: docs/measuring.md, "Right or wrong"; folder/99_fake/README.md, "What breaks".
A note.
Another one.
1 of 4 checks failed: wrong answers.
1 of 4 checks failed: right answers, but other counts than predicted.
)");
}

TEST_CASE("a report of one problem says that there were no others, and NaN is the worst error of all") {
  CheckLine other = line("91_card", {result("ties", 1e-3, 1e-5)}, Backend::gpu);
  other.shape.causal = true;
  CHECK(printed({.lines = {line("90_right", {result("normal", 1e-4, 3e-4)}), other}, .notes = {}}) ==
        R"(stage     on   results  error of tolerance         answers  counts    time
90_right  cpu        1  1.0e-04 of 3.0e-04 normal  right    right   0.25 s
91_card   gpu        1  1.0e-03 of 1.0e-05 ties    right            0.25 s
Inputs: normal, ties at B=2 H=3 N=64 d=32; B=2 H=3 N=64 d=32 causal, and no others.
Tolerance: twice the error of a plain f16 attention on the same inputs, plus 1e-5.
)");
  const auto worst = [](std::vector<CheckResult> results) {
    const std::string text = printed({.lines = {line("90_fake", std::move(results))}, .notes = {}});
    const size_t begin = text.find(" of ", text.find('\n')) + 4;
    return text.substr(begin, text.find("  ", begin) - begin);
  };
  CHECK(worst({result("a", 1, 2), result("b", NOT_A_NUMBER, 1), result("c", 9, 1)}) == "1.0e+00 b");
  CHECK(worst({result("a", 1, 4), result("b", 1, 2), result("c", 1, 3)}) == "2.0e+00 b");
  CHECK(worst({result("a", 1, 2), result("b", 2, 4)}) == "2.0e+00 a");  // the first of equals
  CHECK(worst({result("a", 3, 3), result("b", 1, 2)}) == "3.0e+00 a");
}

TEST_CASE("a report explains twelve failures and counts the others") {
  CheckReport report;
  for (int i = 0; i < 12; ++i) {
    const Failure failure = failure_of(FailureKind::wrong_result, "off");
    report.lines.push_back(line(fmt::format("{}_wrong", 10 + i), {result("normal", 1, 1e-3, {failure})}));
  }
  CHECK_THAT(printed(report), Contains("21_wrong on the emulator") &&
                                  Contains("12 of 12 checks failed: wrong answers.") && !Contains("more:"));
  report.lines.push_back(report.lines.back());
  report.lines.back().name = "22_wrong";
  report.lines.push_back(line("23_right", {result("normal", 1e-4, 1e-3)}));
  CHECK_THAT(printed(report), !Contains("22_wrong on the emulator") &&
                                  Contains("\n... and 1 more: --json FILE has all of them.\n13 of 14 checks failed"));
  report.lines.resize(1);
  CHECK_THAT(printed(report), Contains("1 of 1 check failed: wrong answers."));
}

TEST_CASE("an explanation has all faults of the cause's kind where it was met first, the lines, and what follows") {
  using enum FailureKind;
  std::vector<Failure> races;
  for (int i = 1; i <= 7; ++i)
    races.push_back(failure_of(emulator_report, fmt::format("race {}", i), "race-read-after-write"));
  races[0].where = {{source().c_str(), 3}, {source().c_str(), 9}, {source().c_str(), 3}};
  races[1].where = {{source().c_str(), 11}, {source().c_str(), 12}, {"no such file", 1}};
  races.push_back(failure_of(wrong_result, "off"));
  races.push_back(failure_of(counts_differ, "mma: predicted 4, counted 8"));
  const std::vector<Failure> same{races[0]};
  std::vector<Failure> elsewhere{races[0]}, other_detail{races[0]};
  elsewhere[0].where[0].line = 4;
  other_detail[0].detail = "race-write-after-read";
  const std::string text = explain_failures(line(
      "99_fake",
      {result("a", 1, 1, {failure_of(nan_output, "nan"), failure_of(nan_output, "nan again")}),
       result("b", 1, 1, races), result("c", 1, 1, same), result("d", 1, 1, elsewhere), result("e", 1, 1, other_detail),
       result("f", 1, 1, {failure_of(wrong_result, "off"), failure_of(nan_output, "nan")})}));
  CHECK(text == fmt::format(R"(
99_fake on the emulator: answers WRONG
  emulator_report (race-read-after-write): race 1
       3 | line 3
       9 | line 9
  emulator_report (race-read-after-write): race 2
  emulator_report (race-read-after-write): race 3
  emulator_report (race-read-after-write): race 4
  emulator_report (race-read-after-write): race 5
  ... and 2 more of this kind: --json FILE has them
  Met with b at B=2 H=3 N=64 d=32, and the same in 1 of 5 other results.
  With it: nan_output in 2 input sets, wrong_result in 2 input sets.
  To read: docs/emulator.md, "Races"; folder/99_fake/README.md, "What breaks".
)"));
}

TEST_CASE("an explanation of counts lists both kinds of them, and of an endless loop six lines") {
  using enum FailureKind;
  const std::vector<Failure> counts{failure_of(counts_differ, "mma: predicted 4, counted 8"),
                                    failure_of(conflicts_differ, "x:1: 8-way")};
  CHECK(explain_failures(line("99_fake", {result("a", 1, 2, counts), result("b", 1, 2), result("c", 1, 2, counts)},
                              Backend::gpu)) == R"(
99_fake on the gpu: answers right, counts DIFFER
  counts_differ: mma: predicted 4, counted 8
  conflicts_differ: x:1: 8-way
  Met with a at B=2 H=3 N=64 d=32, and the same in 1 of 2 other results.
  To read: docs/emulator.md, "What is counted"; folder/99_fake/README.md, "What breaks".
)");
  Failure loop = failure_of(emulator_report, "no end", "endless-loop");
  for (int i = 1; i <= 8; ++i) loop.where.push_back({source().c_str(), i});
  const std::string text =
      explain_failures(line("99_fake", {result("a", 1, 2, {loop, failure_of(nan_output, "nan")})}));
  CHECK_THAT(
      text, Contains("       6 | line 6\n  Met with a at B=2 H=3 N=64 d=32.\n  With it: nan_output in 1 input set.\n"));
}

TEST_CASE("five faults of a kind are told, and of the others how many they are") {
  std::vector<Failure> faults(6, failure_of(FailureKind::nan_output, "nan"));
  CHECK_THAT(explain_failures(line("99_fake", {result("a", 1, 2, faults)})),
             Contains("\n  ... and 1 more of this kind: --json FILE has them\n"));
  faults.pop_back();
  CHECK_THAT(explain_failures(line("99_fake", {result("a", 1, 2, faults)})), !Contains("more of this kind"));
}

TEST_CASE("of what went wrong in a launch the cause is told, not what follows from it") {
  using enum FailureKind;
  constexpr FailureKind ORDER[] = {launch_failed,     hangs,
                                   emulator_report,   input_modified,
                                   guard_overwritten, unset_variable,
                                   order_dependent,   unwritten_output,
                                   nan_output,        wrong_result,
                                   wrong_lse,         differs_from_naive,
                                   property_broken,   conflicts_differ,
                                   counts_differ};
  for (size_t i = 0; i + 1 < std::size(ORDER); ++i) {
    const std::vector<Failure> both{failure_of(ORDER[i + 1], "effect"), failure_of(ORDER[i], "cause")};
    const std::string text = explain_failures(line("99_fake", {result("a", 1, 1, both)}));
    INFO(text);
    CHECK(text.find(fmt::format("  {}: cause\n", to_string(ORDER[i]))) != std::string::npos);
    CHECK(text.find("Met with a") != std::string::npos);
    const bool together = is_about_counts(ORDER[i]);  // counts are told together
    CHECK((text.find("effect") != std::string::npos) == together);
  }
}

TEST_CASE("kinds of failures have the names that results and tests use") {
  using enum FailureKind;
  const std::pair<FailureKind, std::string_view> NAMES[] = {
      {wrong_result, "wrong_result"},
      {wrong_lse, "wrong_lse"},
      {nan_output, "nan_output"},
      {unwritten_output, "unwritten_output"},
      {guard_overwritten, "guard_overwritten"},
      {input_modified, "input_modified"},
      {emulator_report, "emulator_report"},
      {launch_failed, "launch_failed"},
      {counts_differ, "counts_differ"},
      {conflicts_differ, "conflicts_differ"},
      {differs_from_naive, "differs_from_naive"},
      {property_broken, "property_broken"},
      {unset_variable, "unset_variable"},
      {order_dependent, "order_dependent"},
      {hangs, "hangs"},
  };
  for (const auto& [kind, name] : NAMES) CHECK(to_string(kind) == name);
}
