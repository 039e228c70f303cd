#include "harness/measure/results_table.hpp"

#include <fmt/format.h>

#include <algorithm>
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

}  // namespace ladder
