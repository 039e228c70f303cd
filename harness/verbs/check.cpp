#include "harness/verbs/check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "harness/base/interrupt.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verbs/verbs.hpp"

namespace ladder {
namespace {

using Subjects = std::vector<Subject>;

// Without those that cannot take one of the shapes: each is an error if it was named, or else a note. If none is left,
// the first one's reason is the error.
Result<Subjects> fitting(const CheckRequest& request, std::vector<std::string>& notes) {
  Subjects able;
  std::optional<Error> reason;
  for (const Subject& subject : request.subjects) {
    Status status;
    for (const Spec& shape : request.emulator_shapes(subject.variant->accepts)) {
      if (status) status = supports(*subject.rung, *subject.variant, shape);
    }
    if (status) {
      able.push_back(subject);
      continue;
    }
    if (request.named) return passed_on(status);
    if (!reason) reason = status.error();
    notes.push_back("Left out: " + status.error().first_line());
  }
  if (able.empty() && reason) return tl::make_unexpected(*reason);
  return able;
}

// Which subjects this GPU can run. A rung that was named and cannot run is an error, another one a note.
Result<Subjects> runnable(const CheckRequest& request, const GpuInfo& gpu, const Subjects& subjects,
                          std::vector<std::string>& notes) {
  Subjects able;
  for (const Subject& subject : subjects) {
    const std::vector<Spec> shapes = request.gpu_shapes(subject.variant->accepts);
    const Spec& longest = *std::ranges::max_element(shapes, {}, &Spec::n);
    const Status status = runs_on(*subject.rung, *subject.variant, longest, gpu);
    if (status) {
      able.push_back(subject);
    } else if (request.on == Where::gpu && request.named) {
      return passed_on(status);
    } else {
      notes.push_back("Not on the GPU: " + status.error().message);
    }
  }
  return able;
}

// Those that are asked the same problems together.
Status judge_on(std::unique_ptr<Backend> backend, Judge& judge, Subjects subjects,
                const std::function<std::vector<Spec>(const Accepts&)>& shapes_of) {
  Status status;
  while (status && !subjects.empty() && !interrupted() && !judge.lost) {
    const std::vector<Spec> shapes = shapes_of(subjects.front().variant->accepts);
    const auto others = std::ranges::stable_partition(
        subjects, [&](const Subject& subject) { return shapes_of(subject.variant->accepts) == shapes; });
    status = judge.judge(*backend, {subjects.begin(), others.begin()}, shapes);
    subjects.erase(subjects.begin(), others.begin());
  }
  if (judge.lost) (void)backend.release();  // a launch still runs in its memory
  return status;
}

// On whichever machines are asked for and there.
Status judge_all(Judge& judge, const CheckRequest& request) {
  std::vector<std::string>& notes = judge.report.notes;
  const auto subjects = fitting(request, notes);
  if (!subjects) return passed_on(subjects);
  if (request.on != Where::gpu) {
    const Status status = judge_on(emulator_backend(), judge, *subjects, request.emulator_shapes);
    if (!status) return status;
  }
  if (request.on == Where::cpu) return {};
  const auto gpu = gpu_info();
  if (!gpu) {
    if (request.on == Where::gpu) return passed_on(gpu);
    notes.push_back("Emulator only. " + gpu.error().first_line());
    return {};
  }
  const auto able = runnable(request, *gpu, *subjects, notes);
  if (!able) return passed_on(able);
  if (able->empty() || interrupted() || judge.lost) return {};
  return judge_on(gpu_backend(*gpu, *able), judge, *able, request.gpu_shapes);
}

}  // namespace

CheckRequest check_request(const Options& options) {
  CheckRequest request{.choice = {.trials = {.inputs = options.inputs,
                                             .n_given = !options.n.empty(),
                                             .thorough = options.thorough,
                                             .quick = options.quick,
                                             .seed = options.seed},
                                  .answers_only = options.answers_only,
                                  .first_failure = options.first_failure,
                                  .timeout = options.timeout},
                       .emulator_shapes = [=](const Accepts& own) { return shapes_for(options, EMULATOR_SHAPE, &own); },
                       .gpu_shapes = [=](const Accepts& own) { return shapes_for(options, GPU_CHECK_SHAPE, &own); },
                       .on = options.on,
                       .named = options.rungs_named,
                       .out = table_stream(options),
                       .json = options.json};
  for (const Rung* rung : options.rungs) {
    for (const Variant& variant : rung->variants) {
      request.subjects.push_back(
          {rung, &variant,
           options.ablate ? fmt::format("{} ({})", rung->name, variant.label) : std::string(rung->name)});
      if (!options.ablate) break;
    }
  }
  return request;
}

Result<ExitCode> check(const CheckRequest& request) {
  const InterruptGuard guard;
  Judge judge(request.choice);
  CheckReport& report = judge.report;
  const TrialChoice& trials = request.choice.trials;
  if (trials.thorough) report.notes.push_back(fmt::format("Random problems are from --seed {}.", trials.seed));
  if (auto status = judge_all(judge, request); !status) return passed_on(status);
  if (interrupted()) {
    fmt::print(stderr, "Interrupted: {} of {} launches were done; the results so far stand.\n", judge.done,
               judge.planned);
  }
  std::erase_if(report.lines, [](const CheckLine& line) { return line.results.empty(); });
  // In the ladder's order, the two machines' lines of a variant beside each other.
  std::ranges::stable_sort(report.lines, {}, [](const CheckLine& line) {
    const auto rung = std::ranges::find(rungs(), line.results.front().rung, &Rung::name);
    return std::pair(rung - rungs().begin(), line.name);
  });
  if (report.lines.empty() && !judge.lost) {
    return interrupted() ? Result<ExitCode>(ExitCode::interrupted)
                         : failure(ExitCode::cannot_run_here, fmt::format("{}", fmt::join(report.notes, "\n")));
  }

  print(report, request.out);
  bool ok = true;
  Json rows = Json::array();
  for (const CheckLine& line : report.lines) {
    for (const CheckResult& result : line.results) {
      ok = ok && result.ok;
      if (!request.json.empty()) rows.push_back(to_json(result));
    }
  }
  if (!request.json.empty()) {
    if (auto status = write_document(request.json, rows, request.seal); !status) return passed_on(status);
  }
  const ExitCode code = interrupted() ? ExitCode::interrupted : ok ? ExitCode::done : ExitCode::check_failed;
  if (judge.lost) {
    std::fflush(nullptr);
    std::_Exit(static_cast<int>(code));
  }
  return code;
}

Result<ExitCode> check_verb(const Options& options) {
  return check(check_request(options));
}

}  // namespace ladder
