// What the bench says about its samples: pure functions, no clock and no GPU.
#pragma once
#include <cstdint>
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

// Percentile bootstrap of the median: resamples with replacement and takes the 2.5th and the 97.5th percentile of the
// resamples' medians. The seed is fixed, so the same samples give the same interval on every machine.
Estimate bootstrap_median(std::span<const double> samples);

// How much faster `a` was than `b` within each round: work_per_ms(a) / work_per_ms(b), above 1 when a is faster. Both
// hold one time per round; `work_ratio` is the work of a launch of a over that of b. Pairing within the round takes out
// what both share: the clock, the temperature, the power cap.
std::vector<double> paired_speedups(std::span<const double> ms_a, std::span<const double> ms_b, double work_ratio = 1);

enum class Verdict { faster, slower, same };
std::string_view to_string(Verdict verdict);

// `same` when the interval holds 1 or the gain is below 0.2 %: smaller gains have not survived a second run.
Verdict verdict(const Estimate& speedup);

// The order of one round: every contestant once. Rounds follow a Williams design: over `contestants` rounds (twice as
// many when their number is odd) each stands in each position equally often and follows each other one equally often,
// because a kernel runs up to 12 % slower right after one that has heated the card. Two contestants alternate: ABBA.
std::vector<int> round_order(int contestants, int round);

// Launches that last at least `group_ms` together, with a tenth to spare; at least 1.
int launches_for_at_least(double group_ms, double ms_per_launch);
// Launches that last at most `group_ms` together; at least 1.
int launches_for_at_most(double group_ms, double ms_per_launch);

}  // namespace ladder
