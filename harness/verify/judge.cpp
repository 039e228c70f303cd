#include "harness/verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "harness/base/interrupt.hpp"
#include "harness/base/parallel.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/watch.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/devices/emulator_run.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verify/record.hpp"

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

  std::shared_ptr<const Problem> get(const Trial& trial) {
    for (const auto& [known, problem] : kept_) {
      if (known == trial) return problem;
    }
    constexpr size_t MOST = 12;
    if (kept_.size() == MOST) kept_.erase(kept_.begin());
    return kept_.emplace_back(trial, std::make_shared<const Problem>(make(trial))).second;
  }

 private:
  Problem make(const Trial& trial) const {
    if (trial.starts_only || trial.begins_only) return {trial.shape, trial.kinds, trial.seed, {}, {}};
    const bool of_few = trial.some > 0 && trial.shape.batch_heads() > 2;
    Problem problem = of_few            ? make_question_of_few(trial.shape, trial.seed)
                      : trial.ends_only ? make_question(trial.shape, trial.kinds, trial.seed, trial.exponents)
                                        : make_problem(trial.shape, trial.kinds, trial.seed, on_gpu_, trial.exponents);
    problem.far_heads = trial.far_heads;
    problem.ends_only = trial.ends_only;
    problem.some = trial.some;
    return problem;
  }

  bool on_gpu_;
  std::vector<std::pair<Trial, std::shared_ptr<const Problem>>> kept_;
};

// From some length on a kernel in a rung's place may have fewer blocks than the rung's own, and so blocks that go on to other queries: a
// problem of that length, if it is none of minutes.
std::optional<Trial> blocks_in_turns(const Subject& subject, const Trial& longest) {
  constexpr int LONGEST = 1 << 14;
  Trial trial{.shape = longest.shape, .seed = longest.seed, .ends_only = true};
  const auto has_fewer = [&](int least) {
    trial.shape.n = supported_length(*subject.own, longest.shape, least);
    const auto start = [&](const Variant& variant) {
      return start_on_emulator(*subject.rung, variant, trial.shape, {.starts_only = true});
    };
    const LaunchStart its = start(*subject.variant);
    return its.reports.empty() && its.blocks < start(*subject.own).blocks;
  };
  if (subject.own->workspace_at(longest.shape) > 0 || !has_fewer(longest.shape.n)) return std::nullopt;
  int as_many = 0, fewer = longest.shape.n;
  while (fewer - as_many > 1) {
    const int between = as_many + (fewer - as_many) / 2;
    (has_fewer(between) ? fewer : as_many) = between;
  }
  if (fewer > LONGEST || !has_fewer(fewer)) return std::nullopt;
  return trial;
}

constexpr int LONGEST_WHOLE = 4096;

// Of queries of a head that is too long to run whole some are begun by nobody. That is a fault where the grid has grown with the head from
// a length at which each is, so that each block has a tile of them there too. Else blocks go on to others, of which nothing is known.
std::vector<CheckResult> not_begun(const Rung& rung, const Variant& variant, const Shape& shape,
                                   const emulator::Options& options) {
  Shape shorter = shape;
  shorter.n = supported_length(variant, shape, LONGEST_WHOLE / 4);
  const auto blocks = [&](const Shape& of) {
    return start_on_emulator(rung, variant, of,
                             {.multiprocessors = emulator::MANY_MULTIPROCESSORS, .starts_only = true})
        .blocks;
  };
  const bool has_grown =
      blocks(shape) * static_cast<uint64_t>(shorter.n) >= blocks(shorter) * static_cast<uint64_t>(shape.n);
  if (!has_grown || !each_query_is_begun(rung, variant, shorter, options)) return {};
  CheckResult result = start_result(rung, variant, shape, "no inputs", Place::emulator);
  result.fail(FailureKind::unwritten_output, fmt::format("some of {} queries are read by no block before its first "
                                                         "product, or by one with keys of another head; of {} "
                                                         "queries each is read, and there are as many blocks for each",
                                                         shape.n, shorter.n));
  return {result};
}

class OnEmulator final : public Backend {
 public:
  Place place() const override { return Place::emulator; }
  Status fits(const Shape& shape, uint64_t workspace_bytes) const override {
    return fits_host_memory(shape, workspace_bytes);
  }
  std::vector<Trial> trials(const Subject& subject, const Shape& shape, const TrialChoice& choice) const override {
    std::vector<Trial> trials = emulator_trials(*subject.variant, shape, choice);
    if (subject.own == nullptr) return trials;
    // What the rung can be launched with, a kernel in its place must be.
    std::erase_if(trials, [](const Trial& trial) { return trial.starts_only; });
    for (Trial& trial : emulator_trials(*subject.own, shape, choice)) {
      if (!trial.starts_only) continue;
      if (auto turns = blocks_in_turns(subject, trial)) trials.push_back(std::move(*turns));
      trials.push_back(std::move(trial));
    }
    return trials;
  }
  bool by_trial() const override { return false; }

  // Of a tensor-core rung on two cores of a laptop.
  double seconds(const Variant& variant, const Trial& trial) const override {
    constexpr double SCORES_PER_SECOND = 4e6;
    constexpr int END = 128;  // queries of a cluster, or several such tiles
    const Spec& spec = trial.shape;
    if (trial.starts_only || trial.begins_only) return 0;
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
    const emulator::Options options{
        .multiprocessors = trial.multiprocessors, .max_steps = most_steps, .schedule = trial.schedule, .stop = &stop};
    if (trial.starts_only) {
      const CheckResult start = check_start(*subject.rung, variant, trial.shape, options);
      return start.ok ? std::vector<CheckResult>{} : std::vector{start};  // of a launch alone there is no more to say
    }
    if (trial.begins_only) {
      if (each_query_is_begun(*subject.rung, variant, trial.shape, options)) return std::vector<CheckResult>{};
      if (trial.shape.n > LONGEST_WHOLE) return not_begun(*subject.rung, variant, trial.shape, options);
      const Problem whole = make_problem(trial.shape, trial.kinds, trial.seed, false);
      return check_sets_on_emulator(*subject.rung, variant, whole, options);
    }
    if (trial.only_fused) variant.on_emulator = variant.on_emulator_fused;
    auto results =
        check_sets_on_emulator(*subject.rung, variant, problem, options, trial.both_builds, trial.also_fused);
    CheckResult& first = results.front();
    // Of the ends of a grid, too, where its blocks are all alike, in whatever order they come.
    const bool tells_of_all = trial.some == 0 && (!trial.ends_only || blocks_are_alike(trial.shape));
    if (subject.own != nullptr && trial.far_heads == 0 && tells_of_all && first.ok) {
      Variant own = *subject.own;
      own.writes_lse &= !trial.leaves_out;
      const emulator::Counters counters = run_on_emulator(*subject.rung, own, problem, options).counters;
      // Who launches twice has more ends.
      if (!trial.ends_only || counters.blocks == first.counters->blocks)
        judge_beside(first, own, counters, !trial.ends_only, trial.kinds.size() == 1);
      first.ok = first.failures.empty();
    }
    if (subject.own == nullptr && variant.recorded && trial.recorded && first.ok)
      judge_record(first, *subject.rung, variant, trial);
    return results;
  }
};

class OnGpu final : public Backend {
 public:
  explicit OnGpu(const GpuInfo& gpu) : gpu_(gpu) {}

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
    const uint64_t workspace = subject.variant->workspace_at(trial.shape);
    if (uploaded_ != trial || workspace > workspace_) {
      uploaded_.reset();
      if (auto status = upload(trial, problem, workspace); !status) return passed_on(status);
      uploaded_ = trial;
    }
    constexpr int LAUNCHES = 100;
    const auto check = [&](const Variant& variant) {
      return check_sets_on_gpu(*subject.rung, variant, problem, *memory_, naive_output_, LAUNCHES);
    };
    if (!trial.leaves_out) return check(*subject.variant);
    Variant without = *subject.variant;
    without.writes_lse = false;
    return check(without);
  }

 private:
  // A build of some rungs may begin with one whose scores have an end, and trials go beyond it.
  bool naive_solves(const Trial& trial) const {
    const Variant& variant = naive_.variants.front();
    return variant.on_gpu && variant.largest_score == 0 && supports(naive_, variant, trial.shape);
  }
  // Whether all rows are held to those of the first rung of all, the formula as written.
  bool is_compared(const Trial& trial) const {
    return trial.far_heads == 0 && naive_solves(trial) &&
           fits_gpu_memory(trial.shape, naive_.workspace_at(trial.shape), gpu_);
  }

  Status upload(const Trial& trial, const Problem& problem, uint64_t workspace) {
    const bool is_far = trial.far_heads > 0, compared = is_compared(trial);
    workspace_ = std::max(compared ? naive_.workspace_at(trial.shape) : 0, workspace);
    memory_.reset();
    naive_output_ = {};
    auto created = is_far ? GpuProblem::create_repeated(problem.launched(), problem.inputs, 0)
                          : GpuProblem::create(trial.shape, problem.inputs, workspace_);
    if (!created) return passed_on(created);
    memory_ = std::move(*created);
    if (!compared) return {};
    if (auto status = memory_->run(naive_.variants.front()); !status) return status;
    auto output = memory_->read_output(outputs_of(naive_.variants.front(), trial.shape).front().name);
    if (output) naive_output_ = std::move(*output);
    return {};
  }

  const GpuInfo gpu_;
  const Rung& naive_ = rungs().front();
  std::optional<Trial> uploaded_;
  uint64_t workspace_ = 0;  // bytes, beside it
  std::unique_ptr<GpuProblem> memory_;
  Tensor naive_output_;
};

const Shape& line_shape(const std::vector<Shape>& shapes, const Trial& trial) {
  const auto own = std::ranges::find(shapes, trial.shape.n, &Shape::n);
  return own == shapes.end() ? shapes.front() : *own;
}

struct Task {
  Subject subject;
  Trial trial;
};

// In the order in which they are judged.
Result<std::vector<Task>> plan(const Backend& backend, const std::vector<Subject>& subjects,
                               const std::vector<Shape>& shapes, const TrialChoice& choice) {
  std::vector<Task> tasks;
  for (const Shape& shape : shapes) {
    if (auto status = backend.fits(shape, workspace_at(subjects, shape)); !status) return passed_on(status);
    for (const Subject& subject : subjects) {
      if (auto status = supports(*subject.rung, *subject.variant, shape); !status) return passed_on(status);
      TrialChoice own = choice;
      own.quick |= own.beside = subject.quick;
      own.thorough &= !subject.quick;
      for (Trial& trial : backend.trials(subject, shape, own)) {
        auto behind = tasks.end();
        while (backend.by_trial() && behind != tasks.begin() && !(std::prev(behind)->trial == trial)) --behind;
        tasks.insert(behind == tasks.begin() ? tasks.end() : behind, {subject, std::move(trial)});
      }
    }
  }
  return tasks;
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

std::unique_ptr<Backend> gpu_backend(const GpuInfo& gpu) {
  return std::make_unique<OnGpu>(gpu);
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
    if (choice_.answers_only || choice_.counts_told) {
      const auto counts = std::ranges::stable_partition(
          result.failures, [](const Failure& failure) { return !is_about_counts(failure.kind); });
      if (!choice_.answers_only) std::ranges::move(counts, std::back_inserter(result.told));
      result.failures.erase(counts.begin(), counts.end());
      result.ok = result.failures.empty();
    }
    into.results.push_back(std::move(result));
  }
  return !interrupted();
}

Status Judge::judge(Backend& backend, const std::vector<Subject>& subjects, const std::vector<Shape>& shapes) {
  const Place place = backend.place();
  const bool emulated = place == Place::emulator;
  const auto tasks = plan(backend, subjects, shapes, choice_.trials);
  if (!tasks) return passed_on(tasks);
  const auto seconds = [&](const Task& task) { return backend.seconds(*task.subject.variant, task.trial); };
  double total = 0;
  for (const Task& task : *tasks) total += seconds(task);
  planned += tasks->size();
  if (emulated && total > 3 * 60) {
    fmt::print(stderr, "This takes about {:.0f} minutes here; --inputs normal, a smaller --n or one stage take less.\n",
               total / 60);
  }
  if (emulated && choice_.trials.quick) {
    TrialChoice whole = choice_.trials;
    whole.quick = false;
    const auto all = plan(backend, subjects, shapes, whole);
    looked_.trials += tasks->size();
    looked_.of += all ? all->size() : 0;
    looked_.subjects += subjects.size();
    if (!looked_.note) {
      looked_.note = report.notes.size();
      looked_.name = subjects.back().name;
      looked_.number = subjects.back().rung->number();
      report.notes.emplace_back();
    }
    report.notes[*looked_.note] =
        fmt::format("A first look at {}: {} of {} trials. All of one rung:  ./ladder check {}",
                    looked_.subjects == 1 ? looked_.name : fmt::format("{} rungs", looked_.subjects), looked_.trials,
                    looked_.of, looked_.number);
  }
  if (!tasks->empty()) {
    if (std::string remark = backend.remark(tasks->front().trial); !remark.empty())
      report.notes.push_back(std::move(remark));
  }

  Progress progress(total);
  const auto problems = std::make_shared<Problems>(place);  // as `results`: work that is lost still refers to it
  for (auto next = tasks->begin(); next != tasks->end();) {
    const auto first = next++;
    const auto& [subject, trial] = *first;
    const Shape& shape = line_shape(shapes, trial);
    if (choice_.first_failure && !line(subject, place, shape).answers_right()) continue;
    const std::optional<double> own = backend.patience(*subject.variant, trial, choice_.may_loop);
    const std::optional<double> limit = choice_.timeout ? choice_.timeout : own;
    // Launches this small leave cores idle: some go side by side.
    constexpr double SMALL = 1;
    double work = seconds(*first);
    while (!backend.by_trial() && !limit && !choice_.first_failure && next != tasks->end() &&
           work + seconds(*next) <= SMALL)
      work += seconds(*next++);
    const std::vector<Task> together(first, next);
    progress.step(fmt::format("{}{}, {}", subject.name, emulated ? ", emulated" : " on the GPU", describe(trial)),
                  work);
    const auto results = std::make_shared<std::vector<Result<std::vector<CheckResult>>>>(together.size());
    const Watched watched = watch(
        [&backend, together, problems, results](const std::atomic<bool>& stop) {
          std::vector<std::shared_ptr<const Problem>> solved;
          for (const Task& task : together) solved.push_back(problems->get(task.trial));
          parallel_for(std::ssize(together), 1, [&](int64_t i, int64_t) {
            (*results)[i] = backend.run(together[i].subject, together[i].trial, *solved[i], stop);
          });
        },
        limit, emulated && !choice_.timeout ? Seconds::of_work : Seconds::of_clock);
    lost = watched.lost;
    if (watched.ended == Ended::interrupted) return {};
    done += together.size();
    if (watched.ended == Ended::timed_out) {
      line(subject, place, shape)
          .results.push_back(stopped(subject, trial, place, *limit, choice_.timeout.has_value()));
      if (lost) return {};
      continue;
    }
    for (size_t i = 0; i < together.size(); ++i) {
      const Task& task = together[i];
      const Shape& its = line_shape(shapes, task.trial);
      Result<std::vector<CheckResult>>& result = (*results)[i];
      if (result) {
        if (!keep(task.subject, place, its, std::move(*result))) return {};
      } else if (result.error().code == ExitCode::cannot_run_here &&
                 (task.trial.far_heads > 0 || task.trial.shape != its)) {  // what was asked for is refused by the plan
        const std::string what = task.trial.far_heads > 0 ? "beyond 2^32 elements" : to_string(task.trial.shape);
        const std::string note = fmt::format("Not checked, {}: {}", what, result.error().message);
        if (std::ranges::find(report.notes, note) == report.notes.end()) report.notes.push_back(note);
      } else {
        return passed_on(result);
      }
      // What a climb shows as it goes.
      const auto behind = first + static_cast<ptrdiff_t>(i) + 1;
      const bool judged = behind == tasks->end() || behind->subject.name != task.subject.name;
      if (emulated && choice_.trials.quick && judged) {
        progress.say(fmt::format("  {:<14} {}", task.subject.name,
                                 line(task.subject, place, its).answers_right() ? "right" : "WRONG"));
      }
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
    small.page = 0;
    small.n = PROPERTY_N;
    for (CheckResult& result : check_properties(*subject.rung, *subject.variant, small, choice_.trials.seed, place)) {
      line(subject, place, asked).results.push_back(std::move(result));
    }
  }
  return {};
}

}  // namespace ladder
