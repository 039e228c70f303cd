#include "harness/verbs/check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/interrupt.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/watch.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verify/check_report.hpp"
#include "harness/verify/trials.hpp"

namespace ladder {
namespace {

constexpr int PROPERTY_N = 256;

struct Candidate {
  const Stage* stage;
  const Variant* variant;
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

// The most bytes that one of them needs.
uint64_t workspace_at(const std::vector<Candidate>& candidates, const Shape& shape) {
  uint64_t most = 0;
  for (const Candidate& candidate : candidates) most = std::max(most, candidate.variant->workspace_at(shape));
  return most;
}

std::string name_of(const Candidate& candidate, const Options& options) {
  return options.ablate ? fmt::format("{} ({})", candidate.stage->name, candidate.variant->label)
                        : std::string(candidate.stage->name);
}

std::string describe(const Trial& trial) {
  const std::string inputs =
      trial.kinds.size() == 1 ? std::string(to_string(trial.kinds[0])) : fmt::format("{} sets", trial.kinds.size());
  return fmt::format("{}, N={}", inputs, trial.shape.n);
}

// The emulator's cost, in scores.
double emulated_work(const Trial& trial) {
  constexpr int END = 128;  // queries of a cluster, or several such tiles
  const double queries = trial.ends_only ? 2 * END : double(trial.shape.batch_heads()) * trial.shape.n;
  return queries * trial.shape.n * (trial.both_builds ? 2 : 1);
}

constexpr double SCORES_PER_SECOND = 4e6;  // of a tensor-core stage on two cores of a laptop

// Problems are the same for all stages that take the shape, and their references cost more than a launch on a GPU.
class Problems {
 public:
  explicit Problems(bool on_gpu) : on_gpu_(on_gpu) {}

  const Problem& get(const Trial& trial) {
    for (const auto& [known, problem] : kept_) {
      if (known == trial) return *problem;
    }
    constexpr size_t MOST = 12;
    if (kept_.size() == MOST) kept_.erase(kept_.begin());
    auto problem = std::make_unique<Problem>(make(trial));
    return *kept_.emplace_back(trial, std::move(problem)).second;
  }

 private:
  Problem make(const Trial& trial) const {
    Problem problem = trial.ends_only ? make_question(trial.shape, trial.kinds, trial.seed, trial.exponents)
                                      : make_problem(trial.shape, trial.kinds, trial.seed, on_gpu_, trial.exponents);
    problem.far_heads = trial.far_heads;
    problem.ends_only = trial.ends_only;
    return problem;
  }

  bool on_gpu_;
  std::vector<std::pair<Trial, std::unique_ptr<Problem>>> kept_;
};

// More emulated instructions than a thread executes that computes whole rows alone.
uint64_t most_steps(const Shape& shape) {
  return 100'000 + 8 * uint64_t(shape.n) * uint64_t(shape.d);
}

CheckResult stopped_result(const Candidate& candidate, const Trial& trial, Backend backend, FailureKind kind,
                           std::string message) {
  CheckResult result;
  result.stage = candidate.stage->name;
  result.variant = candidate.variant->label;
  result.backend = backend;
  result.shape = trial.shape;
  result.inputs = trial.kinds.size() == 1 ? to_string(trial.kinds[0]) : "all sets";
  result.failures.push_back({kind, std::move(message)});
  return result;
}

// A run of the whole verb: what it has found so far, and whether something of it still runs.
class Check {
 public:
  explicit Check(const Options& options)
      : options_(options),
        trial_choice_{.inputs = options.inputs,
                      .n_given = !options.n.empty(),
                      .thorough = options.thorough,
                      .quick = options.quick,
                      .seed = options.seed} {}

  CheckReport report;
  size_t planned = 0, done = 0;  // launches
  bool lost = false;             // a thread still runs that nobody can stop

  Status on_emulator(const std::vector<Candidate>& candidates) {
    const std::vector<Shape> shapes = shapes_for(options_, EMULATOR_SHAPE);
    std::vector<std::pair<size_t, Trial>> plan;  // which candidate's
    double total = 0;
    size_t all_trials = 0;
    for (const Shape& shape : shapes) {
      if (auto status = fits_host_memory(shape, workspace_at(candidates, shape)); !status) return status;
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (auto status = supports(*candidates[i].stage, *candidates[i].variant, shape); !status) return status;
        if (options_.quick) {
          TrialChoice whole = trial_choice_;
          whole.quick = false;
          all_trials += emulator_trials(*candidates[i].stage, *candidates[i].variant, shape, whole).size();
        }
        for (Trial& trial : emulator_trials(*candidates[i].stage, *candidates[i].variant, shape, trial_choice_)) {
          total += emulated_work(trial);
          plan.emplace_back(i, std::move(trial));
        }
      }
    }
    planned += plan.size();
    warn_of_time(total);
    if (options_.quick) {
      report.notes.push_back(fmt::format("A first look: {} of {} trials. ./ladder check 02 makes all of a rung.",
                                         plan.size(), all_trials));
    }

    Progress progress(total);
    Problems problems(false);
    for (const auto& planned : plan) {
      const Candidate& candidate = candidates[planned.first];
      const Trial& trial = planned.second;
      const Shape& shape = line_shape(shapes, trial);
      if (skip(candidate, Backend::emulator, shape)) continue;
      progress.step(fmt::format("{}, emulated, {}", name_of(candidate, options_), describe(trial)),
                    emulated_work(trial));
      std::vector<CheckResult> results;
      const std::optional<double> limit = emulator_timeout(trial);
      const Watched watched = watch(
          [&, candidate, trial = trial](const std::atomic<bool>& stop) {
            const emulator::Options emulated{.multiprocessors = trial.multiprocessors,
                                             .max_steps = most_steps(trial.shape),
                                             .schedule = trial.schedule,
                                             .stop = &stop};
            results = check_sets_on_emulator(*candidate.stage, *candidate.variant, problems.get(trial), emulated,
                                             trial.both_builds);
          },
          limit);
      if (!take(candidate, Backend::emulator, shape, trial, watched, limit, std::move(results))) return {};
      const bool judged = &planned == &plan.back() || (&planned + 1)->first != planned.first;
      if (options_.quick && judged) {
        const bool right = line(candidate, Backend::emulator, shape).answers_right();
        progress.say(fmt::format("  {:<14} {}", name_of(candidate, options_), right ? "right" : "WRONG"));
      }
    }
    for (const Candidate& candidate : candidates) {
      if (!options_.thorough || !options_.inputs.empty() || interrupted()) break;
      const Shape small{.n = PROPERTY_N, .d = shapes[0].d, .causal = shapes[0].causal};
      properties(candidate, Backend::emulator, shapes[0], small);
    }
    return {};
  }

  Status on_gpu(const GpuInfo& gpu, const std::vector<Candidate>& candidates) {
    const std::vector<Shape> shapes = shapes_for(options_, GPU_CHECK_SHAPE);
    // The first stage of all is the formula as written.
    const Stage& naive = stages().front();
    const bool have_naive = static_cast<bool>(naive.variants.front().on_gpu);
    std::vector<std::pair<Trial, std::vector<size_t>>> plan;  // each with the candidates that it is for
    for (const Shape& shape : shapes) {
      if (auto status = fits_gpu_memory(shape, workspace_at(candidates, shape), gpu); !status) return status;
      if (auto status = fits_host_memory(shape, 0); !status) return status;
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (auto status = supports(*candidates[i].stage, *candidates[i].variant, shape); !status) return status;
        for (const Trial& trial : gpu_trials(*candidates[i].stage, *candidates[i].variant, shape, trial_choice_)) {
          const auto known = std::ranges::find(plan, trial, &decltype(plan)::value_type::first);
          if (known == plan.end()) {
            plan.push_back({trial, {i}});
          } else {
            known->second.push_back(i);
          }
          ++planned;
        }
      }
    }

    Progress progress(double(planned - done));
    Problems problems(true);
    for (const auto& planned : plan) {
      const Trial& trial = planned.first;
      const bool is_far = trial.far_heads > 0;
      const uint64_t naive_workspace = naive.workspace_at(trial.shape);
      const bool naive_solves = have_naive && supports(naive, naive.variants.front(), trial.shape);
      const bool with_naive = !is_far && naive_solves && fits_gpu_memory(trial.shape, naive_workspace, gpu).has_value();
      const Shape& shape = line_shape(shapes, trial);
      if (!with_naive && trial == plan.front().first) {
        report.notes.push_back(fmt::format(
            "{}: not compared with {} in full, {}; rows were sampled against the double reference.", to_string(shape),
            naive.name, naive_solves ? "its scores do not fit" : "which does not solve it"));
      }
      progress.step(fmt::format("{}: inputs and reference", describe(trial)), 0);
      std::optional<GpuProblem> on_gpu;
      Tensor naive_output;
      Status prepared;
      const Watched first = watch(
          [&, trial](const std::atomic<bool>&) {
            const Problem& problem = problems.get(trial);
            const uint64_t workspace =
                std::max(with_naive ? naive_workspace : 0, workspace_at(candidates, trial.shape));
            auto created = is_far ? GpuProblem::create_repeated(problem.launched(), problem.inputs, 0)
                                  : GpuProblem::create(trial.shape, problem.inputs, workspace);
            if (!created) {
              prepared = tl::make_unexpected(created.error());
              return;
            }
            on_gpu.emplace(std::move(*created));
            if (!with_naive) return;
            prepared = on_gpu->run(naive.variants.front());
            if (!prepared) return;
            auto output = on_gpu->read_output(outputs_of(naive.variants.front(), trial.shape).front().name);
            if (output) naive_output = std::move(*output);
          },
          gpu_timeout());
      lost = first.lost;
      if (first.ended != Ended::by_itself) return {};
      if (!prepared && is_far) {
        report.notes.push_back("Not checked beyond 2^32 elements: " + prepared.error().message);
        continue;
      }
      if (!prepared) return prepared;
      for (const size_t i : planned.second) {
        const Candidate& candidate = candidates[i];
        if (skip(candidate, Backend::gpu, shape) || (is_far && candidate.variant->workspace_at(shape) > 0)) continue;
        progress.step(fmt::format("{} on the GPU, {}", name_of(candidate, options_), describe(trial)), 1);
        std::vector<CheckResult> results;
        const Watched watched = watch(
            [&, candidate, trial](const std::atomic<bool>&) {
              results =
                  check_sets_on_gpu(*candidate.stage, *candidate.variant, problems.get(trial), *on_gpu, naive_output);
            },
            gpu_timeout());
        if (!take(candidate, Backend::gpu, shape, trial, watched, gpu_timeout(), std::move(results))) return {};
      }
    }
    for (const Candidate& candidate : candidates) {
      if (!options_.thorough || !options_.inputs.empty() || interrupted()) break;
      const Shape small{.heads = 2, .n = PROPERTY_N, .d = shapes[0].d, .causal = shapes[0].causal};
      properties(candidate, Backend::gpu, shapes[0], small);
    }
    return {};
  }

 private:
  // A launch that hangs on a GPU cannot be stopped; ten minutes are beyond any that is meant.
  std::optional<double> gpu_timeout() const { return options_.timeout ? options_.timeout : 600; }

  // The emulator itself ends a kernel that executes too many instructions. One of a reader's may loop without any.
  std::optional<double> emulator_timeout(const Trial& trial) const {
    if (options_.timeout || !options_.may_loop) return options_.timeout;
    constexpr double SLOWER = 60;  // CUDA cores alone, on a busy machine
    return std::round(60 + SLOWER * emulated_work(trial) / SCORES_PER_SECOND);
  }

  static void warn_of_time(double scores) {
    const double minutes = scores / SCORES_PER_SECOND / 60;
    if (minutes > 3) {
      fmt::print(stderr,
                 "This takes about {:.0f} minutes here; --inputs normal, a smaller --n or one stage take less.\n",
                 minutes);
    }
  }

  static const Shape& line_shape(const std::vector<Shape>& shapes, const Trial& trial) {
    const auto own = std::ranges::find(shapes, trial.shape.n, &Shape::n);
    return own == shapes.end() ? shapes.front() : *own;
  }

  CheckLine& line(const Candidate& candidate, Backend backend, const Shape& shape) {
    const std::string name = name_of(candidate, options_);
    for (CheckLine& known : report.lines) {
      if (known.name == name && known.backend == backend && known.shape == shape) return known;
    }
    return report.lines.emplace_back(CheckLine{name, backend, shape, {}, 0, candidate.stage->directory});
  }

  bool skip(const Candidate& candidate, Backend backend, const Shape& shape) {
    if (!options_.first_failure) return false;
    return !line(candidate, backend, shape).answers_right();
  }

  // Keeps what a launch has given. False: the check ends here.
  bool take(const Candidate& candidate, Backend backend, const Shape& shape, const Trial& trial, const Watched& watched,
            std::optional<double> limit, std::vector<CheckResult> results) {
    lost = watched.lost;
    if (watched.ended == Ended::interrupted) return false;
    CheckLine& into = line(candidate, backend, shape);
    if (watched.ended == Ended::timed_out) {
      into.results.push_back(
          stopped_result(candidate, trial, backend, FailureKind::hangs,
                         fmt::format("the launch was stopped: it had not ended after {} s", *limit)));
      ++done;
      return !watched.lost;
    }
    ++into.problems;
    ++done;
    for (CheckResult& result : results) {
      result.output = {};
      if (options_.answers_only) {
        std::erase_if(result.failures, [](const Failure& failure) { return is_about_counts(failure.kind); });
        result.ok = result.failures.empty();
      }
      into.results.push_back(std::move(result));
    }
    return !interrupted();
  }

  void properties(const Candidate& candidate, Backend backend, const Shape& shape, const Shape& small) {
    for (CheckResult& result : check_properties(*candidate.stage, *candidate.variant, small, options_.seed, backend)) {
      line(candidate, backend, shape).results.push_back(std::move(result));
    }
  }

  const Options& options_;
  const TrialChoice trial_choice_;
};

// Without those that cannot take one of the shapes: each is an error if it was named, or else a note. If none is left,
// the first one's reason is the error.
Result<std::vector<Candidate>> fitting(const Options& options, const std::vector<Candidate>& candidates,
                                       std::vector<std::string>& notes) {
  std::vector<Candidate> able;
  std::optional<Error> reason;
  for (const Candidate& candidate : candidates) {
    Status status;
    for (const Shape& shape : shapes_for(options, EMULATOR_SHAPE)) {
      if (status) status = supports(*candidate.stage, *candidate.variant, shape);
    }
    if (status) {
      able.push_back(candidate);
      continue;
    }
    if (options.stages_named) return tl::make_unexpected(status.error());
    if (!reason) reason = status.error();
    notes.push_back("Left out: " + status.error().message.substr(0, status.error().message.find('\n')));
  }
  if (able.empty() && reason) return tl::make_unexpected(*reason);
  return able;
}

// Which candidates this GPU can run. A stage that was named and cannot run is an error, another one a note.
Result<std::vector<Candidate>> runnable(const Options& options, const GpuInfo& gpu,
                                        const std::vector<Candidate>& candidates, std::vector<std::string>& notes) {
  std::vector<Candidate> able;
  const std::vector<Shape> shapes = shapes_for(options, GPU_CHECK_SHAPE);
  const Shape& longest = *std::ranges::max_element(shapes, {}, &Shape::n);
  for (const Candidate& candidate : candidates) {
    const Status status = runs_on(*candidate.stage, *candidate.variant, longest, gpu);
    if (status) {
      able.push_back(candidate);
    } else if (options.on == Where::gpu && options.stages_named) {
      return tl::make_unexpected(status.error());
    } else {
      notes.push_back("Not on the GPU: " + status.error().message);
    }
  }
  return able;
}

}  // namespace

Result<ExitCode> check_verb(const Options& options) {
  const InterruptGuard guard;
  Check check(options);
  CheckReport& report = check.report;
  if (options.thorough) report.notes.push_back(fmt::format("Random problems are from --seed {}.", options.seed));
  const auto candidates = fitting(options, choose_candidates(options), report.notes);
  if (!candidates) return tl::make_unexpected(candidates.error());
  if (options.on != Where::gpu) {
    if (auto status = check.on_emulator(*candidates); !status) return tl::make_unexpected(status.error());
  }
  if (options.on != Where::cpu) {
    const auto gpu = gpu_info();
    if (gpu) {
      const auto able = runnable(options, *gpu, *candidates, report.notes);
      if (!able) return tl::make_unexpected(able.error());
      if (!able->empty() && !interrupted() && !check.lost) {
        if (auto status = check.on_gpu(*gpu, *able); !status) return tl::make_unexpected(status.error());
      }
    } else if (options.on == Where::gpu) {
      return tl::make_unexpected(gpu.error());
    } else {
      report.notes.push_back("Emulator only. " + gpu.error().message.substr(0, gpu.error().message.find('\n')));
    }
  }
  if (interrupted()) {
    fmt::print(stderr, "Interrupted: {} of {} launches were done; the results so far stand.\n", check.done,
               check.planned);
  }
  std::erase_if(report.lines, [](const CheckLine& line) { return line.results.empty(); });
  // In the ladder's order, the two machines' lines of a variant beside each other.
  std::ranges::stable_sort(report.lines, {}, [](const CheckLine& line) {
    const auto stage = std::ranges::find(stages(), line.results.front().stage, &Stage::name);
    return std::pair(stage - stages().begin(), line.name);
  });
  if (report.lines.empty() && !check.lost) {
    return interrupted() ? Result<ExitCode>(ExitCode::interrupted)
                         : failure(ExitCode::cannot_run_here, fmt::format("{}", fmt::join(report.notes, "\n")));
  }

  print(report, table_stream(options));
  bool ok = true;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const CheckLine& line : report.lines) {
    for (const CheckResult& result : line.results) {
      ok = ok && result.ok;
      rows.push_back(to_json(result));
    }
  }
  if (!options.json.empty()) {
    if (auto status = write_document(options.json, rows, options.seal); !status)
      return tl::make_unexpected(status.error());
  }
  const ExitCode code = interrupted() ? ExitCode::interrupted : ok ? ExitCode::done : ExitCode::check_failed;
  if (check.lost) {
    std::fflush(nullptr);
    std::_Exit(static_cast<int>(code));
  }
  return code;
}

}  // namespace ladder
