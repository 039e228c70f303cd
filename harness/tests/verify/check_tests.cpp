// A kernel's numbers: every reason for which they are wrong, each met by a host function in a kernel's place.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <nlohmann/json.hpp>
#include "harness/tests/catch.hpp"
#include "harness/tests/verify/host_kernels.hpp"
#include "harness/verbs/json.hpp"

using namespace ladder;
using namespace host_kernels;

TEST_CASE("a right kernel passes on every input set, with its log-sum-exps") {
  Rung rung = rung_of(right);
  rung.variants[0].writes_lse = true;
  for (const InputKind kind : all_input_kinds()) {
    const CheckResult result = check_on_emulator(rung, rung.variants[0], make_problem(SHAPE, kind, 1));
    INFO(to_string(kind));
    CHECK(result.ok);
    CHECK(result.failures.empty());
    CHECK(result.max_err <= result.tolerance);
    CHECK(result.inputs == to_string(kind));
  }
}

TEST_CASE("a wrong kernel fails for its reason, with the place in the message") {
  CHECK(only(check(rung_of(biased)), FailureKind::wrong_result));
  CHECK(only(check(rung_of(first_keys_only)), FailureKind::wrong_result));
  CHECK(only(check(rung_of(silent)), FailureKind::unwritten_output));
  const auto changed = [](auto change) { return check(rung_of(then(change))); };
  CHECK(
      only(changed([](const AttentionParams& p) { const_cast<f16*>(p.K)[7].bits ^= 1; }), FailureKind::input_modified));

  const CheckResult one = changed([](const AttentionParams& p) { p.O[p.n * p.d + 5] = POISON; });
  REQUIRE(only(one, FailureKind::unwritten_output));
  CHECK_THAT(one.failures[0].message, StartsWith("1 of 4096 ") && EndsWith("batch 0, head 1, query 0, column 5"));

  const CheckResult before = changed([](const AttentionParams&p) { p.O[-2] = f16{0}; }),
                    behind = changed([](const AttentionParams&p) { p.O[SHAPE.elements() + 100] = f16{0}; });
  REQUIRE(only(before, FailureKind::guard_overwritten));
  CHECK_THAT(before.failures[0].message, Contains("4 bytes before the start of O"));
  REQUIRE(only(behind, FailureKind::guard_overwritten));
  CHECK_THAT(behind.failures[0].message, Contains("200 bytes past the end of O"));
}

TEST_CASE("a wrong log-sum-exp fails, though the output is right") {
  const auto with_lse = []<class Change>(Change) {
    Rung rung = rung_of(then([](const AttentionParams& p) { Change()(p.LSE); }));
    rung.variants[0].writes_lse = true;
    return check(rung);
  };
  CHECK(with_lse([](float*) {}).ok);
  CHECK(with_lse([](float* lse) { lse[99] += 1e-6f; }).ok);  // rounding
  const CheckResult off = with_lse([](float* lse) { lse[99] += 1e-3f; });
  REQUIRE(only(off, FailureKind::wrong_lse));
  CHECK_THAT(off.failures[0].message, Contains("1 of 128 rows") && Contains("batch 0, head 1, query 35"));
  CHECK(only(with_lse([](float* lse) { lse[5] *= 1.442695f; }), FailureKind::wrong_lse));     // base 2
  CHECK(only(with_lse([](float* lse) { lse[5] = std::nanf(""); }), FailureKind::wrong_lse));  // or unwritten
  CHECK(only(with_lse([](float* lse) { lse[128] = 0; }), FailureKind::guard_overwritten));

  static float right_value;
  const CheckResult two = with_lse([](float* lse) {
    right_value = lse[3];
    lse[3] = 2;
    lse[64] = lse[127] = 3;
  });
  REQUIRE(only(two, FailureKind::wrong_lse));
  const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  const Reference::Answer& answer = problem.reference["LSE"];
  CHECK_THAT(two.failures[0].message, Contains("3 of 128 rows") && Contains("batch 0, head 0, query 3") &&
                                          Contains(fmt::format("2 instead of {:.7g}", answer.values[3])) &&
                                          Contains(fmt::format("{:.1e}", answer.row_tolerance[3])));
  CHECK(answer.values[3] == Approx(right_value));
  static double tolerance;
  tolerance = answer.row_tolerance[99];
  CHECK(with_lse([](float* lse) { lse[99] += static_cast<float>(0.8 * tolerance); }).ok);
  CHECK(only(with_lse([](float* lse) { lse[99] += static_cast<float>(1.2 * tolerance); }), FailureKind::wrong_lse));
}

TEST_CASE("a wrong log-sum-exp is the wrong set's alone") {
  Rung rung = rung_of(then([](const AttentionParams& p) { p.LSE[127] += 1; }));
  rung.variants[0].writes_lse = true;
  const Problem problem = make_problem(SHAPE, std::array{InputKind::normal, InputKind::peaky}, 1);
  const auto results = check_sets_on_emulator(rung, rung.variants[0], problem);
  CHECK(results[0].ok);
  REQUIRE(only(results[1], FailureKind::wrong_lse));
  CHECK_THAT(results[1].failures[0].message, Contains("1 of 64 rows") && Contains("batch 0, head 1, query 63"));
}

TEST_CASE("a workspace has every byte that a variant asks for, and what nobody wrote there is NaN") {
  static constexpr size_t WORDS = 5 * 7 + 1;  // shares of five heads, and a counter behind them
  static size_t poisoned;
  Rung rung = rung_of(then([](const AttentionParams& p) {
    const std::span words(static_cast<float*>(p.workspace), WORDS);
    poisoned = static_cast<size_t>(std::ranges::count_if(
        words, [](const float& word) { return is_poison(Element::f32, reinterpret_cast<const std::byte*>(&word)); }));
    words.back() = 1;
  }));
  rung.variants[0].workspace_bytes = [](const Shape&) -> uint64_t { return 4 * WORDS; };
  const Problem problem = make_problem({.heads = 5, .n = 64, .d = 32}, InputKind::normal, 1);
  const CheckResult result = check_on_emulator(rung, rung.variants[0], problem);
  INFO((result.ok ? "" : result.failures[0].message));
  CHECK(result.ok);
  CHECK(poisoned == WORDS);
}

TEST_CASE("which rows and columns are off is said, of numbers and of NaN") {
  static float put;
  const auto told = [](float value) {
    put = value;
    const CheckResult result = check(rung_of(then([](const AttentionParams& p) {
      for (const int row : {p.n + 7, p.n + 9}) {
        for (const int column : {2, 5}) p.O[row * p.d + column] = to_f16(put);
      }
    })));
    REQUIRE(result.failures.size() == 1);
    return result.failures[0].message;
  };
  for (const float value : {100.0f, std::numeric_limits<float>::quiet_NaN()})
    CHECK_THAT(told(value),
               Contains("2 of the 128 rows") && Contains("7 to 9 of 1 head") && Contains("columns 2 to 5"));
  CHECK_THAT(check(rung_of(biased)).failures[0].message, Contains("all 128 rows"));
}

TEST_CASE("a NaN never passes, and never counts as an error of zero") {
  const CheckResult result = check(rung_of(writes_nan));
  CHECK(only(result, FailureKind::nan_output));
  CHECK(std::isnan(result.max_err));
  CHECK(nlohmann::json::parse(to_json(result).dump())["max_err"].is_null());
}

TEST_CASE("a result has the errors of its own set, as the comparison with the reference has them") {
  const Problem problem =
      make_problem({.batch = 2, .heads = 2, .n = 64, .d = 32}, std::array{InputKind::normal, InputKind::peaky}, 1);
  const Rung rung = rung_of(biased);
  const auto results = check_sets_on_emulator(rung, rung.variants[0], problem);
  REQUIRE(results.size() == 2);
  const Tensor& output = results[0].output;
  REQUIRE(output.size() == size_t(problem.shape.elements()));
  for (size_t set = 0; set < 2; ++set) {
    const Comparison worst = compare_to_reference(problem.reference["O"], output, set);
    CHECK(results[set].max_err == worst.max_err);
    CHECK(results[set].tolerance == worst.tolerance);
    CHECK(results[set].rms_err == worst.rms);
    CHECK(results[set].rms_tolerance == worst.rms_tolerance);
    CHECK(results[set].shape == problem.shape);
    REQUIRE(only(results[set], FailureKind::wrong_result));
    const std::string& message = results[set].failures[0].message;
    CHECK_THAT(message, Contains(fmt::format("batch {}, head {}, query {}, column {}: {:.6g} instead of {:.6g}",
                                             worst.cell.unit / 2, worst.cell.unit % 2, worst.cell.row, worst.column,
                                             worst.got, worst.expected)));
    // Those of peaky inputs leave what an exponential of f32 can hold.
    CHECK((message.find("scores") != std::string::npos) == (set == 1));
  }
}

TEST_CASE("of several outputs that are held to a plain attention each is judged by itself, and named") {
  Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  Reference::Answer& second = problem.reference.answers[1];  // LSE takes the part of a second one
  second.baseline = {{0.1, 0.1}};
  second.row_tolerance = {};
  static float off_O, off_LSE;
  Rung rung = rung_of(then([](const AttentionParams& p) {
    p.O[7] = to_f16(to_float(p.O[7]) + off_O);
    p.LSE[9] += off_LSE;
    if (std::isnan(off_LSE)) p.LSE[0] = off_LSE;
  }));
  rung.variants[0].writes_lse = true;
  const auto judged = [&](float O, float LSE) {
    off_O = O, off_LSE = LSE;
    return check_on_emulator(rung, rung.variants[0], problem);
  };
  const CheckResult fine = judged(0, 0);
  CHECK(fine.ok);
  REQUIRE(fine.errors.size() == 2);
  CHECK(fine.errors[0].output == "O");
  CHECK(fine.errors[0].tolerance == problem.reference.tolerance());
  CHECK(fine.errors[1].output == "LSE");
  CHECK(fine.errors[1].tolerance == second.tolerance());
  CHECK(fine.max_err == fine.errors[0].max_err);  // O rounds, LSE is exact: the one nearest to its tolerance

  const CheckResult first = judged(1, 0);
  REQUIRE(first.failures.size() == 1);
  CHECK_THAT(first.failures[0].message, StartsWith("O: max error "));
  CHECK(first.max_err == Approx(1).margin(0.01));  // and not what the last one has
  CHECK(first.tolerance == problem.reference.tolerance());

  // NaN where a number belongs, in an output that has NaN elsewhere: after the first one's error it is told as well.
  second.values[0] = std::numeric_limits<double>::quiet_NaN();
  const CheckResult both = judged(1, std::numeric_limits<float>::quiet_NaN());
  REQUIRE(both.failures.size() == 2);
  CHECK_THAT(both.failures[0].message, StartsWith("O: max error "));
  CHECK_THAT(both.failures[1].message, StartsWith("LSE: max error nan "));
  CHECK(both.failures[1].kind == FailureKind::nan_output);
  CHECK(std::isnan(both.max_err));
}

TEST_CASE("an output that is a little too wrong everywhere fails, though no element is beyond the tolerance") {
  static double shift;
  shift = 0;
  const Rung rung = rung_of([](emulator::Device& device, const AttentionParams& given) {
    attention(on_host(device, given), EVEN, static_cast<float>(shift));
  });
  const CheckResult exact = check(rung);
  CHECK(exact.ok);
  shift = 0.4 * exact.tolerance;
  const CheckResult off = check(rung);
  REQUIRE(only(off, FailureKind::wrong_result));
  CHECK_THAT(off.failures[0].message, Contains(fmt::format("{:.3e} above {:.3e}", off.rms_err, off.rms_tolerance)));
}

TEST_CASE("NaN belongs where the inputs put it, and nowhere else") {
  static void (*change)(const AttentionParams&);
  const Rung rung = rung_of(then([](const AttentionParams& p) { change(p); }));
  const Problem problem =
      make_problem({.batch = 2, .heads = 2, .n = 64, .d = 32}, std::array{InputKind::normal, InputKind::not_finite}, 1);
  const auto said = [&](void (*with)(const AttentionParams&)) {
    change = with;
    std::vector<std::string> all;
    for (const CheckResult& result : check_sets_on_emulator(rung, rung.variants[0], problem)) {
      for (const Failure& failure : result.failures)
        all.push_back(fmt::format("{}: {}: {}", result.inputs, to_string(failure.kind), failure.message));
    }
    return all;
  };
  CHECK(said([](const AttentionParams&) {}).empty());
  // In a head of numbers.
  const auto two =
      said([](const AttentionParams& p) { p.O[(2 * 64 + 9) * 32 + 1] = p.O[(2 * 64 + 8) * 32 + 5] = {0x7e00}; });
  REQUIRE(two.size() == 1);
  CHECK_THAT(two[0], StartsWith("normal: nan_output: 2 of 4096 ") && Contains("batch 1, head 0, query 8, column 5"));
  // In heads with NaN among their inputs the reference says where: an element that is a number, and one that is not.
  static size_t number, none;
  const Reference::Answer& answer = problem.reference["O"];
  number = none = 0;
  const auto at = [&](size_t i) { return answer.values[i]; };
  for (size_t i = 64 * 32; i < 2 * 64 * 32; ++i) {
    if (number == 0 && std::isfinite(at(i))) number = i;
    if (none == 0 && std::isnan(at(i))) none = i;
  }
  REQUIRE(number > 0);
  REQUIRE(none > 0);
  const auto place = [](size_t i) { return fmt::format("batch 0, head 1, query {}, column {}", i / 32 % 64, i % 32); };
  const auto lost = said([](const AttentionParams& p) { p.O[number] = {0x7e00}; });
  REQUIRE(lost.size() == 1);
  CHECK_THAT(lost[0], StartsWith("not_finite: nan_output: ") &&
                          Contains(fmt::format("at {}: nan instead of {:.6g}", place(number), at(number))));
  const auto made = said([](const AttentionParams& p) { p.O[none] = to_f16(0.5f); });
  REQUIRE(made.size() == 1);
  CHECK_THAT(made[0], StartsWith("not_finite: wrong_result: 0.5 at " + place(none)));
}

TEST_CASE("an output that has run out of its type's range says so") {
  static float factor;
  const Rung rung = rung_of(then([](const AttentionParams& p) { p.O[5] = to_f16(factor); }));
  const auto said = [&](float value) {
    factor = value;
    return check(rung).failures.at(0).message;
  };
  for (const float beyond : {1e6f, -65504.0f}) CHECK_THAT(said(beyond), Contains("fp16 goes to 65504"));
  CHECK_THAT(said(60000), !Contains("65504"));
}

TEST_CASE("the seconds of a check on the emulator are those that it took, shared out among the sets") {
  const Rung rung = rung_of([](emulator::Device& device, const AttentionParams& p) {
    right(device, p);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  });
  const Problem problem = make_problem(SHAPE, std::array{InputKind::normal, InputKind::peaky}, 1);
  const auto begin = std::chrono::steady_clock::now();
  const auto results = check_sets_on_emulator(rung, rung.variants[0], problem);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  CHECK(results[0].seconds >= 0.015);
  CHECK(results[0].seconds + results[1].seconds <= elapsed);
}

TEST_CASE("a query of NaN alone has an answer of NaN, and it alone") {
  const Shape shape{.batch = 1, .heads = 1, .n = 64, .d = 32};
  const Rung rung = rung_of(right);
  for (const int64_t query : {0, 63}) {
    Problem problem = make_question(shape, std::array{InputKind::normal}, 1);
    problem.inputs.half("Q")[query * shape.d] = {0x7e00};
    problem.reference = make_reference(shape, problem.inputs);
    CHECK(check_on_emulator(rung, rung.variants[0], problem).ok);
  }
}

TEST_CASE("a variant without an emulated build fails, it does not pass by not running") {
  const CheckResult none = check(rung_of(nullptr));
  CHECK(only(none, FailureKind::launch_failed));
  CHECK(std::isnan(none.max_err));
}

TEST_CASE("the JSON has the promised names") {
  const auto json = nlohmann::json::parse(to_json(check(rung_of(right))).dump());
  for (const char* name :
       {"stage", "backend", "batch", "heads", "n", "d", "causal", "inputs", "ok", "max_err", "tolerance", "counters"}) {
    INFO(name);
    CHECK(json.contains(name));
  }
  for (const char* name : {"smem_wavefronts", "smem_wavefronts_ideal", "smem_conflict_ways", "mma", "ldmatrix",
                           "shuffles", "barriers", "gmem_bytes_read", "gmem_bytes_written"}) {
    INFO(name);
    CHECK(json["counters"].contains(name));
  }
  CHECK(json["backend"] == "emulator");
  CHECK(json["ok"] == true);
}
