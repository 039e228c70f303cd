// A kernel in two builds, with one rounding and with two, and in another order.
#include <vector>

#include "harness/tests/catch.hpp"
#include "harness/tests/verify/host_kernels.hpp"

using namespace ladder;
using namespace host_kernels;

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
  CHECK_THAT(fused.failures[0].message, Contains("right only where a product is rounded before"));
  REQUIRE(only(plain, FailureKind::wrong_result));
  CHECK_THAT(plain.failures[0].message, Contains("right only where") && Contains("one rounding"));
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
