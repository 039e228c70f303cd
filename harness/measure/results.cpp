#include "harness/measure/results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/measure/statistics.hpp"
#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

bool has_times(const Timing& timing) {
  return !timing.error && !timing.ms.empty();
}

double tflops(const Entry& entry, double ms) {
  return entry.flops / (ms * 1e9);
}

std::optional<size_t> named(std::span<const Entry> entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  if (found == entries.end()) return {};
  return static_cast<size_t>(found - entries.begin());
}

// A heat's times by entry, and without what the one before has done to them.
class Times {
 public:
  Times(std::span<const Entry> entries, const HeatRun& heat) : entries_(entries), heat_(heat) {
    std::vector<Series> series;
    for (const Timing& timing : heat.timings.timings) {
      series.push_back(has_times(timing) ? Series{timing.ms, timing.before} : Series{});
    }
    adjusted_ = without_carry_over(series);
  }

  const Timing* of(size_t entry) const {
    const auto place = std::ranges::find(heat_.all, entry);
    return place == heat_.all.end() ? nullptr : &heat_.timings.timings[static_cast<size_t>(place - heat_.all.begin())];
  }

  // Nothing without another one to be faster than.
  std::optional<Speedup> faster(size_t a, std::optional<size_t> b) const {
    if (!b || *b == a) return {};
    const Timing *const of_a = of(a), *const of_b = of(*b);
    for (const Timing* timing : {of_a, of_b}) {
      if (!timing || !has_times(*timing)) return {};
    }
    const auto adjusted = [&](const Timing* timing) -> const std::vector<double>& {
      return adjusted_[static_cast<size_t>(timing - heat_.timings.timings.data())];
    };
    return speedup(paired_speedups(adjusted(of_a), adjusted(of_b), entries_[a].flops / entries_[*b].flops),
                   heat_.timings.balanced);
  }

 private:
  std::span<const Entry> entries_;
  const HeatRun& heat_;
  std::vector<std::vector<double>> adjusted_;
};

void add_clocks(ResultRow& row, const Entry& entry, const Timing& timing, int processors) {
  row.power_w = timing.power_w;
  if (timing.clock_mhz.empty()) return;
  row.clock_mhz = median(timing.clock_mhz);
  if (timing.clock_mhz.size() != timing.ms.size() || processors <= 0) return;
  std::vector<double> per_clock;  // group by group: time and clock belong together
  for (size_t i = 0; i < timing.ms.size(); ++i) {
    const double clocks = timing.ms[i] * 1e3 * timing.clock_mhz[i];
    if (clocks > 0) per_clock.push_back(entry.flops / clocks / processors);
  }
  if (!per_clock.empty()) row.flop_per_clk_sm = median(per_clock);
}

ResultRow make_row(const Entry& entry, const Timing& timing, const RunFacts& facts, int heat) {
  ResultRow row;
  static_cast<RunFacts&>(row) = facts;
  row.rung = entry.name;
  row.kind = entry.kind;
  row.heat = heat;
  row.version = entry.version;
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
  return row;
}

// vs_previous pairs a rung's default variant with the default of the rung that it starts from, and any other variant
// with the variant of the same label there: the same shape with and without the idea.
std::optional<size_t> previous_entry(std::span<const Entry> entries, size_t which) {
  const Entry& entry = entries[which];
  if (entry.kind != "stage" || entry.previous.empty()) return {};
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& other = entries[i];
    if (other.kind != "stage" || other.rung != entry.previous) continue;
    if (entry.is_default ? other.is_default : other.variant == entry.variant) return i;
  }
  return {};
}

}  // namespace

std::string row_name(const Rung& rung, const Variant& variant) {
  const bool is_default = variant.label == rung.variants.front().label;
  return is_default ? std::string(rung.name) : fmt::format("{}[{}]", rung.name, variant.label);
}

OwnWork own_work(const Variant& variant, const Shape& shape) {
  const Work work = formula_of(shape).work(shape);
  if (work.bound == Work::Bound::reads) return {"dram_read", work.bytes, "TB/s"};
  const bool by_warpgroups = variant.predict && variant.predict(shape).wgmma > 0;
  return {by_warpgroups ? "wgmma" : "mma_sync", work.flops};
}

bool is_needed(std::string_view ceiling, std::span<const Entry> entries) {
  return can_bound(ceiling) ||
         std::ranges::any_of(entries, [&](const Entry& entry) { return entry.own.loop == ceiling; });
}

std::vector<size_t> links_of(std::span<const Entry> entries, size_t which) {
  std::vector<size_t> links;
  if (const auto before = previous_entry(entries, which)) links.push_back(*before);
  const Entry& entry = entries[which];
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& other = entries[i];
    if (entry.kind != "stage" || other.kind != "stage") continue;
    const bool own_default = !entry.is_default && other.rung == entry.rung && other.is_default;
    const bool same_tile = entry.is_default && other.rung == entry.previous && other.variant == entry.variant;
    if ((own_default || same_tile) && std::ranges::find(links, i) == links.end()) links.push_back(i);
  }
  return links;
}

Results evaluate(std::span<const Entry> entries, const HeatRun& heat, const RunFacts& facts, std::string_view versus) {
  Results results;
  const Times times(entries, heat);
  std::optional<size_t> fa2 = named(entries, "fa2");
  if (fa2 && entries[*fa2].kind != "peer") fa2 = {};
  const std::optional<size_t> denominator = named(entries, versus);
  std::vector<Speedup> table;  // in the order of those rows that have a ratio over the one before
  for (const size_t i : heat.own) {
    const Entry& entry = entries[i];
    const Timing& timing = *times.of(i);
    if (!has_times(timing)) {
      results.notes.push_back(
          fmt::format("{}: not timed: {}", entry.name, timing.error ? timing.error->message : "no rounds"));
      if (entry.kind == "stage") results.ok = false;
      continue;
    }
    ResultRow row = make_row(entry, timing, facts, heat.number);
    if (entry.kind != "ceiling") {
      double own = 0, of_anybody = 0;
      for (const size_t other : heat.all) {
        const Entry& ceiling = entries[other];
        if (ceiling.kind != "ceiling" || !has_times(*times.of(other))) continue;
        const ResultRow bound = make_row(ceiling, *times.of(other), facts, heat.number);
        if (!entry.own.loop.empty() && ceiling.name.starts_with(entry.own.loop)) own = std::max(own, bound.tflops);
        if (bounds(bound, row)) of_anybody = std::max(of_anybody, bound.tflops);
      }
      const double rate = own > 0 ? entry.own.work / (*row.ms_median * 1e9) : row.tflops;
      const double ceiling = own > 0 ? own : of_anybody;
      if (ceiling > 0 && rate > ceiling) {
        results.notes.push_back(fmt::format(
            "{}: {:.1f} {} is above the ceiling of {:.1f} measured beside it. That is an error of the measurement "
            "(or of the kernel), not a record; it is not written down.",
            entry.name, rate, own > 0 ? entry.own.unit : "TFLOPS", ceiling));
        results.ok = false;
        continue;
      }
      if (own > 0) row.pct_ceiling = 100 * rate / own;
      for (const size_t link : links_of(entries, i)) {
        if (const auto ratio = times.faster(i, link)) results.ratios[{i, link}] = ratio->estimate;
      }
      const std::optional<size_t> before = previous_entry(entries, i);
      if (const auto ratio = times.faster(i, before)) {
        row.previous = entries[*before].name;
        row.vs_previous = ratio->estimate;
        table.push_back(*ratio);
      }
      if (const auto ratio = times.faster(i, fa2)) row.vs_fa2 = ratio->estimate;
      row.over = times.faster(i, denominator);
    }
    if (heat.number == 0) {
      results.notes.push_back(
          fmt::format("{}: more than {:g} s a launch, so it was timed apart, {} launches: no paired interval.",
                      entry.name, turns_protocol().longest_launch_ms / 1e3, timing.ms.size()));
    }
    results.rows.push_back(std::move(row));
  }
  const std::vector<Verdict> chosen = verdicts(table);
  size_t next = 0;
  for (ResultRow& row : results.rows) {
    if (row.vs_previous) row.verdict = to_string(chosen[next++]);
  }
  // Rungs, peers, ceilings, each in the order of the entries.
  const auto rank = [&](const ResultRow& row) {
    return std::pair(row.kind == "stage" ? 0 : row.kind == "peer" ? 1 : 2, named(entries, row.rung));
  };
  std::ranges::stable_sort(results.rows, {}, rank);
  return results;
}

std::optional<std::string> unbalanced(const HeatTimings& heat, Regime regime) {
  const auto contestants = static_cast<int>(heat.timings.size());
  size_t rounds = 0;
  for (const Timing& timing : heat.timings) rounds = std::max(rounds, timing.ms.size());
  if (heat.balanced || contestants < 2) return {};
  if (regime != Regime::turns) return fmt::format("{} rounds are too few for a verdict.", rounds);
  return fmt::format(
      "{} rounds of {} contestants are too few for a verdict: eight at least, and everyone has to follow everyone else "
      "equally often. --rounds {} gives one.",
      rounds, contestants, turns_protocol().rounds_of(contestants));
}

std::optional<std::string> everywhere_note(std::span<const Entry> entries, std::span<const HeatRun> heats,
                                           std::string_view name) {
  std::vector<std::string> rates, numbers;
  double least = 0, most = 0;
  for (const HeatRun& heat : heats) {
    for (size_t i = 0; i < heat.all.size(); ++i) {
      const Entry& entry = entries[heat.all[i]];
      const Timing& timing = heat.timings.timings[i];
      if (entry.name != name || !has_times(timing)) continue;
      const double rate = tflops(entry, median(timing.ms));
      least = rates.empty() ? rate : std::min(least, rate);
      most = std::max(most, rate);
      rates.push_back(fmt::format("{:.1f}", rate));
      numbers.push_back(std::to_string(heat.number));
    }
  }
  if (rates.size() < 2) return {};
  return fmt::format("{} read {} TFLOPS in heats {}: within {:.1f} %.", name, fmt::join(rates, ", "),
                     fmt::join(numbers, ", "), 100 * (most / least - 1));
}

const std::string ROUNDS_HEADER =
    "contestant,kind,gpu,batch,heads,n,d,causal,dtype,problem,inputs,regime,heat,round,before,launches,ms,clock_mhz,"
    "commit,date\n";

std::string rounds_lines(std::span<const Entry> entries, const HeatRun& heat, const RunFacts& facts) {
  std::string text;
  for (size_t i = 0; i < heat.all.size(); ++i) {
    const Entry& entry = entries[heat.all[i]];
    const Timing& timing = heat.timings.timings[i];
    for (size_t round = 0; round < timing.ms.size(); ++round) {
      const int before = timing.before[round];
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6g},{},{},{}\n", quoted(entry.name), entry.kind,
          quoted(facts.gpu), facts.shape.batch, facts.shape.heads, facts.shape.n, facts.shape.d,
          facts.shape.causal ? 1 : 0, facts.dtype, quoted(facts.problem), facts.inputs, facts.regime, heat.number,
          round + 1, before < 0 ? "" : quoted(entries[heat.all[size_t(before)]].name), timing.launches,
          timing.ms[round], round < timing.clock_mhz.size() ? fmt::format("{:.1f}", timing.clock_mhz[round]) : "",
          facts.commit, facts.date);
    }
  }
  return text;
}

}  // namespace ladder
