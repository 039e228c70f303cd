#include "harness/verbs/check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "harness/base/interrupt.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verbs/verbs.hpp"
#include "harness/verify/record.hpp"

namespace ladder {
namespace {

using Subjects = std::vector<Subject>;

// Those of which status_of(subject) is a success; the others' errors.
std::pair<Subjects, std::vector<Error>> able(const Subjects& subjects, const auto& status_of) {
  std::pair<Subjects, std::vector<Error>> apart;
  for (const Subject& subject : subjects) {
    const Status status = status_of(subject);
    if (status) apart.first.push_back(subject);
    if (!status) apart.second.push_back(status.error());
  }
  return apart;
}

// Those that are asked the same problems together, of which `usual` is what the options leave open.
Status judge_on(std::unique_ptr<Backend> backend, Judge& judge, Subjects subjects, const Options& options,
                const Spec& usual) {
  const auto shapes_of = [&](const Subject& subject) { return shapes_for(options, usual, &subject.variant->accepts); };
  Status status;
  while (status && !subjects.empty() && !interrupted() && !judge.lost) {
    const std::vector<Spec> shapes = shapes_of(subjects.front());
    const auto others =
        std::ranges::stable_partition(subjects, [&](const Subject& subject) { return shapes_of(subject) == shapes; });
    status = judge.judge(*backend, {subjects.begin(), others.begin()}, shapes);
    subjects.erase(subjects.begin(), others.begin());
  }
  if (judge.lost) (void)backend.release();  // a launch still runs in its memory
  return status;
}

// On whichever machines are asked for and there.
Status judge_all(Judge& judge, const Options& options, const Subjects& all) {
  std::vector<std::string>& notes = judge.report.notes;
  const auto [subjects, unfit] = able(all, [&](const Subject& subject) {
    Status status;
    for (const Spec& shape : shapes_for(options, EMULATOR_SHAPE, &subject.variant->accepts)) {
      if (status) status = supports(*subject.rung, *subject.variant, shape);
    }
    return status;
  });
  if (!unfit.empty() && (options.rungs_named || subjects.empty())) return Unexpected{unfit.front()};
  for (const Error& error : unfit) notes.push_back("Left out: " + error.first_line());
  if (options.on != Where::gpu) {
    const Status status = judge_on(emulator_backend(), judge, subjects, options, EMULATOR_SHAPE);
    if (!status) return status;
    if (!weaker_checks().empty()) notes.emplace_back(weaker_checks());
  }
  if (options.on == Where::cpu) return {};
  const auto gpu = gpu_info();
  if (!gpu) {
    if (options.on == Where::gpu) return passed_on(gpu);
    notes.push_back("Emulator only. " + gpu.error().first_line());
    return {};
  }
  const auto [runnable, others] = able(subjects, [&](const Subject& subject) {
    const std::vector<Spec> shapes = shapes_for(options, GPU_CHECK_SHAPE, &subject.variant->accepts);
    return runs_on(*subject.rung, *subject.variant, *std::ranges::max_element(shapes, {}, &Spec::n), *gpu);
  });
  if (!others.empty() && options.on == Where::gpu && options.rungs_named) return Unexpected{others.front()};
  for (const Error& error : others) notes.push_back("Not on the GPU: " + error.message);
  if (runnable.empty() || interrupted() || judge.lost) return {};
  return judge_on(gpu_backend(*gpu), judge, runnable, options, GPU_CHECK_SHAPE);
}

}  // namespace

std::vector<Subject> subjects_of(const Options& options) {
  std::vector<Subject> subjects;
  for (const Rung* rung : options.rungs) {
    const auto named = [&](const Variant& variant) { return fmt::format("{} ({})", rung->name, variant.label); };
    if (options.ablate) {
      for (const Variant& variant : rung->variants) subjects.push_back({rung, &variant, named(variant)});
      continue;
    }
    // The default, or the first that takes the problem that is asked.
    const auto takes = [&](const Variant& variant) {
      return std::ranges::all_of(shapes_for(options, EMULATOR_SHAPE, &variant.accepts),
                                 [&](const Spec& shape) { return bool(supports(*rung, variant, shape)); });
    };
    auto found = std::ranges::find_if(rung->variants, takes);
    if (found == rung->variants.end()) {  // what it lacks is said of one that has the type
      found = std::ranges::find_if(rung->variants, [&](const Variant& variant) {
        return shapes_for(options, EMULATOR_SHAPE, &variant.accepts).front().q_type == variant.accepts.q;
      });
    }
    const bool is_default = found == rung->variants.end() || found == rung->variants.begin();
    const Variant& variant = is_default ? rung->variants.front() : *found;
    subjects.push_back({rung, &variant, is_default ? std::string(rung->name) : named(variant)});
  }
  return subjects;
}

Result<ExitCode> check(const Options& options, const Subjects& subjects, bool may_loop, const std::string& seal) {
  const InterruptGuard guard;
  Judge judge({.trials = {.inputs = options.inputs,
                          .n_given = !options.n.empty(),
                          .thorough = options.thorough,
                          .quick = options.quick,
                          .any_scores = options.any_scores,
                          .seed = options.seed},
               .answers_only = options.answers_only,
               .counts_told = options.verb == Verb::try_file && !options.counts,
               .first_failure = options.first_failure,
               .may_loop = may_loop,
               .timeout = options.timeout});
  CheckReport& report = judge.report;
  if (options.thorough) report.notes.push_back(fmt::format("Random problems are from --seed {}.", options.seed));
  if (auto status = judge_all(judge, options, subjects); !status) return passed_on(status);
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
                         : failure(ExitCode::cannot_run_here, "{}", fmt::join(report.notes, "\n"));
  }

  print(report, table_stream(options));
  bool ok = true;
  Json rows = Json::array();
  for (const CheckLine& line : report.lines) {
    for (const CheckResult& result : line.results) {
      ok = ok && result.ok;
      if (!options.json.empty()) rows.push_back(to_json(result));
    }
  }
  if (auto status = write_document(options.json, rows, seal); !status) return passed_on(status);
  const ExitCode code = interrupted() ? ExitCode::interrupted : ok ? ExitCode::done : ExitCode::check_failed;
  if (judge.lost) {
    std::fflush(nullptr);
    std::_Exit(static_cast<int>(code));
  }
  return code;
}

Result<ExitCode> check_verb(const Options& options) {
  for (const Rung* rung : options.record_counts ? options.rungs : std::vector<const Rung*>()) {
    if (!options.rungs_named && std::ranges::none_of(rung->variants, &Variant::recorded)) continue;
    const auto lines = record_counts(*rung);
    if (!lines) return passed_on(lines);
    fmt::print(stderr, "{}/counts.tsv: {} problems are recorded.\n", rung->directory, *lines);
  }
  return check(options, subjects_of(options));
}

}  // namespace ladder
