#include "harness/measure/results_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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
                          size_t columns, const Versus* versus) {
  std::string text;
  for (auto row = rows.begin(); row != rows.end();) {
    const auto end = std::find_if(row, rows.end(), [&](const ResultRow& other) { return !same_table(other, *row); });
    // The most rounds of the group are those of the protocol; a contestant timed alone has fewer.
    ResultRow heading = *row;
    for (auto it = row; it != end; ++it) heading.rounds = std::max(heading.rounds, it->rounds);
    const std::string title = header(heading, are_recorded);
    text += (text.empty() ? "" : "\n") + (columns > 0 ? wrapped(title, columns) : title);
    bool marked = false;
    Table table({"<", "TFLOPS", "??ms", "????spread", "??of ceiling", "vs previous", "<?",
                 versus ? "vs " + versus->name : std::string("vs fa2"), "???MHz", "???W", "????FLOP/clk/SM",
                 "????max err"});
    for (; row != end; ++row) {
      std::string vs_fa2 = row->vs_fa2 ? to_string(*row->vs_fa2) : "-";
      if (versus) {
        const auto ratio = versus->ratios.find(row->rung);
        vs_fa2 = ratio == versus->ratios.end() ? "-" : to_string(ratio->second.estimate);
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
  std::vector<const Entry*> defaults;
  for (const Entry& entry : entries) {
    if (entry.kind == "stage" && entry.is_default) defaults.push_back(&entry);
  }
  std::sort(defaults.begin(), defaults.end(), [](auto* a, auto* b) { return a->rung < b->rung; });

  std::string text;
  std::set<size_t> shown;  // entries that stand in a square
  for (const Entry* own : defaults) {
    const auto from_which =
        std::find_if(defaults.begin(), defaults.end(), [&](auto* other) { return other->rung == own->previous; });
    if (from_which == defaults.end()) continue;
    const std::string &before = own->previous, &rung = own->rung;
    // Labels that both rungs have: the old default first, the new one last.
    std::vector<std::string> shared;
    for (const Entry& entry : entries) {
      if (entry.kind == "stage" && entry.rung == rung && find(before, entry.variant)) shared.push_back(entry.variant);
    }
    std::stable_sort(shared.begin(), shared.end(), [&](const std::string& a, const std::string& b) {
      const auto place = [&](const std::string& label) {
        return label == own->variant ? 2 : label == (*from_which)->variant ? 0 : 1;
      };
      return place(a) < place(b);
    });
    if (shared.size() < 2) continue;
    const std::string &from = shared.front(), &to = shared.back();
    const size_t corners[2][2] = {{*find(before, from), *find(before, to)}, {*find(rung, from), *find(rung, to)}};
    for (const auto& line : corners) shown.insert(std::begin(line), std::end(line));
    text += fmt::format("{}{} apart from its tile shape (TFLOPS; ratios are paired)\n", text.empty() ? "" : "\n", rung);
    Table table({"<", from, to, "shape alone"});
    table.add({before, rate(corners[0][0]), rate(corners[0][1]), ratio(corners[0][1], corners[0][0])});
    table.add({rung, rate(corners[1][0]), rate(corners[1][1]), ratio(corners[1][1], corners[1][0])});
    table.add({"idea alone", ratio(corners[1][0], corners[0][0]), ratio(corners[1][1], corners[0][1]),
               "both: " + ratio(corners[1][1], corners[0][0])});
    text += table.text(columns);
  }

  Table others({"<other variants", "TFLOPS", "against", "<"});
  bool any = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.kind != "stage" || entry.is_default || shown.contains(i)) continue;
    const auto own = std::find_if(defaults.begin(), defaults.end(), [&](auto* d) { return d->rung == entry.rung; });
    if (own == defaults.end()) continue;
    others.add({entry.name, rate(i), ratio(i, static_cast<size_t>(*own - entries.data())), entry.rung});
    any = true;
  }
  if (any) text += (text.empty() ? "" : "\n") + others.text(columns);
  return text;
}

}  // namespace ladder
