#include "harness/base/nearest.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace ladder {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b) {
  // distance[i][j]: between the first i characters of a and the first j of b.
  std::vector<std::vector<int>> distance(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = distance[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, std::span<const std::string> known) {
  std::string best;
  int best_distance = std::max<int>(1, static_cast<int>(typed.size()) / 2) + 1;
  for (const std::string& word : known) {
    const int distance = edit_distance(typed, word);
    if (distance >= best_distance) continue;
    best = word;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::string best = nearest(typed, known);
  return best.empty() ? "" : " Did you mean " + best + "?";
}

std::string few(std::span<const std::string_view> names) {
  constexpr size_t SHOWN = 3;
  std::string text;
  for (const std::string_view name : names.first(std::min(SHOWN, names.size())))
    text += (text.empty() ? "" : ", ") + std::string(name);
  const size_t others = names.size() - std::min(SHOWN, names.size());
  return others == 0 ? text : text + " and " + std::to_string(others) + (others == 1 ? " other" : " others");
}

}  // namespace ladder
