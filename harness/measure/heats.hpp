// Who runs beside whom. Slow contestants let the card cool, and whoever runs beside them reads high: a run consists of heats
// of like with like, and a ratio is taken within a heat.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/measure/results.hpp"
#include "harness/measure/rounds.hpp"

namespace ladder {

constexpr size_t MOST_IN_A_HEAT = 12;
constexpr double WIDEST_HEAT = 3;  // the slowest launch over the fastest, of those whose heat it is

struct Candidate {
  double launch_ms = 0;
  bool everywhere = false;         // in every heat: the denominators and the ceilings that bound
  bool thermometer = false;        // no attention: all of these share the last heat
  bool recorded = false;           // has its row already: takes part for others' ratios alone
  bool absent = false;             // takes no part: it has failed, or is timed apart
  std::vector<size_t> links = {};  // those that its ratios are taken over
};

// Indices of candidates.
struct PlannedHeat {
  std::vector<size_t> own;          // whose home this heat is: their rows come from here
  std::vector<size_t> guests = {};  // who is here for a ratio
  bool apart = false;               // too slow for the others: one, by apart_protocol
  std::vector<size_t> all() const;
};

// The slowest first. Every candidate has one home; those that are everywhere have it in the fastest heat. A heat stays
// within MOST_IN_A_HEAT unless a single candidate with its links is more.
std::vector<PlannedHeat> plan_heats(std::span<const Candidate> candidates);

// Entry by entry. Everywhere are "fa2", `versus` and the ceilings that bound a row.
std::vector<Candidate> candidates(std::span<const Entry> entries, std::span<const double> launch_ms,
                                  std::string_view versus);

// Those of all values that these indices are of.
template <class Values>
auto chosen(const Values& values, const std::vector<size_t>& indices) {
  std::vector<typename Values::value_type> some;
  for (const size_t i : indices) some.push_back(values[i]);
  return some;
}

// Of indices of entries. Who failed at the first look stands nowhere.
struct Schedule {
  std::vector<PlannedHeat> heats;  // those apart behind the others
  std::vector<double> launch_ms;   // by the first look, of all; of who failed 0
  double seconds = 0;              // without the warm-up
};

// Plans by what the first look has seen. Who is recorded takes part for others' ratios alone.
Schedule make_schedule(std::span<const Entry> entries, std::span<const Result<double>> looks, const Protocol& protocol,
                       std::string_view versus, const std::function<bool(const Entry&)>& is_recorded);

// "2 heats of 12 (24 rounds), 10 (20 rounds), 1 apart"
std::string summary(const Schedule& schedule, const Protocol& protocol);

}  // namespace ladder
