#include "harness/measure/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/measure/nvml.hpp"
#include "harness/measure/statistics.hpp"

namespace ladder {
namespace {

bool has_times(const Timing& timing) {
  return !timing.error && !timing.ms.empty();
}

double tflops(const Entry& entry, double ms) {
  return entry.flops / (ms * 1e9);
}

// The entry that this one's idea is measured against, if it is there.
std::optional<size_t> previous(std::span<const Entry> entries, size_t which) {
  const Entry& entry = entries[which];
  if (entry.kind != "stage" || entry.previous.empty()) return {};
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& other = entries[i];
    if (other.kind != "stage" || other.stage != entry.previous) continue;
    if (entry.is_default ? other.is_default : other.variant == entry.variant) return i;
  }
  return {};
}

// The highest rate of the ceilings for whose names `applies` holds; 0 without one.
template <class Applies>
double highest_ceiling(std::span<const Entry> entries, std::span<const Timing> timings, const Applies& applies) {
  double highest = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == "ceiling" && has_times(timings[i]) && applies(entries[i].name)) {
      highest = std::max(highest, tflops(entries[i], median(timings[i].ms)));
    }
  }
  return highest;
}

void add_clocks(ResultRow& row, const Entry& entry, const Timing& timing, int processors) {
  const std::optional<CardState> state = summary(timing.states);
  if (!state) return;
  row.clock_mhz = state->clock_mhz;
  row.power_w = state->power_w;
  if (timing.states.size() != timing.ms.size() || processors <= 0) return;
  std::vector<double> per_clock;  // round by round: time and clock belong together
  for (size_t i = 0; i < timing.ms.size(); ++i) {
    const double clocks = timing.ms[i] * 1e3 * timing.states[i].clock_mhz;
    if (clocks > 0) per_clock.push_back(entry.flops / clocks / processors);
  }
  if (!per_clock.empty()) row.flop_per_clk_sm = median(per_clock);
}

}  // namespace

std::string row_name(const Stage& stage, const Variant& variant) {
  const bool is_default = variant.label == stage.variants.front().label;
  return is_default ? std::string(stage.name) : fmt::format("{}[{}]", stage.name, variant.label);
}

std::string ceiling_of(const Stage& stage) {
  return stage.needs.find("wgmma") != std::string_view::npos ? "wgmma" : "mma_sync";
}

std::optional<Estimate> paired(std::span<const Entry> entries, std::span<const Timing> timings, size_t a, size_t b) {
  for (const size_t i : {a, b}) {
    if (!has_times(timings[i]) || timings[i].alone) return {};
  }
  return bootstrap_median(paired_speedups(timings[a].ms, timings[b].ms, entries[a].flops / entries[b].flops));
}

Results evaluate(std::span<const Entry> entries, std::span<const Timing> timings, const RunFacts& facts) {
  Results results;
  const auto fa2 = std::find_if(entries.begin(), entries.end(),
                                [](const Entry& entry) { return entry.kind == "peer" && entry.name == "fa2"; });
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const Timing& timing = timings[i];
    const bool stage = entry.kind == "stage";
    if (!has_times(timing)) {
      results.notes.push_back(
          fmt::format("{}: not timed: {}", entry.name, timing.error ? timing.error->message : "no rounds"));
      if (stage) results.ok = false;
      continue;
    }
    ResultRow row;
    row.stage = entry.name;
    row.kind = entry.kind;
    row.gpu = facts.gpu;
    row.sm = facts.sm;
    row.driver = facts.driver;
    row.cuda = facts.cuda;
    row.shape = facts.shape;
    row.inputs = facts.inputs;
    row.regime = facts.regime;
    row.commit = facts.commit;
    row.date = facts.date;
    row.rounds = static_cast<int>(timing.ms.size());
    row.ms_median = median(timing.ms);
    row.ms_p20 = percentile(timing.ms, 20);
    row.ms_p80 = percentile(timing.ms, 80);
    row.tflops = tflops(entry, *row.ms_median);
    row.max_err = entry.max_err;
    row.registers = entry.registers;
    row.spill_bytes = entry.spill_bytes;
    row.smem_bytes = entry.smem_bytes;
    add_clocks(row, entry, timing, facts.processors);

    if (entry.kind != "ceiling") {
      const double own =
          highest_ceiling(entries, timings, [&](const std::string& name) { return name == entry.ceiling; });
      const double ceiling =
          own > 0 ? own : highest_ceiling(entries, timings, [&](const std::string& name) { return bounds(name, row); });
      if (ceiling > 0 && row.tflops > ceiling) {
        results.notes.push_back(fmt::format(
            "{}: {:.1f} TFLOPS is above the ceiling of {:.1f} measured beside it. That is an error of the measurement "
            "(or of the kernel), not a record; it is not written down.",
            entry.name, row.tflops, ceiling));
        results.ok = false;
        continue;
      }
      if (own > 0) row.pct_ceiling = 100 * row.tflops / own;
      if (const auto before = previous(entries, i)) {
        row.vs_previous = paired(entries, timings, i, *before);
        if (row.vs_previous) {
          row.previous = entries[*before].name;
          row.verdict = to_string(verdict(*row.vs_previous));
        }
      }
      if (fa2 != entries.end() && &*fa2 != &entry) {
        row.vs_fa2 = paired(entries, timings, i, static_cast<size_t>(fa2 - entries.begin()));
      }
    }
    if (timing.alone) {
      results.notes.push_back(
          fmt::format("{}: more than a second a launch, so it was timed alone, {} launches after the "
                      "rounds: no paired interval.",
                      entry.name, timing.ms.size()));
    }
    results.rows.push_back(std::move(row));
  }
  // Stages, peers, ceilings, each in the order of the entries.
  const auto rank = [](const ResultRow& row) { return row.kind == "stage" ? 0 : row.kind == "peer" ? 1 : 2; };
  std::stable_sort(results.rows.begin(), results.rows.end(),
                   [&](const ResultRow& a, const ResultRow& b) { return rank(a) < rank(b); });
  return results;
}

std::optional<std::string> unbalanced(std::span<const Timing> timings, Regime regime) {
  int contestants = 0, rounds = 0;
  for (const Timing& timing : timings) {
    if (!has_times(timing) || timing.alone) continue;
    ++contestants;
    rounds = std::max(rounds, static_cast<int>(timing.ms.size()));
  }
  const int balanced = contestants % 2 == 0 ? contestants : 2 * contestants;
  if (regime != Regime::sustained || contestants < 2 || rounds >= balanced) return {};
  return fmt::format(
      "{} rounds of {} contestants: not everyone has followed everyone else, and a kernel is slower after one "
      "that heats the card. --rounds {} balances that.",
      rounds, contestants, balanced);
}

}  // namespace ladder
