#include "harness/verbs/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/terminal.hpp"
#include "harness/measure/results_table.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/check.hpp"

namespace ladder {
namespace {

// Success when some rung can solve some shape, or why the first one cannot.
Status any_supported(const Options& options) {
  Status first;
  for (const Shape& shape : bench_shapes(options)) {
    for (const Subject& subject : subjects_of(options)) {
      const Status able = supports(*subject.rung, *subject.variant, shape);
      if (able) return {};
      if (first) first = able;
    }
  }
  return first;
}

}  // namespace

const char* const LEGEND =
    "TFLOPS count 4*B*H*N^2*d per launch (half when causal, 2.5 times as much for gradients); the write-up counts "
    "1.2 % more at d=128. spread: p20 to p80 over the median.\n"
    "Ratios are medians of per-round ratios of TFLOPS with their 95 % interval, above 1 is faster; same: the "
    "interval holds 1, or below 0.2 %, or one of so many differs by chance.\n"
    "MHz is the mean SM clock of the groups, counted on the card. Of a ceiling that multiplies no matrices, TFLOPS "
    "are 1e12 results (ex2) or bytes (l2_read, dram_read) per second.\n";

Regime regime_of(const Options& options) {
  return options.burst ? Regime::burst : options.alone ? Regime::alone : Regime::turns;
}

std::vector<Shape> bench_shapes(const Options& options) {
  std::vector<Shape> shapes;
  if (options.sweep) {
    for (int n = 512; n <= SWEEP_TOKENS; n *= 2) {
      shapes.push_back(with_problem(options, {.batch = SWEEP_TOKENS / n,
                                              .heads = options.heads.value_or(HEADLINE.heads),
                                              .n = n,
                                              .d = options.d.value_or(HEADLINE.d),
                                              .causal = options.causal}));
    }
    if (options.n.empty()) return shapes;
  }
  for (const Shape& shape : shapes_for(options, HEADLINE)) shapes.push_back(shape);
  return shapes;
}

std::string recorded_table(std::span<const ResultRow> recorded, const Options& options, size_t columns) {
  const std::vector<Shape> shapes = bench_shapes(options);
  std::vector<ResultRow> rows;
  for (const Shape& shape : shapes) {
    for (const ResultRow& row : recorded) {
      const bool asked = row.kind != "stage" || std::ranges::any_of(options.rungs, [&](const Rung* rung) {
                           return row.rung == rung->name || (options.ablate && row.rung.starts_with(rung->name));
                         });
      const bool regime = row.regime == to_string(regime_of(options));
      if (row.shape == shape && row.source == "measured" && asked && regime) rows.push_back(row);
    }
  }
  // Peers and ceilings say something beside a rung of their own run.
  std::erase_if(rows, [runs = rows](const ResultRow& row) {
    return std::ranges::none_of(runs,
                                [&](const ResultRow& run) { return run.kind == "stage" && run.same_measurement(row); });
  });
  if (rows.empty()) {
    const bool one = options.rungs.size() == 1;
    return fmt::format("docs/results has no recorded figures {}for {}{}.\n",
                       one ? fmt::format("of {} ", options.rungs.front()->name) : "", to_string(shapes.front()),
                       shapes.size() > 1 ? " and the other shapes" : "");
  }
  return results_table(rows, {}, true, columns) + (columns > 0 ? wrapped(LEGEND, columns) : LEGEND);
}

Status can_bench(const Options& options) {
  if (options.on == Where::cpu) {
    return usage(
        "bench measures time, and the emulator counts events instead.\n"
        "  Here:  ./ladder check --on cpu      ./ladder explain 03");
  }
  const Status able = any_supported(options);
  return able ? can_append_csv(options.csv) : able;
}

Result<ExitCode> bench_without_gpu(const Options& options, const Error& no_gpu) {
  if (const Status able = can_bench(options); !able) return passed_on(able);
  std::FILE* const out = table_stream(options);
  fmt::print(out, "{}\n", recorded_table(recorded_results(), options, columns_of(out)));
  return failure(ExitCode::cannot_run_here,
                 "bench needs a GPU. {}\n"
                 "  Here:  ./ladder check              the same kernels, emulated\n"
                 "         ./ladder compare 02 03      two kernels' counters, side by side",
                 no_gpu.first_line());
}

}  // namespace ladder
