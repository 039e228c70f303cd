#include "harness/measure/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ladder {
namespace {

template <class Value>
std::vector<Value> chosen(const PlannedHeat& heat, const std::vector<Value>& values) {
  std::vector<Value> some;
  for (const size_t i : heat.all()) some.push_back(values[i]);
  return some;
}

}  // namespace

std::vector<double> Schedule::launch_ms_of(const PlannedHeat& heat) const {
  return chosen(heat, launch_ms);
}

Result<HeatTimings> Schedule::run(const PlannedHeat& heat, const Protocol& protocol, const Machine& machine) const {
  return run_heat(chosen(heat, contestants), launch_ms_of(heat), protocol, machine);
}

Schedule make_schedule(std::span<const Entry> entries, std::span<const Contestant> contestants,
                       std::span<const Result<double>> looks, const Protocol& protocol, std::string_view versus,
                       const std::function<bool(const Entry&)>& is_recorded) {
  Schedule schedule;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!looks[i]) {
      schedule.failed.emplace_back(entries[i], looks[i].error());
    } else if (*looks[i] <= protocol.longest_launch_ms) {
      schedule.entries.push_back(entries[i]);
      schedule.contestants.push_back(contestants[i]);
      schedule.launch_ms.push_back(*looks[i]);
    } else if (!is_recorded(entries[i])) {
      schedule.apart_entries.push_back(entries[i]);
      schedule.apart.push_back(contestants[i]);
      schedule.seconds += seconds_apart(*looks[i], protocol);
    }
  }
  std::vector<Candidate> all = candidates(schedule.entries, schedule.launch_ms, versus);
  for (size_t i = 0; i < all.size(); ++i) all[i].recorded = is_recorded(schedule.entries[i]);
  schedule.heats = plan_heats(all);
  for (const PlannedHeat& heat : schedule.heats)
    schedule.seconds += seconds_of_heat(schedule.launch_ms_of(heat), protocol);
  return schedule;
}

std::string summary(const Schedule& schedule, const Protocol& protocol) {
  std::vector<std::string> sizes;
  for (const PlannedHeat& heat : schedule.heats) {
    const auto size = static_cast<int>(heat.all().size());
    sizes.push_back(fmt::format("{} ({} rounds)", size, protocol.rounds_of(size)));
  }
  return fmt::format("{} heat{} of {}{}", sizes.size(), sizes.size() == 1 ? "" : "s", fmt::join(sizes, ", "),
                     schedule.apart.empty() ? "" : fmt::format(", {} apart", schedule.apart.size()));
}

}  // namespace ladder
