#include "harness/measure/statistics.hpp"

#include <algorithm>
#include <array>
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

namespace {

// Coin flips, counted by Pascal's triangle: the chance of at most `heads` heads in `flips` of a fair coin. Exact up to 50.
double at_most(int flips, int heads) {
  std::vector<double> row{1};
  for (int n = 1; n <= flips; ++n) {
    row.push_back(0);
    for (size_t k = row.size() - 1; k > 0; --k) row[k] += row[k - 1];
  }
  return std::accumulate(row.begin(), row.begin() + heads + 1, 0.0) / std::ldexp(1.0, flips);
}

// 1, 2, 4, 7, ...: no two neighbours are as far apart as another two.
std::vector<double> uneven(int count) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) samples.push_back(1 + i * (i + 1) / 2);
  return samples;
}

}  // namespace

TEST_CASE("of fewer than six samples the interval is all of them, of none there is none") {
  CHECK(median_interval(std::vector<double>{7}) == Estimate{7, 7, 7});
  CHECK(median_interval(std::vector<double>{4, 1, 7, 2, 11}) == Estimate{4, 1, 11});
  const Estimate none = median_interval({});
  for (const double end : {none.value, none.lo, none.hi}) CHECK(std::isnan(end));
}

TEST_CASE("between order statistics the interval is Hettmansperger's and Sheather's") {
  for (int n = 6; n <= 50; ++n) {
    CAPTURE(n);
    std::vector<double> samples = uneven(n);
    // From the paper: gamma_k, the confidence of the k-th from either side, and the weight lambda of the next one.
    const auto gamma = [&](int k) { return 1 - 2 * at_most(n, k - 1); };
    int k = n / 2;
    while (gamma(k) < 0.95) --k;
    const double share = (gamma(k) - 0.95) / (gamma(k) - gamma(k + 1));
    const double lambda = (n - k) * share / (k + (n - 2 * k) * share);
    const double lo = (1 - lambda) * samples[k - 1] + lambda * samples[k];
    const double hi = (1 - lambda) * samples[n - k] + lambda * samples[n - k - 1];
    std::reverse(samples.begin(), samples.end());
    const Estimate estimate = median_interval(samples);
    CHECK(estimate.value == median(samples));
    CHECK(estimate.lo == Approx(lo).epsilon(1e-9));
    CHECK(estimate.hi == Approx(hi).epsilon(1e-9));
  }
}

TEST_CASE("the sign test is exact for every split, whatever lies at the centre") {
  for (int flips = 0; flips <= 50; ++flips) {
    for (int above = 0; above <= flips; ++above) {
      CAPTURE(flips, above);
      std::vector<double> samples(static_cast<size_t>(above), 3.5);
      samples.resize(static_cast<size_t>(flips), 2.5);
      samples.resize(static_cast<size_t>(flips + flips % 3), 3);  // on neither side
      CHECK(sign_test(samples, 3) == Approx(std::min(1.0, 2 * at_most(flips, std::min(above, flips - above)))));
    }
  }
}

namespace {

// Twelve contestants on a card that remembers who ran before, throttles in a sawtooth, drifts, and hiccups. Everything of
// it is known: each contestant's own speed, and how much each one slows each other one that comes next.
struct Card {
  static constexpr int CONTESTANTS = 12, ROUNDS = 24;
  std::mt19937 random;
  std::array<double, CONTESTANTS> speed{};
  std::array<double, CONTESTANTS> heat{};                               // what each carries over, of log(time)
  std::array<std::array<double, CONTESTANTS>, CONTESTANTS> reaction{};  // [before][who], beyond what all feel

  double uniform() { return random() / 4294967296.0; }
  double normal() {  // the sum of twelve uniform numbers: normal enough, and the same with every standard library
    double sum = -6;
    for (int k = 0; k < 12; ++k) sum += uniform();
    return sum;
  }
  void draw_carry_over(double reactions) {
    for (size_t before = 0; before < CONTESTANTS; ++before) {
      heat[before] = 0.08 * uniform();
      for (double& each : reaction[before]) each = reactions * heat[before] * (2 * uniform() - 1);
    }
  }
  // How much faster a is than b when everyone else goes before them equally often.
  double truth(size_t a, size_t b) const {
    const auto slowed = [&](size_t who) {
      double sum = 0;
      for (size_t before = 0; before < CONTESTANTS; ++before) sum += before == who ? 0 : reaction[before][who];
      return sum / (CONTESTANTS - 1);
    };
    return speed[a] / speed[b] * std::exp(slowed(b) - slowed(a));
  }
  // One run of the bench on it.
  std::vector<Series> run() {
    std::vector<Series> all(CONTESTANTS);
    int before = -1;
    double clock = uniform();
    for (int round = 0; round < ROUNDS; ++round) {
      for (const int who : round_order(CONTESTANTS, round)) {
        clock += 0.029;
        const double sawtooth = 0.05 * std::fmod(clock, 1), drift = 0.03 * round / ROUNDS;
        const auto last = static_cast<size_t>(before), next = static_cast<size_t>(who);
        const double slowed = before < 0 ? 0 : heat[last] + reaction[last][next];
        const double hiccup = uniform() < 0.01 ? 0.1 : 0;
        const double log_ms = sawtooth + drift + slowed + hiccup + 0.004 * normal();
        all[static_cast<size_t>(who)].ms.push_back(std::exp(log_ms) / speed[static_cast<size_t>(who)]);
        all[static_cast<size_t>(who)].before.push_back(before);
        before = who;
      }
    }
    return all;
  }
};

}  // namespace

TEST_CASE("on simulated cards a 95 % interval holds the truth in 95 % of the cases") {
  Card card{.random = std::mt19937(11)};
  int held = 0, held_unadjusted = 0, intervals = 0;
  double width = 0, width_unadjusted = 0;
  for (int experiment = 0; experiment < 150; ++experiment) {
    for (double& speed : card.speed) speed = 1 + card.uniform();
    card.draw_carry_over(0.2);
    const std::vector<Series> run = card.run();
    const auto adjusted = without_carry_over(run);
    for (size_t i = 1; i < run.size(); ++i) {
      const double truth = card.truth(i, i - 1);
      const Estimate with = median_interval(paired_speedups(adjusted[i], adjusted[i - 1]));
      const Estimate without = median_interval(paired_speedups(run[i].ms, run[i - 1].ms));
      held += with.lo <= truth && truth <= with.hi;
      held_unadjusted += without.lo <= truth && truth <= without.hi;
      width += (with.hi - with.lo) / truth;
      width_unadjusted += (without.hi - without.lo) / truth;
      ++intervals;
    }
  }
  const double share = double(held) / intervals;
  CAPTURE(share, double(held_unadjusted) / intervals, width / intervals, width_unadjusted / intervals);
  CHECK(share > 0.93);
  CHECK(share < 0.97);
  CHECK(width < 0.7 * width_unadjusted);
}

TEST_CASE("where nothing changed, faster and slower are said in at most 5 % of the tables") {
  Card card{.random = std::mt19937(12)};
  card.speed.fill(1);
  int wrong_tables = 0, wrong_one_by_one = 0;
  constexpr int TABLES = 200;
  for (int experiment = 0; experiment < TABLES; ++experiment) {
    card.draw_carry_over(0);  // equal kernels react alike
    const std::vector<Series> run = card.run();
    const auto adjusted = without_carry_over(run);
    std::vector<Speedup> table;
    for (size_t i = 1; i < adjusted.size(); ++i)
      table.push_back(speedup(paired_speedups(adjusted[i], adjusted[i - 1]), true));
    const auto wrong = [](Verdict verdict) { return verdict != Verdict::same; };
    wrong_tables += std::ranges::any_of(verdicts(table), wrong);
    bool one = false;
    for (const Speedup& each : table) one = one || wrong(verdicts(std::span(&each, 1)).front());
    wrong_one_by_one += one;
  }
  CAPTURE(wrong_tables, wrong_one_by_one);
  CHECK(wrong_tables <= 0.05 * TABLES);
  CHECK(wrong_one_by_one > 0.15 * TABLES);  // eleven chances of being wrong
}

TEST_CASE("true gains are found") {
  Card card{.random = std::mt19937(13)};
  int found = 0, others = 0;
  for (int experiment = 0; experiment < 50; ++experiment) {
    for (size_t i = 0; i < card.speed.size(); ++i) card.speed[i] = i % 4 == 3 ? 1.02 : 1;  // each fourth gains 2 %
    card.draw_carry_over(0.2);
    const std::vector<Series> run = card.run();
    const auto adjusted = without_carry_over(run);
    std::vector<Speedup> table;
    for (size_t i = 1; i < adjusted.size(); ++i)
      table.push_back(speedup(paired_speedups(adjusted[i], adjusted[0]), true));
    const std::vector<Verdict> all = verdicts(table);
    for (size_t i = 1; i < adjusted.size(); ++i) (i % 4 == 3 ? found : others) += all[i - 1] == Verdict::faster;
  }
  CAPTURE(found, others);
  CHECK(found >= 0.9 * 150);
  CHECK(others <= 0.05 * (found + others));
}

TEST_CASE("what the one before does is taken away, and nothing else") {
  // Of each contestant its time and what it does to the next one, in logarithms: no noise. Every third round is slower.
  for (const int contestants : {3, 6, 7}) {
    CAPTURE(contestants);
    const auto own = [](int who) { return 0.3 * who * who; };
    const auto heat = [&](int before) { return before < 0 ? 0.0 : 0.01 * (before * 5 % contestants); };
    std::vector<Series> run(static_cast<size_t>(contestants));
    std::vector<double> heats;
    int before = -1;
    for (int round = 0; round < 2 * round_period(contestants); ++round) {
      for (const int who : round_order(contestants, round)) {
        run[who].ms.push_back(std::exp(own(who) + (round % 3 == 0 ? 0.2 : 0.0) + heat(before)));
        run[who].before.push_back(before);
        heats.push_back(heat(before));
        before = who;
      }
    }
    const double middle = median(heats);
    const std::vector<std::vector<double>> adjusted = without_carry_over(run);
    REQUIRE(adjusted.size() == run.size());
    for (int who = 0; who < contestants; ++who) {
      REQUIRE(adjusted[who].size() == run[who].ms.size());
      for (size_t round = 0; round < adjusted[who].size(); ++round) {
        if (run[who].before[round] < 0)
          continue;  // one alone followed nobody: that can be its own time, or the round's
        CAPTURE(who, round);
        CHECK(std::log(adjusted[who][round]) == Approx(own(who) + (round % 3 == 0 ? 0.2 : 0.0) + middle).margin(1e-3));
      }
    }
    // One hiccup moves itself alone; a contestant without times is passed over, wherever it stands.
    std::vector<Series> hiccup = run;
    hiccup[1].ms[4] *= 3;
    hiccup.push_back({});
    const std::vector<std::vector<double>> with_hiccup = without_carry_over(hiccup);
    REQUIRE(with_hiccup.size() == run.size() + 1);
    CHECK(with_hiccup.back().empty());
    for (int who = 0; who < contestants; ++who) {
      for (size_t round = 0; round < adjusted[who].size(); ++round) {
        const double times = who == 1 && round == 4 ? 3 : 1;
        CHECK(with_hiccup[who][round] == Approx(times * adjusted[who][round]).epsilon(1e-3));
      }
    }
  }
  CHECK(without_carry_over({}).empty());
  CHECK(without_carry_over(std::vector<Series>(2)) == std::vector<std::vector<double>>(2));
}

TEST_CASE("what is taken away for carry-over has median 0 over all contestants") {
  std::mt19937 random(14);
  for (const int contestants : {1, 2, 3, 4, 5}) {
    CAPTURE(contestants);
    std::vector<Series> run(static_cast<size_t>(contestants));
    int before = -1;
    for (int round = 0; round < 10; ++round) {
      for (const int who : round_order(contestants, round)) {
        run[who].ms.push_back(1 + who + 0.2 * before + random() / 4294967296.0);
        run[who].before.push_back(before);
        before = who;
      }
    }
    const std::vector<std::vector<double>> adjusted = without_carry_over(run);
    std::vector<double> taken;
    for (int who = 0; who < contestants; ++who) {
      for (size_t round = 0; round < 10; ++round) taken.push_back(std::log(run[who].ms[round] / adjusted[who][round]));
    }
    CHECK(median(taken) == Approx(0).margin(1e-12));
  }
}

TEST_CASE("speedups are of work per time, above 1 when the first is faster") {
  const std::vector<double> a{10, 20}, b{11, 19};
  CHECK(paired_speedups(a, b) == std::vector<double>{1.1, 0.95});
  CHECK(paired_speedups(a, b, 2) == std::vector<double>{2.2, 1.9});
  // Of two that ran in different numbers of rounds, those that both have.
  const std::vector<double> three{1, 2, 4}, five{2, 3, 4, 5, 6};
  CHECK(paired_speedups(three, five) == std::vector<double>{2, 1.5, 1});
  CHECK(paired_speedups(five, three) == std::vector<double>{0.5, 2.0 / 3, 1});
  CHECK(paired_speedups({}, five).empty());
}

TEST_CASE("a verdict needs an interval without 1, a gain of at least 0.2 %, and a balanced run") {
  const auto one = [](const Estimate& estimate, bool balanced = true) {
    const Speedup speedup{estimate, 1e-6, balanced};
    return verdicts(std::span(&speedup, 1)).front();
  };
  CHECK(one({1.010, 1.005, 1.015}) == Verdict::faster);
  CHECK(one({0.990, 0.985, 0.995}) == Verdict::slower);
  CHECK(one({NAN, NAN, NAN}) == Verdict::same);
  CHECK(one({1.010, 1.005, 1.015}, false) == Verdict::none);
  // Of both bounds, each side. A gain of 0.2 % is one.
  CHECK(one({1.002, 1.0015, 1.0025}) == Verdict::faster);
  CHECK(one({0.998, 0.9975, 0.9985}) == Verdict::slower);
  CHECK(one({1.0019999, 1.0015, 1.0025}) == Verdict::same);
  CHECK(one({0.9980001, 0.9975, 0.9985}) == Verdict::same);
  CHECK(one({1.010, 1.000, 1.015}) == Verdict::same);
  CHECK(one({0.990, 0.985, 1.000}) == Verdict::same);
  CHECK(one({1.010, 1.0000001, 1.015}) == Verdict::faster);
  CHECK(one({0.990, 0.985, 0.9999999}) == Verdict::slower);
  CHECK(one({3.5, 2.5, 4.5}) == Verdict::faster);
  CHECK(one({0.3, 0.2, 0.4}) == Verdict::slower);
  CHECK(to_string(Verdict::faster) == "faster");
  CHECK(to_string(Verdict::slower) == "slower");
  CHECK(to_string(Verdict::same) == "same");
  CHECK(to_string(Verdict::none).empty());
}

TEST_CASE("verdicts stand as Benjamini and Hochberg choose them, of the balanced ones") {
  const Estimate gain{1.05, 1.01, 1.09}, loss{0.95, 0.91, 0.99};
  std::mt19937 random(5);
  for (int experiment = 0; experiment < 2000; ++experiment) {
    std::vector<Speedup> table(1 + random() % 8);
    for (Speedup& each : table) {
      each = {random() % 2 ? gain : loss, 0, random() % 4 != 0};
      each.chance = 0.05 / 64 * static_cast<double>(random() % (random() % 2 ? 128 : 640));
    }
    const auto tests = std::ranges::count_if(table, &Speedup::balanced);
    // By the definition: of the sorted chances find the last, the r-th, that is at most r / tests of 5 %; those up to it
    // stand. That is, whoever is at most such a bound, for some r with r chances within it.
    const auto stands = [&](double chance) {
      for (std::ptrdiff_t r = tests; r >= 1; --r) {
        const double bound = 0.05 * static_cast<double>(r) / static_cast<double>(tests);
        const auto within =
            std::ranges::count_if(table, [&](const Speedup& each) { return each.balanced && each.chance <= bound; });
        if (within >= r) return chance <= bound;
      }
      return false;
    };
    std::vector<Verdict> expected;
    for (const Speedup& each : table) {
      expected.push_back(!each.balanced          ? Verdict::none
                         : !stands(each.chance)  ? Verdict::same
                         : each.estimate == gain ? Verdict::faster
                                                 : Verdict::slower);
    }
    REQUIRE(verdicts(table) == expected);
  }
  CHECK(verdicts({}).empty());
}

TEST_CASE("a speedup carries its interval, its chance and whether its run was balanced") {
  const std::vector<double> ratios{1.02, 1.03, 0.99, 1.04, 1.05, 1.06, 1.07, 1.08};
  for (const bool balanced : {false, true}) {
    const Speedup all = speedup(ratios, balanced);
    CHECK(all.estimate == median_interval(ratios));
    CHECK(all.chance == Approx(2 * 9 / 256.0));  // one of eight below 1, or none
    CHECK(all.balanced == balanced);
  }
}

TEST_CASE("two contestants alternate ABBA") {
  CHECK(round_order(2, 0) == std::vector<int>{0, 1});
  CHECK(round_order(2, 1) == std::vector<int>{1, 0});
  CHECK(round_order(2, 2) == std::vector<int>{0, 1});
  CHECK(round_order(1, 5) == std::vector<int>{0});
  CHECK(round_order(0, 0).empty());
}

TEST_CASE(
    "a period is as long as a Williams design: as many rounds as contestants, or twice as many when they are odd") {
  const int periods[] = {1, 2, 6, 4, 10, 6, 14, 8, 18, 10, 22, 12};
  for (int contestants = 1; contestants <= 12; ++contestants) {
    CAPTURE(contestants);
    CHECK(round_period(contestants) == periods[contestants - 1]);
  }
}

TEST_CASE("each contestant stands everywhere and follows everyone equally often") {
  for (int contestants = 2; contestants <= 15; ++contestants) {
    CAPTURE(contestants);
    const int period = round_period(contestants);
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
  CHECK(launches_for_at_least(1000, 1.1) == 1000);
  CHECK(launches_for_at_least(1000, 1.0995) == 1001);
  CHECK(launches_for_at_least(0.5, 0.125) == 5);
  CHECK(launches_for_at_most(0.5, 0.125) == 4);
  CHECK(launches_for_at_most(0.5, 0.12) == 4);
  CHECK(launches_for_at_most(20, 0) == 1000000);
  CHECK(launches_for_at_least(20, 0) == 1000000);  // a clock that stood still must not ask for ever
}
