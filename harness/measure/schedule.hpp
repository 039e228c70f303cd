// What the bench of one problem will do: who runs in which heat, who apart, and how long it takes.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/measure/heats.hpp"
#include "harness/measure/results.hpp"
#include "harness/measure/rounds.hpp"

namespace ladder {

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
