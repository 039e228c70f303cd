// Every reason for which the harness can call a kernel wrong, each met by a host function in a kernel's place.
#include "harness/verify/check_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>

#include <nlohmann/json.hpp>
#include "harness/devices/guarded.hpp"
#include "harness/tests/catch.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verify/properties.hpp"

using namespace ladder;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 2, .n = 64, .d = 32};

// Attention in double. `weight(key, score)` scales exp(score): anything but 1 is wrong. `bias` is added to the output. When
// causal, a query sees its own key and `extra` more.
constexpr auto EVEN = [](int, double) { return 1.0; };
template <class Weight = decltype(EVEN)>
void attention(const AttentionParams& p, const Weight& weight = EVEN, float bias = 0, int64_t extra = 0) {
  const auto widened = [&](const f16* values) {  // once, and not for each product
    std::vector<double> wide(int64_t{p.batch_heads} * p.n * p.d);
    std::transform(values, values + wide.size(), wide.begin(), to_float);
    return wide;
  };
  const std::vector<double> Q = widened(p.Q), K = widened(p.K), V = widened(p.V);
  for (int64_t row = 0; row < int64_t{p.batch_heads} * p.n; ++row) {
    const int64_t head = row / p.n;
    std::vector<double> weights(p.n), sums(p.d);
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    const int64_t keys = p.causal ? std::min<int64_t>(p.n, row % p.n + 1 + extra) : p.n;
    for (int j = 0; j < keys; ++j) {
      for (int c = 0; c < p.d; ++c) weights[j] += Q[row * p.d + c] * K[(head * p.n + j) * p.d + c] * p.softmax_scale;
      largest = std::max(largest, weights[j]);
    }
    for (int j = 0; j < keys; ++j) {
      weights[j] = std::exp(weights[j] - largest) * weight(j, weights[j]);
      total += weights[j];
      for (int c = 0; c < p.d; ++c) sums[c] += weights[j] * V[(head * p.n + j) * p.d + c];
    }
    for (int c = 0; c < p.d; ++c) p.O[row * p.d + c] = to_f16(float(sums[c] / total) + bias);
    if (p.LSE) p.LSE[row] = float(largest + std::log(total));
  }
}

// Kernels get addresses that only the emulator can follow: these functions go where the elements are.
AttentionParams on_host(const emulator::Device& device, AttentionParams p) {
  const auto follow = [&]<class T>(T*& pointer) {
    for (const emulator::Device::Buffer& buffer : device.buffers()) {
      if (reinterpret_cast<const std::byte*>(pointer) != buffer.begin) continue;
      pointer = reinterpret_cast<T*>(const_cast<std::byte*>(buffer.memory));
      return;
    }
  };
  follow(p.Q);
  follow(p.K);
  follow(p.V);
  follow(p.O);
  follow(p.LSE);
  follow(p.workspace);
  return p;
}

using Kernel = void(emulator::Device&, const AttentionParams&);

void right(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given));
}
// Right, and then a change to what is there.
template <class Change>
Kernel* then(Change) {
  return [](emulator::Device& device, const AttentionParams& given) {
    right(device, given);
    Change()(on_host(device, given));
  };
}
void biased(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given), EVEN, 0.01f);
}
void first_keys_only(emulator::Device& device, const AttentionParams& given) {
  attention(on_host(device, given), [&](int j, double) { return j < given.n / 2 ? 1.0 : 0.0; });
}
void silent(emulator::Device&, const AttentionParams&) {}
Kernel* const writes_nan =
    then([](const AttentionParams& p) { p.O[3] = to_f16(std::numeric_limits<float>::quiet_NaN()); });

// The head that begins so many elements behind the first.
void attend_head(AttentionParams all, size_t offset) {
  all.Q += offset;
  all.K += offset;
  all.V += offset;
  all.O += offset;
  all.batch_heads = 1;
  attention(all);
}

Rung rung_of(Kernel* kernel) {
  Rung rung;
  rung.name = "99_fake";
  Variant variant;
  variant.label = "on the host";
  variant.accepts.min_d = 1;
  if (kernel) variant.on_emulator = kernel;
  rung.variants.push_back(variant);
  return rung;
}

CheckResult check(const Rung& rung) {
  static const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  return check_on_emulator(rung, rung.variants.front(), problem);
}

// Wrong, and for this reason alone.
bool only(const CheckResult& result, FailureKind kind) {
  return !result.ok && !result.failures.empty() &&
         std::ranges::all_of(result.failures, [=](const Failure& failure) { return failure.kind == kind; });
}

}  // namespace

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
  CHECK(one.failures[0].message ==
        "1 of 4096 output elements were never written, the first at batch 0, head 1, query 0, column 5");

  const CheckResult before = changed([](const AttentionParams&p) { p.O[-2] = f16{0}; }),
                    behind = changed([](const AttentionParams&p) { p.O[SHAPE.elements() + 100] = f16{0}; });
  REQUIRE(only(before, FailureKind::guard_overwritten));
  CHECK(before.failures[0].message == "a write 4 bytes before the start of O");
  REQUIRE(only(behind, FailureKind::guard_overwritten));
  CHECK(behind.failures[0].message == "a write 200 bytes past the end of O");
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
  CHECK(
      off.failures[0].message.starts_with("log-sum-exp is wrong in 1 of 128 rows, the first at batch 0, head 1, "
                                          "query 35: "));
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
  CHECK_THAT(two.failures[0].message,
             StartsWith(fmt::format("log-sum-exp is wrong in 3 of 128 rows, the first at batch 0, head 0, query 3: 2 "
                                    "instead of {:.7g}, where f32 explains {:.1e}",
                                    answer.values[3], answer.row_tolerance[3])));
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
  CHECK_THAT(results[1].failures[0].message, Contains("wrong in 1 of 64 rows, the first at batch 0, head 1, query 63"));
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
               Contains("2 of the 128 rows that are compared are off: 7 to 9 of 1 head, in columns 2 to 5"));
  CHECK_THAT(check(rung_of(biased)).failures[0].message, Contains("all 128 rows that are compared are off"));
}

TEST_CASE("a NaN never passes, and never counts as an error of zero") {
  const CheckResult result = check(rung_of(writes_nan));
  CHECK(only(result, FailureKind::nan_output));
  CHECK(std::isnan(result.max_err));
  CHECK(nlohmann::json::parse(to_json(result).dump())["max_err"].is_null());
}

TEST_CASE("each count is held to its prediction, and says so by its name") {
  Rung idle = rung_of(right);
  idle.variants[0].predict = [](const Shape&) { return Counts{}; };
  CHECK(check(idle).ok);
  using Member = uint64_t Counts::*;
  for (const emulator::Count& count : emulator::COUNTS) {
    static Member off;
    off = count.value;
    Rung rung = rung_of(right);
    rung.variants[0].predict = [](const Shape&) {
      Counts counts;
      counts.*off = 4;
      return counts;
    };
    const CheckResult result = check(rung);
    REQUIRE(only(result, FailureKind::counts_differ));
    REQUIRE(result.failures.size() == 1);
    CHECK(result.failures[0].message == (off == &Counts::idle_blocks
                                             ? "blocks: 0 of 0 have written nothing to global memory, predicted 4"
                                             : fmt::format("{}: predicted 4, counted 0", count.words)));
  }
}

TEST_CASE("what goes on while something is awaited may be more than predicted, and nothing else") {
  Variant variant;
  variant.predict = [](const Shape&) { return Counts{.mma = 4, .wgmma_under_loads = 4}; };
  const auto faults = [&](uint64_t products, uint64_t under_loads) {
    CheckResult result;
    result.counters.emplace();
    result.counters->mma = products;
    result.counters->wgmma_under_loads = under_loads;
    judge_counts(result, variant, make_question({.n = 16, .d = 8}, std::vector{InputKind::normal}, 1), 4);
    return result.failures.size();
  };
  CHECK(faults(4, 4) == 0);
  CHECK(faults(4, 5) == 0);
  CHECK(faults(4, 3) == 1);
  CHECK(faults(5, 4) == 1);
}

TEST_CASE("bank conflicts are those of ldmatrix and of the operands of a wmma, the worst line's and of all lines") {
  const auto site = [](const char* instruction, uint64_t wavefronts, uint64_t ideal) {
    return emulator::SiteCounts{.file = "kernel",
                                .line = static_cast<int>(wavefronts),
                                .instruction = instruction,
                                .buffer = "K",
                                .requests = 1,
                                .wavefronts = wavefronts,
                                .ideal = ideal};
  };
  emulator::Counters counters;
  CHECK(worst_ldmatrix(counters) == nullptr);
  CHECK(ldmatrix_ways(counters) == 0);
  counters.sites = {site("ld.shared.b32", 320, 10), site("wmma.load.c", 640, 10), site("wmma.store.d", 650, 10)};
  CHECK(worst_ldmatrix(counters) == nullptr);
  CHECK(ldmatrix_ways(counters) == 0);
  counters.sites.push_back(site("ldmatrix.x4", 20, 10));
  counters.sites.push_back(site("wmma.load.b", 31, 10));
  counters.sites.push_back(site("ldmatrix.x4.trans", 30, 10));
  counters.sites.push_back(site("wmma.load.a", 60, 20));
  REQUIRE(worst_ldmatrix(counters) != nullptr);
  CHECK(worst_ldmatrix(counters)->line == 31);
  CHECK(ldmatrix_ways(counters) == 141.0 / 50);
  counters.sites.erase(counters.sites.begin() + 4);
  CHECK(worst_ldmatrix(counters)->line == 30);  // the first of equals
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
    CHECK_THAT(message,
               StartsWith(fmt::format(
                   "max error {:.2e} above the tolerance {:.2e} at batch {}, head {}, query {}, column {}: {:.6g} "
                   "instead of {:.6g}",
                   worst.max_err, worst.tolerance, worst.cell.unit / 2, worst.cell.unit % 2, worst.cell.row,
                   worst.column, worst.got, worst.expected)));
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
  CHECK(
      off.failures[0].message ==
      fmt::format(
          "root mean square error {:.3e} above {:.3e}, 1.1 times that of the plain formula in this type: everywhere a "
          "little too wrong, as if something were rounded once too often",
          off.rms_err, off.rms_tolerance));
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
  CHECK(said([](const AttentionParams& p) { p.O[(2 * 64 + 9) * 32 + 1] = p.O[(2 * 64 + 8) * 32 + 5] = {0x7e00}; }) ==
        std::vector<std::string>{"normal: nan_output: 2 of 4096 output elements are NaN, the first at batch 1, head 0, "
                                 "query 8, column 5; 2 of the 128 rows that are compared are off: 8 to 9 of 1 head, "
                                 "in columns 1 to 5"});
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
  CHECK_THAT(lost[0], StartsWith("not_finite: nan_output: max error nan above the tolerance ") &&
                          Contains(fmt::format("at {}: nan instead of {:.6g}", place(number), at(number))));
  CHECK(said([](const AttentionParams& p) { p.O[none] = to_f16(0.5f); }) ==
        std::vector<std::string>{fmt::format(
            "not_finite: wrong_result: 0.5 at {}, where the inputs' NaN and infinities make nan of the formula",
            place(none))});
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

namespace {

CheckLine line_of(std::vector<CheckResult> results) {
  return {.name = "99_fake",
          .backend = Place::emulator,
          .shape = SHAPE,
          .results = std::move(results),
          .directory = "folder/99_fake"};
}

}  // namespace

TEST_CASE("a failure is explained once, by its cause, with its line of source") {
  CheckResult fine = check(rung_of(right)), bad = fine;
  CHECK(explain_failures(line_of({fine})).empty());
  bad.inputs = "peaky";
  bad.failures = {{FailureKind::nan_output, "4 of 8 output elements are NaN"},
                  {FailureKind::emulator_report, "race: here", "race-read-after-write", {{__FILE__, 1}}}};
  CheckResult also = bad;
  also.inputs = "ties";
  const std::string text = explain_failures(line_of({fine, bad, also}));
  CHECK(text.find("answers WRONG") != std::string::npos);
  CHECK_THAT(text, Contains("Met with peaky"));  // the first of equal causes
  CHECK(text.find("race: here") < text.find("Met with peaky"));
  CHECK(text.find("   1 | ") != std::string::npos);
  CHECK(text.find("and the same in 1 of 2 other results") != std::string::npos);
  CHECK(text.find("With it: nan_output in 2 input sets") != std::string::npos);
  CHECK_THAT(text, Contains("; folder/99_fake/README.md, \"What breaks\""));
  CHECK(text.find("4 of 8") == std::string::npos);
}

TEST_CASE("an output that has run out of its type's range says so") {
  static float factor;
  const Rung rung = rung_of(then([](const AttentionParams& p) { p.O[5] = to_f16(factor); }));
  const auto said = [&](float value) {
    factor = value;
    return check(rung).failures.at(0).message;
  };
  for (const float beyond : {1e6f, -65504.0f}) CHECK_THAT(said(beyond), Contains("fp16 goes to 65504 and no further"));
  CHECK_THAT(said(60000), !Contains("no further"));
}

TEST_CASE("right and slow is not wrong: answers and counts are two verdicts") {
  Rung rung = rung_of(right);
  rung.variants[0].predict = [](const Shape&) { return Counts{.mma = 4}; };
  const CheckResult slow = check(rung);
  CHECK_FALSE(slow.ok);
  CHECK(slow.answers_right());
  CHECK_FALSE(slow.counts_right());
  CHECK(explain_failures(line_of({slow})).find("answers right, counts DIFFER") != std::string::npos);
  CHECK_FALSE(check(rung_of(biased)).answers_right());
  CHECK(check(rung_of(biased)).counts_right());
}

TEST_CASE("a variable that nobody has set is found by a second build") {
  Rung rung = rung_of(right);
  const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  const auto judged = [&](EmulatedLaunch zeroed) {
    rung.variants[0].on_emulator_zeroed = zeroed;
    return check_on_emulator(rung, rung.variants[0], problem, {}, true);
  };
  CHECK(judged(right).ok);
  CHECK(only(judged(writes_nan), FailureKind::unset_variable));
  const CheckResult found = judged(biased);
  REQUIRE(only(found, FailureKind::unset_variable));
  CHECK(found.failures[0].message.find("at batch 0, head 0, query 0, column 0") != std::string::npos);
}

TEST_CASE("what is right only with two roundings, or only with one, says so") {
  Rung rung = rung_of(right);
  const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  const auto judged = [&](EmulatedLaunch plain, EmulatedLaunch fused) {
    rung.variants[0].on_emulator = plain;
    rung.variants[0].on_emulator_fused = fused;
    return check_sets_on_emulator(rung, rung.variants[0], problem, {}, false, true).front();
  };
  CHECK(judged(right, right).ok);
  const CheckResult fused = judged(right, biased), plain = judged(biased, right), both = judged(biased, biased);
  REQUIRE(only(fused, FailureKind::wrong_result));
  CHECK_THAT(fused.failures[0].message, Contains("right only where a product is rounded before it is added to"));
  REQUIRE(only(plain, FailureKind::wrong_result));
  CHECK_THAT(plain.failures[0].message, Contains("right only where a product and the sum behind it have one rounding"));
  REQUIRE(only(both, FailureKind::wrong_result));
  CHECK_THAT(both.failures[0].message, !Contains("right only"));
}

TEST_CASE("two runs are the same to the last bit of the last element, in either build and in any order") {
  static const auto with_last_bit = [](emulator::Device& device, const AttentionParams& given, bool flipped) {
    right(device, given);
    const AttentionParams p = on_host(device, given);
    p.O[int64_t{p.batch_heads} * p.n * p.d - 1].bits ^= flipped;
  };
  const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  Rung rung = rung_of(right);
  rung.variants[0].on_emulator_zeroed =
      +[](emulator::Device& device, const AttentionParams& p) { with_last_bit(device, p, true); };
  const CheckResult unset = check_on_emulator(rung, rung.variants[0], problem, {}, true);
  REQUIRE(only(unset, FailureKind::unset_variable));
  CHECK_THAT(unset.failures[0].message, Contains("at batch 0, head 1, query 63, column 31"));

  const auto by_order = +[](emulator::Device& device, const AttentionParams& p) {
    with_last_bit(device, p, device.options().schedule != 0);
  };
  rung = rung_of(by_order);
  rung.variants[0].on_emulator_zeroed = by_order;
  const CheckResult order = check_on_emulator(rung, rung.variants[0], problem, {}, true);
  REQUIRE(only(order, FailureKind::order_dependent));
  CHECK_THAT(order.failures[0].message, Contains("at batch 0, head 1, query 63, column 31"));
  // Whatever the seed is.
  const CheckResult even =
      check_on_emulator(rung, rung.variants[0], make_problem(SHAPE, InputKind::normal, 0), {}, true);
  CHECK(only(even, FailureKind::order_dependent));
}

TEST_CASE("the second run of a problem has the options of the first, but for the order of the threads") {
  static std::vector<emulator::Options> asked;
  const auto record = +[](emulator::Device& device, const AttentionParams& p) {
    asked.push_back(device.options());
    right(device, p);
  };
  Rung rung = rung_of(record);
  rung.variants[0].on_emulator_zeroed = record;
  const Problem problem = make_problem(SHAPE, InputKind::normal, 1);
  CHECK(check_on_emulator(rung, rung.variants[0], problem, {.max_reports = 3, .multiprocessors = 7}, true).ok);
  REQUIRE(asked.size() == 2);
  for (const emulator::Options& options : asked) {
    CHECK(options.max_reports == 3);
    CHECK(options.multiprocessors == 7);
  }
  CHECK(asked[0].schedule == 0);
  CHECK(asked[1].schedule != 0);
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

TEST_CASE("of a problem of 2^32 elements a head in the middle and the last one are judged") {
  Problem problem = make_problem({.heads = 2, .n = 513, .d = 128}, InputKind::normal, 1);
  problem.far_heads = 65534;
  const auto judged = [&](Kernel* kernel) {
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem);
  };
  // Two heads, where the tensors have them. The product of a head's number and its size is taken in 64 or in 32 bits.
  static const int64_t middle = problem.launched_head(0);
  CHECK(middle * problem.shape.n * problem.shape.d > int64_t{1} << 31);
  static const auto two_heads = [](emulator::Device& device, AttentionParams p, auto times) {
    const AttentionParams all = on_host(device, p);
    for (const int64_t head : {middle, int64_t{p.batch_heads} - 1}) attend_head(all, times(head, p.n * p.d));
  };
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          two_heads(device, p, [](int64_t a, int64_t b) { return a * b; });
        }).ok);
  const CheckResult narrow = judged([](emulator::Device& device, const AttentionParams& p) {
    two_heads(device, p, [](uint32_t a, uint32_t b) { return a * b; });
  });
  REQUIRE(narrow.has(FailureKind::unwritten_output));
  CHECK(narrow.failures[0].message.find("batch 1, head 32766") != std::string::npos);
}

TEST_CASE("of many heads a third one can be judged, which lies between the first and the last") {
  Problem problem = make_problem({.heads = 3, .n = 40, .d = 32}, InputKind::normal, 1);
  problem.far_heads = 1000;
  const int64_t middle = problem.launched_head(1);
  CHECK(problem.launched_head(0) == 0);
  CHECK(problem.launched_head(2) == 999);
  CHECK(middle > 16);
  CHECK(middle < 983);
  const auto judged = [&](Kernel* kernel) {
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem);
  };
  static const auto heads = [](emulator::Device& device, AttentionParams p, std::initializer_list<int64_t> which) {
    for (const int64_t head : which) attend_head(on_host(device, p), static_cast<size_t>(head * p.n * p.d));
  };
  static const int64_t known_middle = middle;
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, {0, known_middle, 999});
        }).ok);
  const CheckResult without = judged([](emulator::Device& device, const AttentionParams& p) {
    heads(device, p, {0, 999});
  });
  REQUIRE(without.has(FailureKind::unwritten_output));
  CHECK(without.failures[0].message.find(fmt::format("batch {}, head {}", middle / 500, middle % 500)) !=
        std::string::npos);
}

TEST_CASE("where only the ends of a grid run, the rows are judged that they write, and there must be enough of them") {
  Problem problem = make_question({.heads = 2, .n = 1024, .d = 32}, std::array{InputKind::normal, InputKind::ties}, 1);
  problem.ends_only = true;
  // On the host: all rows, one wrong row, nothing at all, half a row.
  const auto judged = [&](Kernel* kernel) {
    const Rung fake = rung_of(kernel);
    return check_sets_on_emulator(fake, fake.variants[0], problem);
  };
  static const auto row = [](emulator::Device& device, const AttentionParams& given, int query, float value) {
    const AttentionParams p = on_host(device, given);
    std::fill_n(p.O + int64_t{query} * p.d, p.d, to_f16(value));
  };
  CHECK(judged(right)[0].ok);
  const auto wrong = judged([](emulator::Device& device, const AttentionParams& p) { row(device, p, 2047, 3.0f); });
  CHECK(wrong[0].ok);
  CHECK(wrong[1].has(FailureKind::wrong_result));
  const auto nothing = judged([](emulator::Device&, const AttentionParams&) {});
  CHECK(nothing[0].has(FailureKind::unwritten_output));
  const auto half = judged([](emulator::Device& device, const AttentionParams& p) {
    const AttentionParams all = on_host(device, p);
    std::fill_n(all.O, 16, to_f16(0.0f));
  });
  CHECK(half[0].has(FailureKind::unwritten_output));
}

TEST_CASE("where only the ends of a grid run, rows of every residue are judged") {
  // 2112 rows, of which 96 are judged: 22 apart, every other row would be left out.
  Problem problem = make_question({.heads = 2, .n = 1056, .d = 32}, std::array{InputKind::normal}, 1);
  problem.ends_only = true;
  static int64_t wrong_residue;
  const Rung rung = rung_of(then([](const AttentionParams& p) {
    for (int64_t row = wrong_residue; row < 2 * p.n; row += 2) p.O[row * p.d] = to_f16(3.0f);
  }));
  for (wrong_residue = 0; wrong_residue < 2; ++wrong_residue)
    CHECK(only(check_on_emulator(rung, rung.variants[0], problem), FailureKind::wrong_result));
}

TEST_CASE("a kernel may take many heads in turn instead of one after the other") {
  Problem problem = make_problem({.heads = 2, .n = 41, .d = 32}, InputKind::normal, 1);
  problem.far_heads = 1000;
  static std::vector<emulator::Options> asked;
  const auto judged = [&](Kernel* kernel) {
    asked.clear();
    const Rung rung = rung_of(kernel);
    return check_on_emulator(rung, rung.variants[0], problem, {.multiprocessors = 7});
  };
  static const int64_t first = problem.launched_head(0);
  static const auto heads = [](emulator::Device& device, AttentionParams p, bool last) {
    asked.push_back(device.options());
    attend_head(on_host(device, p), static_cast<size_t>(first * p.n * p.d));
    if (last) attend_head(on_host(device, p), static_cast<size_t>(int64_t{999} * p.n * p.d));
  };
  // Of the blocks that run, those of the last head are among them one way or the other.
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, device.options().interleaved);
        }).ok);
  REQUIRE(asked.size() == 2);
  CHECK(asked[1].interleaved);
  CHECK(asked[1].multiprocessors >= 1000);  // none of the blocks has a second head
  // As many blocks as multiprocessors, whatever there is to do: the last head is another block's if there are more of them.
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, device.options().multiprocessors == static_cast<uint32_t>(p.batch_heads * p.n));
        }).ok);
  CHECK(judged([](emulator::Device& device, const AttentionParams& p) {
          heads(device, p, !device.options().interleaved);
        }).ok);
  CHECK(asked.size() == 1);
  // Where it is wrong either way, the usual one is told.
  const CheckResult without = judged([](emulator::Device& device, const AttentionParams& p) {
    if (!device.options().interleaved) heads(device, p, false);
  });
  REQUIRE(only(without, FailureKind::unwritten_output));
  CHECK_THAT(without.failures[0].message, StartsWith("1312 of 2624 output elements were never written"));
}

TEST_CASE("a kernel may take the last of many heads first") {
  const int known = GENERATE(2, 3);
  static int launches;
  Problem problem = make_problem({.heads = known, .n = 41, .d = 32}, InputKind::normal, 1);
  problem.far_heads = GENERATE(999, 1000);
  CAPTURE(known, problem.far_heads);
  // Head 999 - i, as of a block of head i, where that is among those that run.
  const Rung rung = rung_of([](emulator::Device& device, const AttentionParams& given) {
    ++launches;
    const emulator::Options& options = device.options();
    AttentionParams p = given;
    const auto heads = static_cast<uint64_t>(p.batch_heads);
    if (options.slices != heads || options.interleaved > 0) return;
    for (const uint64_t block : {options.from, std::max(options.from, options.between), heads - 1})
      attend_head(on_host(device, p), static_cast<size_t>((heads - 1 - block) * static_cast<uint64_t>(p.n * p.d)));
  });
  launches = 0;
  const CheckResult result = check_on_emulator(rung, rung.variants[0], problem);
  INFO((result.failures.empty() ? "" : result.failures[0].message));
  CHECK(result.ok);
  CHECK(launches <= 6);
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

// ---- properties ------------------------------------------------------------------------------------------------------

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

constexpr Shape MASKED{.batch = 1, .heads = 2, .n = 64, .d = 32, .causal = true};

TEST_CASE("attention has all properties") {
  const auto right = [](const AttentionParams& p) { attention(p); };
  CHECK(broken(right) == Names{});
  CHECK(broken(right, MASKED) == Names{});
}

TEST_CASE("each property is broken by the fault it guards against") {
  // Slight faults, so that loose bounds would let them pass. Weights by position: order matters.
  CHECK(broken([](const AttentionParams& p) { attention(p, [](int j, double) { return 1.0 + 0.2 * (j % 2); }); }) ==
        Names{"permuted_keys"});
  // One key of the future is seen.
  CHECK(broken([](const AttentionParams& p) { attention(p, EVEN, 0, 1); }, MASKED) == Names{"prefix"});
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
