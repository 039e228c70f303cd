#include "harness/measure/heats.hpp"

#include <algorithm>

namespace ladder {
namespace {

bool has(const std::vector<size_t>& list, size_t which) {
  return std::ranges::find(list, which) != list.end();
}

}  // namespace

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
        if (!candidates[link].absent && !has(heat.all(), link)) heat.guests.push_back(link);
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

}  // namespace ladder
