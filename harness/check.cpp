#include "harness/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/emulator_run.hpp"
#include "harness/gpu.hpp"
#include "harness/guarded.hpp"
#include "harness/properties.hpp"

namespace ladder {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

CheckResult start_result(const Stage& stage, const Variant& variant, const Shape& shape, std::string_view inputs,
                         Backend backend) {
  CheckResult result;
  result.stage = stage.name;
  result.variant = variant.label;
  result.backend = backend;
  result.shape = shape;
  result.inputs = inputs;
  return result;
}

void fail(CheckResult& result, FailureKind kind, std::string message, std::string_view detail = "") {
  result.failures.push_back({kind, std::move(message), std::string(detail)});
}

CheckResult finish(CheckResult result, const Stopwatch& watch) {
  result.ok = result.failures.empty();
  result.seconds = watch.seconds();
  return result;
}

std::string place(const Shape& shape, int64_t row) {
  const int64_t head = row / shape.n;
  return fmt::format("batch {}, head {}, query {}", head / shape.heads, head % shape.heads, row % shape.n);
}
std::string place(const Shape& shape, int64_t row, int64_t column) {
  return fmt::format("{}, column {}", place(shape, row), column);
}

// Elements of the whole output for which `is_bad` holds.
template <class IsBad>
void report_elements(CheckResult& result, FailureKind kind, const char* what, const IsBad& is_bad) {
  const auto first = std::ranges::find_if(result.output, is_bad);
  if (first == result.output.end()) return;
  const int64_t index = first - result.output.begin(), d = result.shape.d;
  fail(result, kind,
       fmt::format("{} of {} output elements {}, the first at {}", std::ranges::count_if(result.output, is_bad),
                   result.output.size(), what, place(result.shape, index / d, index % d)));
}

void judge_output(CheckResult& result, const Reference& reference) {
  report_elements(result, FailureKind::unwritten_output, "were never written", is_poison);
  report_elements(result, FailureKind::nan_output, "are NaN",
                  [](f16 value) { return is_nan(value) && !is_poison(value); });
  const Comparison worst = compare_to_reference(reference, result.output);
  result.max_err = worst.max_err;
  result.tolerance = reference.tolerance();
  if (!(result.max_err <= result.tolerance) && !std::isnan(result.max_err)) {
    fail(result, FailureKind::wrong_result,
         fmt::format("max error {:.2e} above the tolerance {:.2e} at {}: {:.6g} instead of {:.6g}", result.max_err,
                     result.tolerance, place(result.shape, worst.row, worst.column), worst.got, worst.expected));
  }
}

void judge_lse(CheckResult& result, const Reference& reference, std::span<const float> lse) {
  size_t wrong = 0, first = 0;
  for (size_t i = reference.rows.size(); i-- > 0;) {
    if (std::abs(lse[reference.rows[i]] - reference.lse[i]) <= reference.lse_tolerance[i]) continue;  // false for NaN
    ++wrong;
    first = i;
  }
  if (wrong == 0) return;
  const int64_t row = reference.rows[first];
  fail(result, FailureKind::wrong_lse,
       fmt::format(
           "log-sum-exp is wrong in {} of {} rows, the first at {}: {:.7g} instead of {:.7g}, where f32 explains "
           "{:.1e}",
           wrong, reference.rows.size(), place(result.shape, row), lse[row], reference.lse[first],
           reference.lse_tolerance[first]));
}

void judge_counts(CheckResult& result, const Variant& variant) {
  const emulator::Counters& counters = *result.counters;
  if (variant.predict) {
    const Counts predicted = variant.predict(result.shape), counted = counts_of(counters);
    const auto compare = [&](const char* name, uint64_t expected, uint64_t actual, uint64_t step = 0) {
      if (expected == actual || (step > 0 && actual > expected && (actual - expected) % step == 0)) return;
      fail(result, FailureKind::counts_differ, fmt::format("{}: predicted {}, counted {}", name, expected, actual));
    };
    compare("mma", predicted.mma, counted.mma);
    compare("ldmatrix", predicted.ldmatrix, counted.ldmatrix);
    compare("shuffles", predicted.shuffles, counted.shuffles, variant.shuffles_per_rescale);
    compare("barriers", predicted.barriers, counted.barriers);
    compare("bytes read from global memory", predicted.gmem_bytes_read, counted.gmem_bytes_read);
    compare("bytes written to global memory", predicted.gmem_bytes_written, counted.gmem_bytes_written);
  }
  if (variant.conflict_ways <= 0) return;
  const emulator::SiteCounts* const worst = worst_ldmatrix(counters);
  if (worst == nullptr || worst->ways() == variant.conflict_ways) return;
  fail(result, FailureKind::conflicts_differ,
       fmt::format("{}: {} from {} has {:.3g}-way bank conflicts, not {:.3g}-way as predicted",
                   emulator::to_string({worst->file, worst->line}), worst->instruction, worst->buffer, worst->ways(),
                   variant.conflict_ways));
}

void judge_emulator_run(CheckResult& result, const EmulatorRun& run) {
  for (const emulator::Report& report : run.reports) {
    fail(result, FailureKind::emulator_report, report.message, emulator::to_string(report.kind));
  }
  for (const std::string& message : run.overwritten_guards) {
    fail(result, FailureKind::guard_overwritten, "a write " + message);
  }
  for (const std::string& name : run.modified_inputs) fail(result, FailureKind::input_modified, name + " was changed");
}

}  // namespace

std::string_view to_string(Backend backend) {
  return backend == Backend::gpu ? "gpu" : "emulator";
}

std::string_view to_string(FailureKind kind) {
  switch (kind) {
    case FailureKind::wrong_result:
      return "wrong_result";
    case FailureKind::wrong_lse:
      return "wrong_lse";
    case FailureKind::nan_output:
      return "nan_output";
    case FailureKind::unwritten_output:
      return "unwritten_output";
    case FailureKind::guard_overwritten:
      return "guard_overwritten";
    case FailureKind::input_modified:
      return "input_modified";
    case FailureKind::emulator_report:
      return "emulator_report";
    case FailureKind::launch_failed:
      return "launch_failed";
    case FailureKind::counts_differ:
      return "counts_differ";
    case FailureKind::conflicts_differ:
      return "conflicts_differ";
    case FailureKind::differs_from_naive:
      return "differs_from_naive";
    case FailureKind::property_broken:
      return "property_broken";
  }
  return "unknown";
}

bool CheckResult::has(FailureKind kind) const {
  return std::ranges::any_of(failures, [=](const Failure& failure) { return failure.kind == kind; });
}

bool CheckResult::has_report(std::string_view detail) const {
  return std::ranges::any_of(failures, [=](const Failure& failure) {
    return failure.kind == FailureKind::emulator_report && failure.detail == detail;
  });
}

Counts counts_of(const emulator::Counters& counters) {
  return {.mma = counters.mma,
          .ldmatrix = counters.ldmatrix,
          .shuffles = counters.shuffles,
          .barriers = counters.barriers,
          .gmem_bytes_read = counters.gmem_bytes_read,
          .gmem_bytes_written = counters.gmem_bytes_written};
}

bool is_ldmatrix(const emulator::SiteCounts& site) {
  return site.instruction.starts_with("ldmatrix") || site.instruction.starts_with("wmma.load.a") ||
         site.instruction.starts_with("wmma.load.b");
}

const emulator::SiteCounts* worst_ldmatrix(const emulator::Counters& counters) {
  const emulator::SiteCounts* worst = nullptr;
  for (const emulator::SiteCounts& site : counters.sites) {
    if (is_ldmatrix(site) && (worst == nullptr || site.ways() > worst->ways())) worst = &site;
  }
  return worst;
}

double ldmatrix_ways(const emulator::Counters& counters) {
  uint64_t wavefronts = 0, ideal = 0;
  for (const emulator::SiteCounts& site : counters.sites) {
    if (!is_ldmatrix(site)) continue;
    wavefronts += site.wavefronts;
    ideal += site.ideal;
  }
  return ideal == 0 ? 0.0 : static_cast<double>(wavefronts) / static_cast<double>(ideal);
}

Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed) {
  Inputs inputs = make_inputs(kind, shape, seed);
  Reference reference = make_reference(shape, inputs);
  return {shape, kind, seed, std::move(inputs), std::move(reference)};
}

CheckResult check_on_emulator(const Stage& stage, const Variant& variant, const Problem& problem,
                              const emulator::Options& options) {
  const Stopwatch watch;
  CheckResult result = start_result(stage, variant, problem.shape, to_string(problem.kind), Backend::emulator);
  if (variant.on_emulator == nullptr) {
    fail(result, FailureKind::launch_failed, "this variant has no emulated build");
    return finish(std::move(result), watch);
  }
  EmulatorRun run = run_on_emulator(stage, variant, problem.shape, problem.inputs, options);
  result.output = std::move(run.output);
  result.counters = run.counters;
  judge_emulator_run(result, run);
  judge_output(result, problem.reference);
  if (stage.writes_lse) judge_lse(result, problem.reference, run.lse);
  judge_counts(result, variant);
  return finish(std::move(result), watch);
}

CheckResult check_on_gpu(const Stage& stage, const Variant& variant, const Problem& problem, GpuProblem& problem_on_gpu,
                         std::span<const f16> naive) {
  const Stopwatch watch;
  CheckResult result = start_result(stage, variant, problem.shape, to_string(problem.kind), Backend::gpu);
  const auto stop = [&](FailureKind kind, const Error& error) {
    fail(result, kind, error.message);
    return finish(std::move(result), watch);
  };
  if (const Status status = problem_on_gpu.poison_output(); !status) {
    return stop(FailureKind::launch_failed, status.error());
  }
  if (const Status status = problem_on_gpu.run(variant); !status) {
    return stop(FailureKind::launch_failed, status.error());
  }
  auto output = problem_on_gpu.read_output();
  if (!output) return stop(FailureKind::launch_failed, output.error());
  result.output = std::move(*output);
  if (const Status status = problem_on_gpu.check_guards(); !status) {
    fail(result, FailureKind::guard_overwritten, status.error().message);
  }
  if (const Status status = problem_on_gpu.check_inputs(problem.inputs); !status) {
    fail(result, FailureKind::input_modified, status.error().message);
  }
  judge_output(result, problem.reference);
  if (stage.writes_lse) {
    const auto lse = problem_on_gpu.read_lse();
    if (!lse) return stop(FailureKind::launch_failed, lse.error());
    judge_lse(result, problem.reference, *lse);
  }
  if (!naive.empty()) {
    // Each of the two may be off by the tolerance.
    const double difference = largest_difference(result.output, naive), bound = 2 * result.tolerance;
    if (!(difference <= bound)) {
      fail(result, FailureKind::differs_from_naive,
           fmt::format("differs from 00_naive on this GPU by {:.2e} somewhere; {:.2e} is allowed", difference, bound));
    }
  }
  return finish(std::move(result), watch);
}

std::vector<CheckResult> check_properties(const Stage& stage, const Variant& variant, const Shape& shape, uint64_t seed,
                                          Backend backend) {
  const Stopwatch watch;
  const Run on_emulator = [&](const Inputs& inputs) -> Result<std::vector<f16>> {
    return run_on_emulator(stage, variant, shape, inputs).output;
  };
  const Run on_gpu = [&](const Inputs& inputs) -> Result<std::vector<f16>> {
    auto problem = GpuProblem::create(shape, inputs, stage.materialises_scores);
    if (!problem) return tl::make_unexpected(problem.error());
    if (const Status status = problem->run(variant); !status) return tl::make_unexpected(status.error());
    return problem->read_output();
  };
  const auto properties = check_properties_of(backend == Backend::gpu ? on_gpu : on_emulator, shape, seed);
  std::vector<CheckResult> results;
  if (!properties) {
    CheckResult result = start_result(stage, variant, shape, "properties", backend);
    fail(result, FailureKind::launch_failed, properties.error().message);
    results.push_back(finish(std::move(result), watch));
    return results;
  }
  for (const PropertyResult& property : *properties) {
    CheckResult result = start_result(stage, variant, shape, property.name, backend);
    result.max_err = property.deviation;
    result.tolerance = property.bound;
    if (!property.holds()) {
      fail(result, FailureKind::property_broken,
           fmt::format("{}: outputs that should agree differ by {:.2e}; rounding explains {:.2e}", property.name,
                       property.deviation, property.bound));
    }
    results.push_back(finish(std::move(result), watch));
  }
  return results;
}

}  // namespace ladder
