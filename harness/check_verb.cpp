#include "harness/check_verb.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/check.hpp"
#include "harness/gpu.hpp"
#include "harness/interrupt.hpp"
#include "harness/json.hpp"
#include "harness/progress.hpp"
#include "harness/shapes.hpp"
#include "harness/table.hpp"

namespace ladder {
namespace {

constexpr Shape EMULATOR_SHAPE{.batch = 1, .heads = 1, .n = 512, .d = 128};
constexpr Shape GPU_SHAPE{.batch = 2, .heads = 4, .n = 1024, .d = 128};
constexpr int SMALL_N = 256;  // two KV tiles of the widest stage: for the properties, and the emulator's other inputs

struct Candidate {
  const Stage* stage;
  const Variant* variant;
};

// All results of one candidate at one shape on one back end: a line of the table.
struct Line {
  Candidate candidate;
  Backend backend;
  Shape shape;
  std::vector<CheckResult> results;
};

struct Report {
  std::vector<Line> lines;
  std::vector<std::string> notes;  // what was left out, and why
  size_t planned = 0;              // results, when nothing interrupts

  Line& line(const Candidate& candidate, Backend backend, const Shape& shape) {
    for (Line& known : lines) {
      if (known.candidate.variant == candidate.variant && known.backend == backend && known.shape == shape)
        return known;
    }
    return lines.emplace_back(Line{candidate, backend, shape, {}});
  }

  size_t done() const {
    size_t results = 0;
    for (const Line& line : lines) results += line.results.size();
    return results;
  }
};

std::vector<Candidate> choose_candidates(const Options& options) {
  std::vector<Candidate> candidates;
  for (const Stage* stage : options.stages) {
    for (const Variant& variant : stage->variants) {
      candidates.push_back({stage, &variant});
      if (!options.ablate) break;
    }
  }
  return candidates;
}

std::vector<InputKind> choose_inputs(const Options& options) {
  if (!options.inputs.empty()) return options.inputs;
  const auto all = all_input_kinds();
  return {all.begin(), all.end()};
}

// How many results these candidates are to have at one shape.
size_t results_of(const std::vector<Candidate>& candidates, const Options& options) {
  constexpr size_t PROPERTIES = 3;
  return candidates.size() * (choose_inputs(options).size() + (options.inputs.empty() ? PROPERTIES : 0));
}

// The emulator's cost of a problem, in units of one tensor-core stage's.
double emulated_work(const Candidate& candidate, const Shape& shape) {
  const double scores = double(shape.batch_heads()) * shape.n * shape.n;
  return candidate.stage->materialises_scores ? 10 * scores : scores;
}

bool any_materialises(const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates,
                             [](const Candidate& candidate) { return candidate.stage->materialises_scores; });
}

Shape with_n(Shape shape, int n) {
  shape.n = n;
  return shape;
}

std::string name_of(const Candidate& candidate, const Options& options) {
  return options.ablate ? fmt::format("{} ({})", candidate.stage->name, candidate.variant->label)
                        : std::string(candidate.stage->name);
}

// Without --n, only the normal inputs have the full length on the emulator, which keeps the whole ladder within seconds.
Shape emulator_shape_for(InputKind kind, const Shape& shape, const Options& options) {
  const bool reduce = options.n.empty() && options.inputs.empty() && kind != InputKind::normal;
  return reduce ? with_n(shape, SMALL_N) : shape;
}

Status check_on_emulator(const Options& options, const std::vector<Candidate>& candidates, Report& report) {
  const std::vector<Shape> shapes = shapes_for(options, EMULATOR_SHAPE);
  const std::vector<InputKind> kinds = choose_inputs(options);
  const bool with_properties = options.inputs.empty();
  constexpr int PROPERTY_RUNS = 6;
  double total = 0;
  for (const Shape& shape : shapes) {
    for (const Candidate& candidate : candidates) {
      if (auto status = supports(*candidate.stage, *candidate.variant, shape); !status) return status;
      for (const InputKind kind : kinds) total += emulated_work(candidate, emulator_shape_for(kind, shape, options));
      if (with_properties) total += PROPERTY_RUNS * emulated_work(candidate, with_n(EMULATOR_SHAPE, SMALL_N));
    }
    if (auto status = fits_host_memory(shape, any_materialises(candidates)); !status) return status;
  }

  Progress progress(total);
  for (const Shape& shape : shapes) {
    for (const InputKind kind : kinds) {
      const Problem problem = make_problem(emulator_shape_for(kind, shape, options), kind, options.seed);
      for (const Candidate& candidate : candidates) {
        if (interrupted()) return {};
        progress.step(fmt::format("{}, emulated, {}", name_of(candidate, options), to_string(kind)),
                      emulated_work(candidate, problem.shape));
        CheckResult result = check_on_emulator(*candidate.stage, *candidate.variant, problem);
        result.output = {};
        report.line(candidate, Backend::emulator, shape).results.push_back(std::move(result));
      }
    }
    for (const Candidate& candidate : candidates) {
      if (interrupted() || !with_properties) break;
      const Shape small{.batch = 1, .heads = 1, .n = SMALL_N, .d = shape.d, .causal = shape.causal};
      progress.step(fmt::format("{}, emulated, properties", name_of(candidate, options)),
                    PROPERTY_RUNS * emulated_work(candidate, small));
      auto& results = report.line(candidate, Backend::emulator, shape).results;
      for (CheckResult& result :
           check_properties(*candidate.stage, *candidate.variant, small, options.seed, Backend::emulator)) {
        results.push_back(std::move(result));
      }
    }
  }
  return {};
}

// Stage 00's output in full; empty, with a note, if its scores do not fit.
Result<std::vector<f16>> run_naive(GpuProblem& problem) {
  const auto naive = std::ranges::find_if(stages(), [](const Stage& stage) { return stage.materialises_scores; });
  if (auto status = problem.run(naive->variants.front()); !status) return tl::make_unexpected(status.error());
  return problem.read_output();
}

Status check_on_gpu(const Options& options, const GpuInfo& gpu, const std::vector<Candidate>& candidates,
                    Report& report) {
  const std::vector<Shape> shapes = shapes_for(options, GPU_SHAPE);
  const std::vector<InputKind> kinds = choose_inputs(options);
  const bool have_naive = std::ranges::any_of(stages(), [](const Stage& stage) {
    return stage.materialises_scores && stage.variants.front().on_gpu != nullptr;
  });
  std::vector<bool> with_scores;
  for (const Shape& shape : shapes) {
    for (const Candidate& candidate : candidates) {
      if (auto status = supports(*candidate.stage, *candidate.variant, shape); !status) return status;
    }
    const bool needs_scores = any_materialises(candidates);
    if (auto status = fits_gpu_memory(shape, needs_scores, gpu); !status) return status;
    if (auto status = fits_host_memory(shape, false); !status) return status;
    with_scores.push_back(have_naive && fits_gpu_memory(shape, true, gpu).has_value());
    if (!with_scores.back()) {
      report.notes.push_back(fmt::format("{}: not compared with 00_naive in full, its scores do not fit; {}",
                                         to_string(shape), "rows were sampled against the double reference."));
    }
  }

  Progress progress(double(shapes.size() * kinds.size() * candidates.size()));
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (const InputKind kind : kinds) {
      if (interrupted()) return {};
      progress.step(fmt::format("{}, {}: inputs and reference", to_string(shapes[i]), to_string(kind)), 0);
      const Problem problem = make_problem(shapes[i], kind, options.seed);
      auto on_gpu = GpuProblem::create(shapes[i], problem.inputs, with_scores[i]);
      if (!on_gpu) return tl::make_unexpected(on_gpu.error());
      std::vector<f16> naive_output;
      if (with_scores[i]) {
        auto output = run_naive(*on_gpu);
        if (!output) return tl::make_unexpected(output.error());
        naive_output = std::move(*output);
      }
      for (const Candidate& candidate : candidates) {
        if (interrupted()) return {};
        progress.step(fmt::format("{} on the GPU, {}", name_of(candidate, options), to_string(kind)), 1);
        CheckResult result = check_on_gpu(*candidate.stage, *candidate.variant, problem, *on_gpu, naive_output);
        result.output = {};
        report.line(candidate, Backend::gpu, shapes[i]).results.push_back(std::move(result));
      }
    }
    if (!options.inputs.empty()) continue;
    for (const Candidate& candidate : candidates) {
      if (interrupted()) return {};
      const Shape small{.batch = 1, .heads = 2, .n = SMALL_N, .d = shapes[i].d, .causal = shapes[i].causal};
      auto& results = report.line(candidate, Backend::gpu, shapes[i]).results;
      for (CheckResult& result :
           check_properties(*candidate.stage, *candidate.variant, small, options.seed, Backend::gpu)) {
        results.push_back(std::move(result));
      }
    }
  }
  return {};
}

// Without those whose shared memory no machine has at one of the shapes; each is an error if it was named, or else a note.
Result<std::vector<Candidate>> fitting(const Options& options, std::vector<Candidate> candidates, Report& report) {
  for (const Shape& shape : shapes_for(options, EMULATOR_SHAPE)) {
    for (size_t i = candidates.size(); i-- > 0;) {
      const Status status = supports(*candidates[i].stage, *candidates[i].variant, shape);
      if (status || status.error().code != ExitCode::cannot_run_here) continue;
      if (options.stages_named) return tl::make_unexpected(status.error());
      report.notes.push_back(status.error().message);
      candidates.erase(candidates.begin() + i);
    }
  }
  return candidates;
}

// Which candidates this GPU can run. A stage that was named and cannot run is an error, another one a note.
Result<std::vector<Candidate>> runnable(const Options& options, const GpuInfo& gpu,
                                        const std::vector<Candidate>& candidates, Report& report) {
  std::vector<Candidate> able;
  const std::vector<Shape> shapes = shapes_for(options, GPU_SHAPE);
  const Shape& longest = *std::ranges::max_element(shapes, {}, &Shape::n);
  for (const Candidate& candidate : candidates) {
    const Status status = runs_on(*candidate.stage, *candidate.variant, longest, gpu);
    if (status) {
      able.push_back(candidate);
    } else if (options.on == Where::gpu && options.stages_named) {
      return tl::make_unexpected(status.error());
    } else {
      report.notes.push_back("Not on the GPU: " + status.error().message);
    }
  }
  return able;
}

bool is_property(const CheckResult& result) {
  return std::ranges::none_of(all_input_kinds(), [&](InputKind kind) { return to_string(kind) == result.inputs; });
}

std::string describe_inputs(const Line& line) {
  std::vector<std::string_view> kinds;
  for (const CheckResult& result : line.results) {
    if (!is_property(result)) kinds.push_back(result.inputs);
  }
  const size_t properties = line.results.size() - kinds.size();
  std::string text =
      kinds.size() <= 2 ? fmt::format("{}", fmt::join(kinds, ", ")) : fmt::format("{} sets", kinds.size());
  if (properties > 0) text += fmt::format(", {} properties", properties);
  return text;
}

void print_report(const Report& report, const Options& options, std::FILE* out) {
  Table table({"<stage", "<on", "<shape", "<inputs", "max error", "tolerance", "<met with", "<verdict", "time"});
  int wrong = 0;
  bool reduced = false;
  for (const Line& line : report.lines) {
    const CheckResult* worst = &line.results.front();  // the one nearest to its tolerance; NaN is worse than all
    double seconds = 0;
    bool ok = true;
    for (const CheckResult& result : line.results) {
      if (!std::isnan(worst->max_err) && !(result.max_err / result.tolerance <= worst->max_err / worst->tolerance)) {
        worst = &result;
      }
      seconds += result.seconds;
      ok = ok && result.ok;
      reduced = reduced || (!is_property(result) && result.shape.n != line.shape.n);
    }
    wrong += !ok;
    table.add({name_of(line.candidate, options), std::string(to_string(line.backend)), to_string(line.shape),
               describe_inputs(line), fmt::format("{:.1e}", worst->max_err), fmt::format("{:.1e}", worst->tolerance),
               worst->inputs, verdict_word(ok, out), fmt::format("{:.2f} s", seconds)});
  }
  fmt::print(out, "{}", table.text());
  fmt::print(
      out,
      "Tolerance: twice the error of a plain f16 attention on the same inputs, plus 1e-5. Shown: the inputs that "
      "came nearest to it.\n");
  if (reduced) {
    fmt::print(out, "On the emulator, inputs other than normal have N={}; --n {} gives all of them the full length.\n",
               SMALL_N, EMULATOR_SHAPE.n);
  }

  constexpr int SHOWN = 20;
  int failures = 0;
  for (const Line& line : report.lines) {
    for (const CheckResult& result : line.results) {
      for (const Failure& failure : result.failures) {
        if (++failures > SHOWN) continue;
        fmt::print(out, "\n{} on the {}, {}, {}: {}\n  {}\n", name_of(line.candidate, options),
                   to_string(result.backend), to_string(result.shape), result.inputs, to_string(failure.kind),
                   failure.message);
      }
    }
  }
  if (failures > SHOWN) fmt::print(out, "\n... and {} more: --json FILE has all of them.\n", failures - SHOWN);
  for (const std::string& note : report.notes) fmt::print(out, "{}\n", note);
  if (wrong > 0) fmt::print(out, "{} of {} lines are wrong.\n", wrong, report.lines.size());
}

}  // namespace

Result<ExitCode> check_verb(const Options& options) {
  const InterruptGuard guard;
  Report report;
  const auto chosen = fitting(options, choose_candidates(options), report);
  if (!chosen) return tl::make_unexpected(chosen.error());
  const std::vector<Candidate>& candidates = *chosen;
  if (options.on != Where::gpu) {
    report.planned += shapes_for(options, EMULATOR_SHAPE).size() * results_of(candidates, options);
    if (auto status = check_on_emulator(options, candidates, report); !status)
      return tl::make_unexpected(status.error());
  }
  if (options.on != Where::cpu) {
    const auto gpu = gpu_info();
    if (gpu) {
      const auto able = runnable(options, *gpu, candidates, report);
      if (!able) return tl::make_unexpected(able.error());
      report.planned += shapes_for(options, GPU_SHAPE).size() * results_of(*able, options);
      if (!able->empty() && !interrupted()) {
        if (auto status = check_on_gpu(options, *gpu, *able, report); !status) {
          return tl::make_unexpected(status.error());
        }
      }
    } else if (options.on == Where::gpu) {
      return tl::make_unexpected(gpu.error());
    } else {
      report.notes.push_back("Emulator only. " + gpu.error().message.substr(0, gpu.error().message.find('\n')));
    }
  }
  std::ranges::stable_sort(report.lines, {}, [](const Line& line) { return line.candidate.stage->name; });
  if (interrupted()) {
    fmt::print(stderr, "Interrupted: {} of {} checks were done; the results so far stand.\n", report.done(),
               report.planned);
  }
  if (report.lines.empty()) {
    return interrupted() ? Result<ExitCode>(ExitCode::interrupted)
                         : failure(ExitCode::cannot_run_here, fmt::format("{}", fmt::join(report.notes, "\n")));
  }

  print_report(report, options, table_stream(options));
  bool ok = true;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Line& line : report.lines) {
    for (const CheckResult& result : line.results) {
      ok = ok && result.ok;
      rows.push_back(to_json(result));
    }
  }
  if (!options.json.empty()) {
    if (auto status = write_document(options.json, rows); !status) return tl::make_unexpected(status.error());
  }
  if (interrupted()) return ExitCode::interrupted;
  return ok ? ExitCode::done : ExitCode::check_failed;
}

}  // namespace ladder
