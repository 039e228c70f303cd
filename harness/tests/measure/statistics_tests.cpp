#include "harness/measure/statistics.hpp"

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "harness/tests/catch.hpp"

using namespace ladder;

TEST_CASE("percentiles interpolate between neighbours and ignore the order") {
  const std::vector<double> samples{40, 10, 30, 20};
  CHECK(median(samples) == 25);
  CHECK(percentile(samples, 0) == 10);
  CHECK(percentile(samples, 20) == Approx(16));
  CHECK(percentile(samples, 80) == Approx(34));
  CHECK(percentile(samples, 100) == 40);
  CHECK(median(std::vector<double>{7}) == 7);
  CHECK(std::isnan(median({})));
}

TEST_CASE("the bootstrap interval holds the median, narrows with more rounds and is the same every time") {
  std::mt19937 random(7);
  const auto samples_of = [&](int count) {
    std::vector<double> samples;
    // The sum of twelve uniform numbers: normal enough, and the same with every standard library.
    for (int i = 0; i < count; ++i) {
      double sum = 0;
      for (int k = 0; k < 12; ++k) sum += random() / 4294967296.0;
      samples.push_back(1 + 0.01 * (sum - 6));
    }
    return samples;
  };
  const std::vector<double> twenty = samples_of(20), thousand = samples_of(1000);
  const Estimate wide = bootstrap_median(twenty), narrow = bootstrap_median(thousand);
  CHECK(wide.value == median(twenty));
  CHECK(wide.lo < wide.value);
  CHECK(wide.hi > wide.value);
  CHECK(narrow.hi - narrow.lo < (wide.hi - wide.lo) / 3);
  CHECK(bootstrap_median(twenty) == wide);
  // The median of n normal samples has standard deviation 1.25 sigma / sqrt(n): here 95 % is +-0.00078.
  CHECK(narrow.lo == Approx(narrow.value - 0.00078).margin(0.0003));
  CHECK(narrow.hi == Approx(narrow.value + 0.00078).margin(0.0003));
}

TEST_CASE("the interval of identical samples is that sample") {
  CHECK(bootstrap_median(std::vector<double>{2, 2, 2}) == Estimate{2, 2, 2});
  CHECK(bootstrap_median(std::vector<double>{5}) == Estimate{5, 5, 5});
}

TEST_CASE("the bootstrap interval covers the true median about as often as it says") {
  std::mt19937 random(11);
  int covered = 0;
  for (int experiment = 0; experiment < 100; ++experiment) {
    std::vector<double> samples;
    for (int i = 0; i < 20; ++i) samples.push_back(random() / 4294967296.0);  // true median 0.5
    const Estimate estimate = bootstrap_median(samples);
    covered += estimate.lo <= 0.5 && 0.5 <= estimate.hi;
  }
  CHECK(covered >= 88);
  CHECK(covered <= 100);
}

TEST_CASE("speedups are of work per time, above 1 when the first is faster") {
  const std::vector<double> a{10, 20}, b{11, 19};
  CHECK(paired_speedups(a, b) == std::vector<double>{1.1, 0.95});
  CHECK(paired_speedups(a, b, 2) == std::vector<double>{2.2, 1.9});
}

TEST_CASE("a verdict needs an interval without 1 and a gain of at least 0.2 %") {
  CHECK(verdict({1.010, 1.005, 1.015}) == Verdict::faster);
  CHECK(verdict({0.990, 0.985, 0.995}) == Verdict::slower);
  CHECK(verdict({1.010, 0.999, 1.015}) == Verdict::same);
  CHECK(verdict({0.990, 0.985, 1.001}) == Verdict::same);
  CHECK(verdict({1.0019, 1.0015, 1.0023}) == Verdict::same);
  CHECK(verdict({0.9981, 0.9977, 0.9985}) == Verdict::same);
  CHECK(verdict({1.0021, 1.0015, 1.0025}) == Verdict::faster);
  CHECK(verdict({NAN, NAN, NAN}) == Verdict::same);
  CHECK(to_string(Verdict::faster) == "faster");
  CHECK(to_string(Verdict::slower) == "slower");
  CHECK(to_string(Verdict::same) == "same");
}

TEST_CASE("two contestants alternate ABBA") {
  CHECK(round_order(2, 0) == std::vector<int>{0, 1});
  CHECK(round_order(2, 1) == std::vector<int>{1, 0});
  CHECK(round_order(2, 2) == std::vector<int>{0, 1});
  CHECK(round_order(1, 5) == std::vector<int>{0});
  CHECK(round_order(0, 0).empty());
}

TEST_CASE("each contestant stands everywhere and follows everyone equally often") {
  for (int contestants = 2; contestants <= 15; ++contestants) {
    CAPTURE(contestants);
    const int period = contestants % 2 == 0 ? contestants : 2 * contestants;
    std::map<std::pair<int, int>, int> at_place, neighbours;
    for (int round = 0; round < period; ++round) {
      const std::vector<int> order = round_order(contestants, round);
      std::vector<int> sorted = order, everyone(order.size());
      std::sort(sorted.begin(), sorted.end());
      std::iota(everyone.begin(), everyone.end(), 0);
      REQUIRE(sorted == everyone);
      for (size_t place = 0; place < order.size(); ++place) {
        ++at_place[{order[place], static_cast<int>(place)}];
        if (place > 0) ++neighbours[{order[place - 1], order[place]}];
      }
    }
    CHECK(at_place.size() == static_cast<size_t>(contestants * contestants));
    CHECK(neighbours.size() == static_cast<size_t>(contestants * (contestants - 1)));
    for (const auto& [who, times] : at_place) CHECK(times == period / contestants);
    for (const auto& [pair, times] : neighbours) CHECK(times == period / contestants);
  }
}

TEST_CASE("groups last as long as asked") {
  CHECK(launches_for_at_least(20, 1) == 22);
  CHECK(launches_for_at_least(20, 0.01) == 2200);
  CHECK(launches_for_at_least(20, 500) == 1);
  CHECK(launches_for_at_most(20, 1) == 20);
  CHECK(launches_for_at_most(20, 0.3) == 66);
  CHECK(launches_for_at_most(20, 500) == 1);
  CHECK(launches_for_at_least(20, 0) == 1000000);  // a clock that stood still must not ask for ever
}
