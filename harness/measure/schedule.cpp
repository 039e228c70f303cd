#include "harness/measure/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ladder {

Schedule make_schedule(std::span<const Entry> entries, std::span<const Result<double>> looks, const Protocol& protocol,
                       std::string_view versus, const std::function<bool(const Entry&)>& is_recorded) {
  Schedule schedule;
  for (const Result<double>& look : looks) schedule.launch_ms.push_back(look.value_or(0));
  std::vector<Candidate> all = candidates(entries, schedule.launch_ms, versus);
  std::vector<PlannedHeat> apart;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool slow = all[i].launch_ms > protocol.longest_launch_ms;
    all[i].recorded = is_recorded(entries[i]);
    all[i].absent = !looks[i] || slow;
    if (slow && !all[i].recorded) apart.push_back({.own = {i}, .apart = true});
  }
  schedule.heats = plan_heats(all);
  schedule.heats.insert(schedule.heats.end(), apart.begin(), apart.end());
  for (const PlannedHeat& heat : schedule.heats) {
    schedule.seconds +=
        seconds_of_heat(chosen(schedule.launch_ms, heat.all()), heat.apart ? apart_protocol() : protocol);
  }
  return schedule;
}

std::string summary(const Schedule& schedule, const Protocol& protocol) {
  std::vector<std::string> sizes;
  for (const PlannedHeat& heat : schedule.heats) {
    const auto size = static_cast<int>(heat.all().size());
    if (!heat.apart) sizes.push_back(fmt::format("{} ({} rounds)", size, protocol.rounds_of(size)));
  }
  const size_t apart = schedule.heats.size() - sizes.size();
  return fmt::format("{} heat{} of {}{}", sizes.size(), sizes.size() == 1 ? "" : "s", fmt::join(sizes, ", "),
                     apart == 0 ? "" : fmt::format(", {} apart", apart));
}

}  // namespace ladder
