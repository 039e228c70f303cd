// What a reader of `ladder check` sees.
#include "harness/verify/check_report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
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

CheckLine line(std::string name, std::vector<CheckResult> results, Place backend = Place::emulator) {
  return {
      .name = name, .backend = backend, .shape = SHAPE, .results = std::move(results), .directory = "folder/" + name};
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

Failure failure_of(FailureKind kind, std::string message) {
  return {kind, std::move(message), "", {}};
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
                line("93_card", {result("normal", 1e-4, 3e-4)}, Place::gpu)},
      .notes = {"A note.", "Another one."}};
  CHECK(printed(report) == R"(stage     on   results  error of tolerance         answers  counts    time
90_right  cpu        3  2.0e-04 of 3.0e-04 peaky   right    right   0.75 s
91_slow   cpu        1  1.0e-04 of 3.0e-04 normal  right    DIFFER  0.25 s
92_wrong  cpu        2  1.0e-02 of 3.0e-04 peaky   WRONG            0.50 s
93_card   gpu        1  1.0e-04 of 3.0e-04 normal  right            0.25 s
Normal inputs at b=2 h=3 n=64 d=32, hostile ones and other problems beside them.
Tolerance: twice the error of the plain formula in the same type, on the same inputs, plus 1e-5.

counts_differ: mma: predicted 4, counted 8
  91_slow on the emulator: answers right, counts DIFFER
  Met with normal at b=2 h=3 n=64 d=32.
  To read: docs/emulator.md, "What is counted"; folder/91_slow/README.md, "What breaks".

wrong_result: max error 1.0e-02
  92_wrong on the emulator: answers WRONG
  Met with peaky at b=2 h=3 n=64 d=32 alone.
  To read: docs/measuring.md, "Right or wrong"; folder/92_wrong/README.md, "What breaks".
A note.
Another one.
1 of 4 checks failed: wrong answers.
1 of 4 checks failed: right answers, but other counts than predicted.
)");
}

TEST_CASE("what differs and is no failure is told below a right verdict") {
  CheckResult dearer = result("normal", 1e-4, 3e-4);
  dearer.told = {failure_of(FailureKind::counts_differ, "mma: predicted 4, counted 8")};
  const std::string text = printed({.lines = {line("91_slow", {dearer, dearer})}, .notes = {}});
  INFO(text);
  const size_t told = text.find("mma: predicted 4, counted 8");
  CHECK((text.find("right") < told && told != std::string::npos));
  CHECK(text.find("mma:", told + 1) == std::string::npos);
  CHECK(text.find("failed") == std::string::npos);
}

TEST_CASE("of one rung the reason comes first") {
  const CheckResult wrong = result("peaky", 1e-2, 3e-4, {failure_of(FailureKind::wrong_result, "reason")});
  const std::string text = printed({.lines = {line("92_wrong", {wrong})}, .notes = {}});
  CHECK(text.starts_with("wrong_result: reason\n"));
}

TEST_CASE("the error that a report names is the nearest to its tolerance, and NaN is the worst of all") {
  const auto worst = [](std::vector<CheckResult> results) {
    const std::string text = printed({.lines = {line("90_fake", std::move(results))}, .notes = {}});
    const size_t begin = text.find(" of ", text.find('\n')) + 4;
    return text.substr(begin, text.find("  ", begin) - begin);
  };
  CHECK(worst({result("a", 1, 2), result("b", NOT_A_NUMBER, 1), result("c", 9, 1)}) == "1.0e+00 b");
  CHECK(worst({result("a", 1, 4), result("b", 1, 2), result("c", 1, 3)}) == "2.0e+00 b");
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
    CHECK(text.find(fmt::format("{}: cause\n", to_string(ORDER[i]))) != std::string::npos);
    CHECK(text.find("Met with a") != std::string::npos);
    const bool together = is_about_counts(ORDER[i]);  // counts are told together
    CHECK((text.find("effect") != std::string::npos) == together);
  }
}

TEST_CASE(
    "all that the shapes of wrong answers have in common, and no right one has, is named as what may be the cause") {
  using enum FailureKind;
  const auto at = [](int n, int d, float scale, std::vector<Failure> failures = {}) {
    CheckResult made = result("a", 1, 1, std::move(failures));
    made.shape.n = n;
    made.shape.d = d;
    made.shape.softmax_scale = scale;
    return made;
  };
  constexpr float USUAL = 0;  // 1 / sqrt(d)
  const auto hint = [](std::vector<CheckResult> results) {
    const std::string text = explain_failures(line("99_fake", std::move(results)));
    const size_t begin = text.find("tried with "), end = text.find(" meets it");
    return begin == std::string::npos ? "" : text.substr(begin + 11, end - begin - 11);
  };
  const Failure wrong = failure_of(wrong_result, "wrong");
  CHECK(hint({at(64, 32, USUAL), at(96, 32, USUAL, {wrong}), at(128, 32, USUAL, {wrong})}) == "n=128 or n=96");
  CHECK(hint({at(64, 32, USUAL), at(96, 48, USUAL, {wrong})}) == "n=96, d=48");
  CHECK(hint({at(64, 32, USUAL), at(96, 32, USUAL), at(96, 48, USUAL, {wrong})}) == "d=48");
  CHECK(hint({at(64, 32, USUAL), at(96, 48, USUAL, {wrong}), at(96, 48, USUAL)}).empty());
  CHECK(hint({at(64, 32, USUAL, {wrong}), at(96, 32, USUAL, {wrong})}).empty());
  CHECK(hint({at(64, 32, USUAL, {wrong})}).empty());
  CHECK(hint({at(64, 32, USUAL), at(64, 32, 0.5f, {wrong})}).starts_with("scale="));
  const Failure counts = failure_of(counts_differ, "mma: predicted 4, counted 8");  // not counted at every shape
  CHECK(hint({at(64, 32, USUAL), at(96, 32, USUAL, {counts})}).empty());
}

TEST_CASE("a report points to its own passage") {
  const auto passage = [](std::string_view report, std::string_view message = "") {
    const std::string where =
        where_to_read({FailureKind::emulator_report, std::string(message), std::string(report), {}});
    return where.substr(where.find('"'));
  };
  CHECK(passage("race-between-blocks") == "\"Races between blocks\"");
  CHECK(passage("race-read-after-write") == "\"Races\"");
  CHECK(passage("barrier-misuse", "named barrier 1") == "\"Named barriers\"");
  CHECK(passage("barrier-misuse") == "\"mbarriers\"");
  CHECK(passage("newer-instruction") == "\"Newer instructions\"");
}

TEST_CASE("every kind of failure points to a passage that exists") {
  const auto exists = [](const std::string& pointer) {
    const size_t comma = pointer.find(", \"");
    std::ifstream file(LADDER_SOURCE_DIR "/" + pointer.substr(0, comma));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const std::string words = pointer.substr(comma + 3, pointer.size() - comma - 4);
    return text.find("**" + words + ".**") != std::string::npos || text.find("## " + words + "\n") != std::string::npos;
  };
  for (int kind = 0; kind <= int(FailureKind::counts_differ); ++kind) {
    INFO(to_string(FailureKind(kind)));
    CHECK(exists(where_to_read({FailureKind(kind), "", "", {}})));
  }
  for (int kind = 0; kind <= int(emulator::ReportKind::bad_launch); ++kind) {
    const std::string_view name = to_string(emulator::ReportKind(kind));
    INFO(name);
    CHECK(exists(where_to_read({FailureKind::emulator_report, "", std::string(name), {}})));
    CHECK(exists(where_to_read({FailureKind::emulator_report, "named barrier 1", std::string(name), {}})));
  }
}

TEST_CASE("a failure is explained once, by its cause, with its line of source") {
  const CheckResult fine = result("normal", 1, 1);
  CHECK(explain_failures(line("99_fake", {fine})).empty());
  CheckResult bad = result("peaky", 1, 1);
  bad.failures = {{FailureKind::nan_output, "4 of 8 output elements are NaN"},
                  {FailureKind::emulator_report, "race: here", "race-read-after-write", {{__FILE__, 1}}}};
  CheckResult also = bad;
  also.inputs = "ties";
  const std::string text = explain_failures(line("99_fake", {fine, bad, also}));
  CHECK(text.find("answers WRONG") != std::string::npos);
  CHECK_THAT(text, Contains("Met with peaky"));  // the first of equal causes
  CHECK(text.find("race: here") < text.find("Met with peaky"));
  CHECK(text.find("   1 | ") != std::string::npos);
  CHECK(text.find("and the same in 1 of 2 other results") != std::string::npos);
  CHECK(text.find("With it: nan_output in 2 input sets") != std::string::npos);
  CHECK_THAT(text, Contains("; folder/99_fake/README.md, \"What breaks\""));
  CHECK(text.find("4 of 8") == std::string::npos);
}
