#include "harness/verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/base/interrupt.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/watch.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

constexpr int PROPERTY_N = 256;

std::string describe(const Trial& trial) {
  const std::string inputs =
      trial.kinds.size() == 1 ? std::string(to_string(trial.kinds[0])) : fmt::format("{} sets", trial.kinds.size());
  return fmt::format("{}, N={}", inputs, trial.shape.n);
}

// The most bytes that one of them needs.
uint64_t workspace_at(const std::vector<Subject>& subjects, const Shape& shape) {
  uint64_t most = 0;
  for (const Subject& subject : subjects) most = std::max(most, subject.variant->workspace_at(shape));
  return most;
}

// Problems are the same for all subjects that take the shape, and their references cost more than a launch on a GPU.
class Problems {
 public:
  explicit Problems(Place place) : on_gpu_(place == Place::gpu) {}

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

class OnEmulator final : public Backend {
 public:
  Place place() const override { return Place::emulator; }
  Status fits(const Shape& shape, uint64_t workspace_bytes) const override {
    return fits_host_memory(shape, workspace_bytes);
  }
  std::vector<Trial> trials(const Subject& subject, const Shape& shape, const TrialChoice& choice) const override {
    return emulator_trials(*subject.variant, shape, choice);
  }
  bool by_trial() const override { return false; }

  // Of a tensor-core rung on two cores of a laptop.
  double seconds(const Variant& variant, const Trial& trial) const override {
    constexpr double SCORES_PER_SECOND = 4e6;
    constexpr int END = 128;  // queries of a cluster, or several such tiles
    const Spec& spec = trial.shape;
    const bool in_part = trial.ends_only && variant.workspace_at(spec) == 0;
    double scores = 0;
    for (int i = 0; i < spec.lens_q.count; ++i) scores += double(spec.heads) * spec.lens_q.of[i] * spec.lens_k.of[i];
    if (spec.lens_q.count == 0) scores = (in_part ? 2 * END : double(spec.batch_heads()) * spec.n) * spec.n;
    return scores * (trial.both_builds ? 2 : 1) / SCORES_PER_SECOND;
  }

  // The emulator itself ends a kernel that executes too many instructions. One of a reader's may launch without end.
  std::optional<double> patience(const Variant& variant, const Trial& trial, bool may_loop) const override {
    constexpr double SLOWER = 60;  // CUDA cores alone, on a busy machine
    if (!may_loop) return {};
    return std::round(60 + SLOWER * seconds(variant, trial));
  }

  Result<std::vector<CheckResult>> run(const Subject& subject, const Trial& trial, const Problem& problem,
                                       const std::atomic<bool>& stop) override {
    // More emulated instructions than a thread executes that computes whole rows alone.
    const int longest = std::max(trial.shape.n, trial.shape.keys());
    const uint64_t most_steps = 100'000 + 8 * uint64_t(longest) * uint64_t(trial.shape.d);
    Variant variant = *subject.variant;
    variant.writes_lse &= !trial.leaves_out;
    return check_sets_on_emulator(
        *subject.rung, variant, problem,
        {.multiprocessors = trial.multiprocessors, .max_steps = most_steps, .schedule = trial.schedule, .stop = &stop},
        trial.both_builds);
  }
};

class OnGpu final : public Backend {
 public:
  OnGpu(const GpuInfo& gpu, const std::vector<Subject>& subjects) : gpu_(gpu), subjects_(subjects) {}

  Place place() const override { return Place::gpu; }
  Status fits(const Shape& shape, uint64_t workspace_bytes) const override {
    if (auto status = fits_gpu_memory(shape, workspace_bytes, gpu_); !status) return status;
    return fits_host_memory(shape, 0);
  }
  // Beyond 2^32 elements nothing is left for a workspace.
  std::vector<Trial> trials(const Subject& subject, const Shape& shape, const TrialChoice& choice) const override {
    std::vector<Trial> all = gpu_trials(*subject.variant, shape, choice);
    std::erase_if(
        all, [&](const Trial& trial) { return trial.far_heads > 0 && subject.variant->workspace_at(trial.shape) > 0; });
    return all;
  }
  double seconds(const Variant&, const Trial&) const override { return 1; }
  bool by_trial() const override { return true; }
  // A launch that hangs on a GPU cannot be stopped; ten minutes are beyond any that is meant.
  std::optional<double> patience(const Variant&, const Trial&, bool) const override { return 600; }

  std::string remark(const Trial& trial) const override {
    if (is_compared(trial)) return "";
    return fmt::format("{}: not compared with {} in full, {}; rows were sampled against the double reference.",
                       to_string(trial.shape), naive_.name,
                       naive_solves(trial) ? "its scores do not fit" : "which does not solve it");
  }

  Result<std::vector<CheckResult>> run(const Subject& subject, const Trial& trial, const Problem& problem,
                                       const std::atomic<bool>&) override {
    if (!(uploaded_ && *uploaded_ == trial)) {
      uploaded_.reset();
      if (auto status = upload(trial, problem); !status) return passed_on(status);
      uploaded_ = trial;
    }
    constexpr int LAUNCHES = 100;
    return check_sets_on_gpu(*subject.rung, *subject.variant, problem, *memory_, naive_output_, LAUNCHES);
  }

 private:
  bool naive_solves(const Trial& trial) const {
    return naive_.variants.front().on_gpu && supports(naive_, naive_.variants.front(), trial.shape);
  }
  // Whether all rows are held to those of the first rung of all, the formula as written.
  bool is_compared(const Trial& trial) const {
    return trial.far_heads == 0 && naive_solves(trial) &&
           fits_gpu_memory(trial.shape, naive_.workspace_at(trial.shape), gpu_);
  }

  Status upload(const Trial& trial, const Problem& problem) {
    const bool is_far = trial.far_heads > 0, compared = is_compared(trial);
    const uint64_t workspace =
        std::max(compared ? naive_.workspace_at(trial.shape) : 0, workspace_at(subjects_, trial.shape));
    memory_.reset();
    naive_output_ = {};
    auto created = is_far ? GpuProblem::create_repeated(problem.launched(), problem.inputs, 0)
                          : GpuProblem::create(trial.shape, problem.inputs, workspace);
    if (!created) return passed_on(created);
    memory_ = std::move(*created);
    if (!compared) return {};
    if (auto status = memory_->run(naive_.variants.front()); !status) return status;
    auto output = memory_->read_output(outputs_of(naive_.variants.front(), trial.shape).front().name);
    if (output) naive_output_ = std::move(*output);
    return {};
  }

  const GpuInfo gpu_;
  const std::vector<Subject> subjects_;
  const Rung& naive_ = rungs().front();
  std::optional<Trial> uploaded_;
  std::unique_ptr<GpuProblem> memory_;
  Tensor naive_output_;
};

const Shape& line_shape(const std::vector<Shape>& shapes, const Trial& trial) {
  const auto own = std::ranges::find(shapes, trial.shape.n, &Shape::n);
  return own == shapes.end() ? shapes.front() : *own;
}

struct Step {
  Trial trial;
  std::vector<const Subject*> subjects;
};

// In the order in which they are judged.
Result<std::vector<Step>> plan(const Backend& backend, const std::vector<Subject>& subjects,
                               const std::vector<Shape>& shapes, const TrialChoice& choice) {
  std::vector<Step> steps;
  for (const Shape& shape : shapes) {
    if (auto status = backend.fits(shape, workspace_at(subjects, shape)); !status) return passed_on(status);
    for (const Subject& subject : subjects) {
      if (auto status = supports(*subject.rung, *subject.variant, shape); !status) return passed_on(status);
      TrialChoice own = choice;
      own.quick |= subject.quick;
      own.thorough &= !subject.quick;
      for (Trial& trial : backend.trials(subject, shape, own)) {
        const auto known = backend.by_trial() ? std::ranges::find(steps, trial, &Step::trial) : steps.end();
        if (known == steps.end()) {
          steps.push_back({std::move(trial), {&subject}});
        } else {
          known->subjects.push_back(&subject);
        }
      }
    }
  }
  return steps;
}

// It is not of the kernel's own making, and so says how it is raised.
CheckResult stopped(const Subject& subject, const Trial& trial, Place place, double seconds, bool asked_for) {
  CheckResult result = start_result(*subject.rung, *subject.variant, trial.shape,
                                    trial.kinds.size() == 1 ? to_string(trial.kinds[0]) : "all sets", place);
  result.fail(
      FailureKind::hangs,
      fmt::format("the launch was stopped: it had not ended after {0} s, {1}. It may have longer: --timeout {2}",
                  seconds, asked_for ? "which is all that --timeout gives it" : "far beyond what its work takes",
                  10 * seconds));
  return result;
}

}  // namespace

std::unique_ptr<Backend> emulator_backend() {
  return std::make_unique<OnEmulator>();
}

std::unique_ptr<Backend> gpu_backend(const GpuInfo& gpu, const std::vector<Subject>& subjects) {
  return std::make_unique<OnGpu>(gpu, subjects);
}

CheckLine& Judge::line(const Subject& subject, Place place, const Shape& shape) {
  for (CheckLine& known : report.lines) {
    if (known.name == subject.name && known.backend == place && known.shape == shape) return known;
  }
  return report.lines.emplace_back(CheckLine{subject.name, place, shape, {}, subject.rung->directory});
}

// False: the check ends here.
bool Judge::keep(const Subject& subject, Place place, const Shape& shape, std::vector<CheckResult> results) {
  CheckLine& into = line(subject, place, shape);
  for (CheckResult& result : results) {
    result.output = {};
    if (choice_.answers_only) {
      std::erase_if(result.failures, [](const Failure& failure) { return is_about_counts(failure.kind); });
      result.ok = result.failures.empty();
    }
    into.results.push_back(std::move(result));
  }
  return !interrupted();
}

Status Judge::judge(Backend& backend, const std::vector<Subject>& subjects, const std::vector<Shape>& shapes) {
  const Place place = backend.place();
  const bool emulated = place == Place::emulator;
  const auto steps = plan(backend, subjects, shapes, choice_.trials);
  if (!steps) return passed_on(steps);
  double total = 0;
  size_t launches = 0;
  for (const Step& step : *steps) {
    for (const Subject* subject : step.subjects) total += backend.seconds(*subject->variant, step.trial);
    launches += step.subjects.size();
  }
  planned += launches;
  if (emulated && total > 3 * 60) {
    fmt::print(stderr, "This takes about {:.0f} minutes here; --inputs normal, a smaller --n or one stage take less.\n",
               total / 60);
  }
  if (emulated && choice_.trials.quick) {
    TrialChoice whole = choice_.trials;
    whole.quick = false;
    const auto all = plan(backend, subjects, shapes, whole);
    report.notes.push_back(fmt::format("A first look: {} of {} trials. ./ladder check 02 makes all of a rung.",
                                       launches, all ? all->size() : 0));
  }

  Progress progress(total);
  Problems problems(place);
  for (const Step& step : *steps) {
    const Trial& trial = step.trial;
    const Shape& shape = line_shape(shapes, trial);
    if (&step == &steps->front()) {
      if (std::string remark = backend.remark(trial); !remark.empty()) report.notes.push_back(std::move(remark));
    }
    for (const Subject* subject : step.subjects) {
      if (choice_.first_failure && !line(*subject, place, shape).answers_right()) continue;
      progress.step(fmt::format("{}{}, {}", subject->name, emulated ? ", emulated" : " on the GPU", describe(trial)),
                    backend.seconds(*subject->variant, trial));
      Result<std::vector<CheckResult>> results;
      const std::optional<double> own = backend.patience(*subject->variant, trial, choice_.may_loop);
      const std::optional<double> limit = choice_.timeout ? choice_.timeout : own;
      const Watched watched = watch(
          [&, subject = *subject, trial = trial](const std::atomic<bool>& stop) {
            results = backend.run(subject, trial, problems.get(trial), stop);
          },
          limit, emulated && !choice_.timeout ? Seconds::of_work : Seconds::of_clock);
      lost = watched.lost;
      if (watched.ended == Ended::interrupted) return {};
      ++done;
      if (watched.ended == Ended::timed_out) {
        line(*subject, place, shape)
            .results.push_back(stopped(*subject, trial, place, *limit, choice_.timeout.has_value()));
        if (lost) return {};
      } else if (!results && trial.far_heads > 0) {
        report.notes.push_back("Not checked beyond 2^32 elements: " + results.error().message);
        break;
      } else if (!results) {
        return passed_on(results);
      } else if (!keep(*subject, place, shape, std::move(*results))) {
        return {};
      }
    }
    // What a climb shows as it goes.
    const bool judged = &step == &steps->back() || (&step + 1)->subjects.front() != step.subjects.front();
    if (emulated && choice_.trials.quick && judged) {
      const Subject& subject = *step.subjects.front();
      progress.say(
          fmt::format("  {:<14} {}", subject.name, line(subject, place, shape).answers_right() ? "right" : "WRONG"));
    }
  }
  for (const Subject& subject : subjects) {
    if (!choice_.trials.thorough || !choice_.trials.inputs.empty() || interrupted()) break;
    if (subject.quick) continue;
    const Shape& asked = shapes[0];
    Spec small = asked;
    small.batch = 1;
    small.heads = emulated ? 1 : 2;
    small.kv_heads = 0;
    small.lens_q = small.lens_k = {};
    small.n = PROPERTY_N;
    for (CheckResult& result : check_properties(*subject.rung, *subject.variant, small, choice_.trials.seed, place)) {
      line(subject, place, asked).results.push_back(std::move(result));
    }
  }
  return {};
}

}  // namespace ladder
