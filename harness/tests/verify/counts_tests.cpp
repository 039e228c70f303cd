// What was counted, held to what is predicted.
#include "harness/tests/catch.hpp"
#include "harness/tests/verify/host_kernels.hpp"

using namespace ladder;
using namespace host_kernels;

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
    CHECK_THAT(result.failures[0].message, Contains("predicted 4"));
    if (off != &Counts::idle_blocks) CHECK_THAT(result.failures[0].message, StartsWith(std::string(count.words) + ":"));
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

TEST_CASE("right and slow is not wrong: answers and counts are two verdicts") {
  Rung rung = rung_of(right);
  rung.variants[0].predict = [](const Shape&) { return Counts{.mma = 4}; };
  const CheckResult slow = check(rung);
  CHECK_FALSE(slow.ok);
  CHECK(slow.answers_right());
  CHECK_FALSE(slow.counts_right());
  CHECK_FALSE(check(rung_of(biased)).answers_right());
  CHECK(check(rung_of(biased)).counts_right());
}
