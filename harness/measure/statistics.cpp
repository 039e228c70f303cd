#include "harness/measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace ladder {
namespace {

double percentile_of_sorted(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

int at_least_one(double launches) {
  return static_cast<int>(std::clamp(launches, 1.0, 1e6));
}

}  // namespace

double percentile(std::span<const double> samples, double percent) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return percentile_of_sorted(sorted, percent);
}

double median(std::span<const double> samples) {
  return percentile(samples, 50);
}

Estimate bootstrap_median(std::span<const double> samples) {
  constexpr int RESAMPLES = 4000;
  const double mid = median(samples);
  if (samples.size() < 2) return {mid, mid, mid};
  std::mt19937_64 random(20220527);  // any constant
  std::vector<double> resample(samples.size()), medians(RESAMPLES);
  for (double& resampled : medians) {
    // The modulo is biased by less than 2^-50; the distributions of <random> differ between standard libraries.
    for (double& value : resample) value = samples[random() % samples.size()];
    std::sort(resample.begin(), resample.end());
    resampled = percentile_of_sorted(resample, 50);
  }
  std::sort(medians.begin(), medians.end());
  return {mid, percentile_of_sorted(medians, 2.5), percentile_of_sorted(medians, 97.5)};
}

std::vector<double> paired_speedups(std::span<const double> ms_a, std::span<const double> ms_b, double work_ratio) {
  std::vector<double> speedups(std::min(ms_a.size(), ms_b.size()));
  for (size_t round = 0; round < speedups.size(); ++round) speedups[round] = work_ratio * ms_b[round] / ms_a[round];
  return speedups;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      break;
  }
  return "same";
}

Verdict verdict(const Estimate& speedup) {
  constexpr double SMALLEST_GAIN = 0.002;
  if (!(std::abs(speedup.value - 1) >= SMALLEST_GAIN)) return Verdict::same;
  if (speedup.lo > 1) return Verdict::faster;
  if (speedup.hi < 1) return Verdict::slower;
  return Verdict::same;
}

std::vector<int> round_order(int contestants, int round) {
  // The first row zigzags: 0, 1, n - 1, 2, n - 2, ... Its neighbours differ by 1, -2, 3, -4, ..., every distance once,
  // so that the rows shifted by 1, 2, ... n - 1 hold every ordered pair of neighbours once. For odd n the distances
  // repeat with the opposite sign, and the reversed rows supply the missing pairs.
  const bool odd = contestants % 2 == 1;
  const int shift = odd ? round / 2 : round;
  std::vector<int> order(static_cast<size_t>(contestants));
  for (int place = 0; place < contestants; ++place) {
    const int zigzag = place % 2 == 1 ? (place + 1) / 2 : contestants - place / 2;
    order[static_cast<size_t>(place)] = (zigzag + shift) % contestants;
  }
  if (odd && round % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

int launches_for_at_least(double group_ms, double ms_per_launch) {
  return at_least_one(std::ceil(1.1 * group_ms / ms_per_launch));
}

int launches_for_at_most(double group_ms, double ms_per_launch) {
  return at_least_one(std::floor(group_ms / ms_per_launch));
}

}  // namespace ladder
