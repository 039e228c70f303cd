// What the bench says about its samples: pure functions, no clock and no GPU.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace ladder {

// The value below which `percent` of the samples lie, linearly interpolated between neighbours. NaN without samples.
double percentile(std::span<const double> samples, double percent);
double median(std::span<const double> samples);

// A median with its 95 % interval.
struct Estimate {
  double value = 0, lo = 0, hi = 0;
  bool operator==(const Estimate&) const = default;
};

// The median of independent samples and the interval between two of their order statistics, which holds the true median
// with 95 % whatever the distribution: so many of n coin flips are heads (the sign test turned around). Two neighbouring
// order statistics are interpolated after Hettmansperger and Sheather (Statistics & Probability Letters 4, 1986). Fewer
// than six samples hold no 95 %: the interval is then all of them.
Estimate median_interval(std::span<const double> samples);

// How likely so many samples on one side of `centre` are, or more, when the true median is there: the two-sided sign test.
double sign_test(std::span<const double> samples, double centre);

// A kernel runs slower right after one that has heated the card. Of every contestant its time in every round, and who ran
// right before it (an index, or -1): the same times without what the one before did to them. The model is that of a
// crossover trial with carry-over, log(time) = contestant + round + the one before, fitted by medians (Tukey's polish), so
// that one hiccup moves nothing. What is taken away has median 0 over all contestants. A contestant without times is
// passed over.
struct Series {
  std::vector<double> ms;   // one per round
  std::vector<int> before;  // the one that ran right before, one per round
};
std::vector<std::vector<double>> without_carry_over(std::span<const Series> contestants);

// How much faster `a` was than `b` within each round: work_per_ms(a) / work_per_ms(b), above 1 when a is faster. Both
// hold one time per round; `work_ratio` is the work of a launch of a over that of b. Pairing within the round takes out
// what both share: the clock, the temperature, the power cap.
std::vector<double> paired_speedups(std::span<const double> ms_a, std::span<const double> ms_b, double work_ratio = 1);

enum class Verdict { none, faster, slower, same };
std::string_view to_string(Verdict verdict);  // none is ""

// A ratio with what the verdict rests on.
struct Speedup {
  Estimate estimate;
  double chance = 1;     // of a ratio so far from 1 when nothing has changed: sign_test(ratios, 1)
  bool balanced = true;  // everyone followed everyone else equally often, in enough rounds
};
Speedup speedup(std::span<const double> ratios, bool balanced);

// The verdicts of one table. With many of them some are wrong by chance: those that stand are chosen after Benjamini and
// Hochberg (1995), so that of those that say faster or slower at most 5 % are expected to be wrong. `same` is also what
// gains less than 0.2 %: smaller gains have not survived a second run. An unbalanced ratio gets none.
std::vector<Verdict> verdicts(std::span<const Speedup> table);

// The order of one round: every contestant once. Rounds follow a Williams design: over round_period() rounds each stands in
// each position equally often and follows each other one equally often. Two contestants alternate: ABBA.
std::vector<int> round_order(int contestants, int round);
int round_period(int contestants);  // their number, or twice an odd one; 1 of one alone

// Launches that last at least `group_ms` together, with a tenth to spare; at least 1.
int launches_for_at_least(double group_ms, double ms_per_launch);
// Launches that last at most `group_ms` together; at least 1.
int launches_for_at_most(double group_ms, double ms_per_launch);

}  // namespace ladder
