#include "harness/measure/heats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace ladder {

std::vector<size_t> PlannedHeat::all() const {
  std::vector<size_t> everybody = own;
  everybody.insert(everybody.end(), guests.begin(), guests.end());
  std::ranges::sort(everybody);
  return everybody;
}

std::vector<PlannedHeat> plan_heats(std::span<const Candidate> candidates) {
  std::vector<size_t> everywhere, thermometers, others;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].absent || (!candidates[i].everywhere && candidates[i].recorded)) continue;
    (candidates[i].everywhere ? everywhere : candidates[i].thermometer ? thermometers : others).push_back(i);
  }
  std::ranges::stable_sort(others, std::greater{}, [&](size_t i) { return candidates[i].launch_ms; });

  // A heat of these, with everybody whom their ratios need.
  const auto heat_of = [&](const std::vector<size_t>& own) {
    PlannedHeat heat{own, everywhere};
    for (const size_t i : own) {
      for (const size_t link : candidates[i].links) {
        if (!candidates[link].absent && std::ranges::count(heat.all(), link) == 0) heat.guests.push_back(link);
      }
    }
    return heat;
  };
  std::vector<PlannedHeat> heats;
  std::vector<size_t> own;
  for (const size_t next : others) {
    std::vector<size_t> longer = own;
    longer.push_back(next);
    const bool alike = candidates[longer.front()].launch_ms <= WIDEST_HEAT * candidates[next].launch_ms;
    if (!own.empty() && (!alike || heat_of(longer).all().size() > MOST_IN_A_HEAT)) {
      heats.push_back(heat_of(own));
      longer = {next};
    }
    own = std::move(longer);
  }
  if (!own.empty()) heats.push_back(heat_of(own));
  if (!heats.empty()) {  // the fastest is the home of those who are everywhere
    PlannedHeat& fastest = heats.back();
    std::erase_if(fastest.guests, [&](size_t i) { return candidates[i].everywhere; });
    fastest.own.insert(fastest.own.end(), everywhere.begin(), everywhere.end());
    if (!thermometers.empty()) heats.push_back(heat_of(thermometers));
  }
  return heats;
}

std::vector<Candidate> candidates(std::span<const Entry> entries, std::span<const double> launch_ms,
                                  std::string_view versus) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const bool ceiling = entry.kind == "ceiling", binds = ceiling && is_needed(entry.name, entries);
    all.push_back(
        {.launch_ms = launch_ms[i],
         .everywhere = binds || (!ceiling && entry.name == versus) || (entry.kind == "peer" && entry.name == "fa2"),
         .thermometer = ceiling && !binds,
         .links = links_of(entries, i)});
  }
  return all;
}

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
