#include "harness/measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace ladder {
namespace {

// The chance of fewer than `heads` heads in `flips` of a coin.
double fewer_heads(std::ptrdiff_t flips, std::ptrdiff_t heads) {
  double chance = 0;
  for (std::ptrdiff_t i = 0; i < heads; ++i) {
    const auto n = static_cast<double>(flips), k = static_cast<double>(i);
    chance += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  }
  return chance;
}

int at_least_one(double launches) {
  return static_cast<int>(std::clamp(launches, 1.0, 1e6));
}

}  // namespace

double percentile(std::span<const double> samples, double percent) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

double median(std::span<const double> samples) {
  return percentile(samples, 50);
}

Estimate median_interval(std::span<const double> samples) {
  constexpr double CONFIDENCE = 0.95;
  const double mid = median(samples);
  if (samples.empty()) return {mid, mid, mid};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const auto n = std::ssize(sorted);
  // The k-th from below and the k-th from above hold the median unless fewer than k samples lie on one side of it.
  const auto confidence = [&](std::ptrdiff_t k) { return 1 - 2 * fewer_heads(n, k); };
  std::ptrdiff_t k = 1;
  if (confidence(k) < CONFIDENCE) return {mid, sorted.front(), sorted.back()};
  while (confidence(k + 1) >= CONFIDENCE) ++k;
  const double excess = (confidence(k) - CONFIDENCE) / (confidence(k) - confidence(k + 1));
  const auto whole = static_cast<double>(n), kth = static_cast<double>(k);
  const double inwards = (whole - kth) * excess / (kth + (whole - 2 * kth) * excess);
  const auto at = [&](std::ptrdiff_t place) { return sorted[static_cast<size_t>(place)]; };
  return {mid, std::lerp(at(k - 1), at(k), inwards), std::lerp(at(n - k), at(n - k - 1), inwards)};
}

double sign_test(std::span<const double> samples, double centre) {
  const auto above = std::ranges::count_if(samples, [&](double sample) { return sample > centre; });
  const auto below = std::ranges::count_if(samples, [&](double sample) { return sample < centre; });
  return std::min(1.0, 2 * fewer_heads(above + below, std::min(above, below) + 1));
}

std::vector<std::vector<double>> without_carry_over(std::span<const Series> contestants) {
  constexpr int SWEEPS = 20;
  struct Time {
    size_t who, round, before;
    double left;  // of its logarithm when contestant, round and carry-over are taken away
  };
  std::vector<Time> times;
  for (size_t who = 0; who < contestants.size(); ++who) {
    const auto& [ms, before] = contestants[who];
    for (size_t i = 0; i < ms.size(); ++i)
      times.push_back({who, i, static_cast<size_t>(before[i] + 1), std::log(ms[i])});
  }
  // Takes the median of each group of times away from these.
  const auto polish = [&](size_t Time::*group) {
    std::map<size_t, std::vector<double>> groups;
    for (const Time& time : times) groups[time.*group].push_back(time.left);
    std::map<size_t, double> medians;
    for (const auto& [number, left] : groups) medians[number] = median(left);
    for (Time& time : times) time.left -= medians[time.*group];
    return medians;
  };
  std::map<size_t, double> carry_over;  // by the one before
  for (int sweep = 0; sweep < SWEEPS; ++sweep) {
    polish(&Time::who);
    polish(&Time::round);
    for (const auto& [before, median] : polish(&Time::before)) carry_over[before] += median;
  }
  std::vector<double> all;
  for (const Time& time : times) all.push_back(carry_over[time.before]);
  const double centre = median(all);
  std::vector<std::vector<double>> adjusted(contestants.size());
  for (const Time& time : times) {
    const double ms = contestants[time.who].ms[time.round];
    adjusted[time.who].push_back(ms * std::exp(centre - carry_over[time.before]));
  }
  return adjusted;
}

std::vector<double> paired_speedups(std::span<const double> ms_a, std::span<const double> ms_b, double work_ratio) {
  std::vector<double> speedups(std::min(ms_a.size(), ms_b.size()));
  for (size_t round = 0; round < speedups.size(); ++round) speedups[round] = work_ratio * ms_b[round] / ms_a[round];
  return speedups;
}

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view WORDS[] = {"", "faster", "slower", "same"};
  return WORDS[static_cast<size_t>(verdict)];
}

Speedup speedup(std::span<const double> ratios, bool balanced) {
  return {median_interval(ratios), sign_test(ratios, 1), balanced};
}

std::vector<Verdict> verdicts(std::span<const Speedup> table) {
  constexpr double SMALLEST_GAIN = 0.002, WRONG = 0.05;
  std::vector<double> chances;
  for (const Speedup& each : table) {
    if (each.balanced) chances.push_back(each.chance);
  }
  std::sort(chances.begin(), chances.end());
  // The largest chance that is below its share of the 5 %; all smaller ones stand with it.
  double bound = -1;
  for (size_t i = 0; i < chances.size(); ++i) {
    if (chances[i] <= WRONG * static_cast<double>(i + 1) / static_cast<double>(chances.size())) bound = chances[i];
  }
  std::vector<Verdict> all;
  for (const auto& [estimate, chance, balanced] : table) {
    const bool gains = std::abs(estimate.value - 1) >= SMALLEST_GAIN;  // false for NaN
    const bool holds_one = estimate.lo <= 1 && 1 <= estimate.hi;
    all.push_back(!balanced                                   ? Verdict::none
                  : !gains || holds_one || !(chance <= bound) ? Verdict::same
                  : estimate.value > 1                        ? Verdict::faster
                                                              : Verdict::slower);
  }
  return all;
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

int round_period(int contestants) {
  return contestants % 2 == 0 || contestants == 1 ? contestants : 2 * contestants;
}

int launches_for_at_least(double group_ms, double ms_per_launch) {
  return at_least_one(std::ceil(1.1 * group_ms / ms_per_launch));
}

int launches_for_at_most(double group_ms, double ms_per_launch) {
  return at_least_one(std::floor(group_ms / ms_per_launch));
}

}  // namespace ladder
