#include "harness/measure/results_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "harness/base/table.hpp"
#include "harness/base/terminal.hpp"
#include "harness/measure/statistics.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

std::string cell(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

bool same_table(const ResultRow& a, const ResultRow& b) {
  return a.source == b.source && a.same_measurement(b);
}

std::string header(const ResultRow& row, bool recorded) {
  const std::string state = recorded                   ? "RECORDED, not measured here"
                            : row.source == "measured" ? "measured"
                                                       : row.source;
  std::string line = fmt::format("{}{}{}{}\n{}, {}", row.gpu, row.sm ? fmt::format(" (sm_{})", row.sm) : "",
                                 row.driver.empty() ? "" : ", driver " + row.driver,
                                 row.cuda.empty() ? "" : ", CUDA " + row.cuda, to_string(row.shape), row.dtype);
  if (!row.problem.empty()) line += ", " + row.problem;
  if (!row.inputs.empty()) line += fmt::format(", {} inputs", row.inputs);
  line += fmt::format(", {}", row.regime == "turns" ? "in turns" : row.regime);
  if (!recorded && row.heat) line += fmt::format(", heat {}", row.heat);
  if (row.rounds) line += fmt::format(", {} rounds", row.rounds);
  line += fmt::format("; {} {}", state, row.date);
  if (!row.commit.empty()) line += fmt::format(", commit {}", row.commit);
  return line + "\n";
}

std::optional<Estimate> recorded_ratio(const ResultRow& row, std::span<const ResultRow> recorded) {
  for (const ResultRow& known : recorded) {
    if (known.source == "measured" && known.rung == row.rung && same_table(known, row)) return known.vs_fa2;
  }
  return {};
}

}  // namespace

std::string to_string(const Estimate& estimate) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", estimate.value, estimate.lo, estimate.hi);
}

std::string results_table(std::span<const ResultRow> rows, std::span<const ResultRow> recorded, bool are_recorded,
                          size_t columns, const std::string& versus) {
  std::string text;
  for (auto row = rows.begin(); row != rows.end();) {
    const auto end = std::find_if(row, rows.end(), [&](const ResultRow& other) { return !same_table(other, *row); });
    // The most rounds of the group are those of the protocol; a contestant timed alone has fewer.
    ResultRow heading = *row;
    for (auto it = row; it != end; ++it) heading.rounds = std::max(heading.rounds, it->rounds);
    const std::string title = header(heading, are_recorded);
    text += (text.empty() ? "" : "\n") + (columns > 0 ? wrapped(title, columns) : title);
    bool marked = false;
    Table table({"<", "TFLOPS", "??ms", "????spread", "??of ceiling", "vs previous", "<?", "vs " + versus, "???MHz",
                 "???W", "????FLOP/clk/SM", "????max err"});
    for (; row != end; ++row) {
      std::string vs_fa2 = row->vs_fa2 ? to_string(*row->vs_fa2) : "-";
      if (versus != "fa2") {
        vs_fa2 = row->over ? to_string(row->over->estimate) : "-";
      } else if (!row->vs_fa2 && row->kind == "stage") {
        if (const auto ratio = recorded_ratio(*row, recorded)) {
          vs_fa2 = fmt::format("{:.3f} (recorded)", ratio->value);
          marked = true;
        }
      }
      std::optional<double> spread;
      if (row->ms_median && row->ms_p20 && row->ms_p80) spread = 100 * (*row->ms_p80 - *row->ms_p20) / *row->ms_median;
      table.add({row->rung, fmt::format("{:.1f}", row->tflops), cell(row->ms_median, "{:.4g}"),
                 cell(spread, "{:.1f} %"), cell(row->pct_ceiling, "{:.1f} %"),
                 row->vs_previous ? to_string(*row->vs_previous) : "-", row->verdict, vs_fa2,
                 cell(row->clock_mhz, "{:.0f}"), cell(row->power_w, "{:.0f}"), cell(row->flop_per_clk_sm, "{:.0f}"),
                 row->kind == "peer" && !row->max_err ? "unverified" : cell(row->max_err, "{:.1e}")});
    }
    text += table.text(columns);
    if (marked) text += "(recorded): no fa2 peer ran; the ratio is the one in docs/results for this card and shape.\n";
  }
  return text;
}

std::string ablation_tables(std::span<const Entry> entries, std::span<const std::optional<double>> tflops,
                            const Ratios& ratios, size_t columns) {
  const auto find = [&](const std::string& rung, const std::string& variant) -> std::optional<size_t> {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].kind == "stage" && entries[i].rung == rung && entries[i].variant == variant) return i;
    }
    return {};
  };
  const auto rate = [&](size_t i) { return cell(tflops[i], "{:.1f}"); };
  const auto ratio = [&](size_t a, size_t b) {
    if (const auto known = ratios.find({a, b}); known != ratios.end()) return to_string(known->second);
    const auto inverse = ratios.find({b, a});
    if (inverse == ratios.end()) return std::string("-");
    const Estimate& of = inverse->second;
    return to_string(Estimate{1 / of.value, 1 / of.hi, 1 / of.lo});
  };
  std::map<std::string_view, size_t> defaults;  // by rung
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == "stage" && entries[i].is_default) defaults[entries[i].rung] = i;
  }

  std::string text;
  std::set<size_t> shown;  // entries that stand in a square
  for (const auto& [rung, own] : defaults) {
    const std::string& previous = entries[own].previous;
    if (!defaults.contains(previous)) continue;
    // Tiles that both rungs have, there and here: the old default's first, the new one's last.
    std::vector<std::pair<size_t, size_t>> shared;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].kind != "stage" || entries[i].rung != rung) continue;
      if (const auto same = find(previous, entries[i].variant)) shared.emplace_back(*same, i);
    }
    std::ranges::stable_sort(shared, {}, [&](const auto& tile) {
      return tile.second == own ? 2 : tile.first == defaults[previous] ? 0 : 1;
    });
    if (shared.size() < 2) continue;
    const auto [old_from, from] = shared.front();
    const auto [old_to, to] = shared.back();
    shown.insert({old_from, old_to, from, to});
    text += fmt::format("{}{} apart from its tile shape (TFLOPS; ratios are paired)\n", text.empty() ? "" : "\n", rung);
    Table table({"<", entries[from].variant, entries[to].variant, "shape alone"});
    table.add({previous, rate(old_from), rate(old_to), ratio(old_to, old_from)});
    table.add({entries[own].rung, rate(from), rate(to), ratio(to, from)});
    table.add({"idea alone", ratio(from, old_from), ratio(to, old_to), "both: " + ratio(to, old_from)});
    text += table.text(columns);
  }

  Table others({"<other variants", "TFLOPS", "against", "<"});
  bool any = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.kind != "stage" || entry.is_default || shown.contains(i)) continue;
    if (!defaults.contains(entry.rung)) continue;
    others.add({entry.name, rate(i), ratio(i, defaults[entry.rung]), entry.rung});
    any = true;
  }
  if (any) text += (text.empty() ? "" : "\n") + others.text(columns);
  return text;
}

}  // namespace ladder
