#include "harness/verbs/bench.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <set>

#include "harness/base/files.hpp"
#include "harness/base/interrupt.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/terminal.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/measure/field.hpp"
#include "harness/measure/heats.hpp"
#include "harness/measure/results_table.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/check.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verbs/verbs.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// The commands of --peer, and of what lies in harness/peers unless --no-peers.
std::vector<PeerCommand> peer_commands(const Options& options) {
  std::vector<PeerCommand> commands;
  if (!options.no_peers) commands = find_peers(LADDER_SOURCE_DIR "/harness/peers");
  std::ranges::transform(options.peers, std::inserter(commands, commands.begin()), peer_from_option);
  return commands;
}

// Everything that outlives a shape.
class Bench {
 public:
  Bench(const Options& options, const GpuInfo& gpu, const BenchRequest& request)
      : options_(options),
        request_(request),
        out_(table_stream(options)),
        gpu_(gpu),
        machine_(gpu_.pci_bus_id),
        protocol_(protocol_of(options)),
        peers_(request.peers && request.peers->empty() ? std::vector<PeerCommand>{} : peer_commands(options)) {
    if (request.peers) protocol_.longest_launch_ms = std::numeric_limits<double>::infinity();  // nobody apart
    for (const std::string& note : machine_.notes()) say_once(note);
  }

  Result<ExitCode> run() {
    if (options_.resume && std::filesystem::exists(options_.csv)) {
      Result<std::vector<ResultRow>> rows = read_csv(fs::path(options_.csv));
      if (!rows) return passed_on(rows);
      resumed_ = std::move(*rows);
    }
    const std::vector<InputKind> kinds = options_.inputs.empty() ? std::vector{InputKind::normal} : options_.inputs;
    Status status;
    const std::vector<Shape> shapes = bench_shapes(options_);
    problems_ = shapes.size() * kinds.size();
    for (const Shape& shape : shapes) {
      for (const InputKind kind : kinds) {
        if (status) status = run_shape(shape, kind);
      }
    }
    const bool stopped = !status && status.error().code == ExitCode::interrupted;
    const Status written = write_document(options_.json, rows_);
    if (written_) written_ = written;
    if (!status && !stopped) return passed_on(status);
    if (stopped) fmt::print(stderr, "{}\n", status.error().message);
    if (!written_) return passed_on(written_);
    if (stopped) return ExitCode::interrupted;
    if (rows_.size() == 0 && refusal_) return Unexpected{*refusal_};
    return all_right_ ? ExitCode::done : ExitCode::check_failed;
  }

 private:
  // The field of one problem. Without room for what some rungs need as a workspace, the others run without them.
  Result<Field> make_field(const std::shared_ptr<const Problem>& problem) {
    const Shape& shape = problem->shape;
    uint64_t workspace = 0;
    for (const Subject& subject : request_.subjects)
      workspace = std::max(workspace, subject.variant->workspace_at(shape));
    Result<Field> field = Field::create(gpu_, problem, workspace);
    std::optional<Error> no_room;
    if (!field && workspace > 0 && field.error().code == ExitCode::cannot_run_here) {
      no_room = field.error();
      field = Field::create(gpu_, problem, 0);
    }
    if (!field) return field;
    for (const Subject& subject : request_.subjects) {
      if (no_room && subject.variant->workspace_at(shape) > 0) {
        say_once(fmt::format("{}: not timed: {}", subject.name, no_room->message));
        if (!refusal_) refusal_ = no_room;
      } else if (!interrupted()) {
        field->add(*subject.rung, *subject.variant);
      }
    }
    if (!refusal_) refusal_ = field->refusal();
    return field;
  }

  Status run_shape(const Shape& shape, InputKind kind) {
    const std::string title = fmt::format("{}, {}", to_string(shape), to_string(kind));
    ++problem_;
    for (const Status& fits : {fits_gpu_memory(shape, 0, gpu_), fits_host_memory(shape, 0)}) {
      if (!fits) return fits;
    }
    std::shared_ptr<const Problem> problem;
    {
      Progress progress(1);
      progress.step(title + ": inputs, reference, check", 0);
      problem = std::make_shared<const Problem>(make_problem(shape, kind, options_.seed, true));
      peers_.ask_to_prepare(*problem);
    }
    Result<Field> field = make_field(problem);
    if (!field) return passed_on(field);
    if (interrupted()) return interruption();  // before all rungs were checked
    if (request_.peers && refusal_) return Unexpected{*refusal_};
    const bool any_rung = !field->entries().empty() || request_.peers;
    const std::vector<std::string> wanted = request_.peers.value_or(std::vector<std::string>{});
    if (const Status added = field->add_peers(peers_, wanted); !added) return added;
    if (any_rung && !request_.peers) field->add_ceilings(!options_.rungs_named);  // a heat of their own, beside all
    all_right_ = all_right_ && field->all_right();
    for (const std::string& name : wanted) {
      if (takes_part(*field, name)) continue;
      return failure(ExitCode::cannot_run_here, "No peer {} takes part.\n  {}", name,
                     fmt::join(field->notes(), "\n  "));
    }
    for (const std::string& note : field->notes()) say_once(note);
    if (!any_rung || (request_.peers && !field->all_right())) {
      tell(shape);
      return {};
    }
    if (const Status known = versus_is_known(*field); !known) return known;
    return time(*field, *problem, title);
  }

  static bool takes_part(const Field& field, std::string_view name) {
    return std::ranges::find(field.entries(), name, &Entry::name) != field.entries().end();
  }

  Status versus_is_known(const Field& field) const {
    if (request_.versus == "fa2" || takes_part(field, request_.versus)) return {};
    std::vector<std::string_view> names;
    for (const Entry& entry : field.entries()) {
      if (entry.kind != "ceiling") names.push_back(entry.name);
    }
    return usage("--versus {}: nobody of that name takes part.\n  There are: {}", request_.versus,
                 fmt::join(names, ", "));
  }

  // Looks at each of the field, plans the heats and runs them, and the slowest apart.
  Status time(const Field& field, const Problem& problem, const std::string& title) {
    const RunFacts facts = run_facts(gpu_, machine_, problem, protocol_.regime);
    std::optional<Progress> progress(std::in_place, 1);
    const Machine machine = machine_.machine([&](std::string_view what, double seconds) {
      if (progress) progress->step(fmt::format("{}: {}{}", title, heat_, what), seconds);
    });
    const auto looks = first_look(field.contestants(), protocol_, machine);
    if (!looks) return passed_on(looks);
    const auto is_recorded = [&](const Entry& entry) {  // by this bench, when it was interrupted
      return std::ranges::any_of(resumed_, [&](const ResultRow& row) {
        return row.rung == entry.name && row.kind == entry.kind && row.same_measurement(facts) &&
               row.commit == facts.commit;
      });
    };
    const Schedule schedule = make_schedule(field.entries(), *looks, protocol_, request_.versus, is_recorded);
    for (size_t i = 0; i < looks->size(); ++i) {
      if ((*looks)[i]) continue;
      notes_.push_back(fmt::format("{}: not timed: {}", field.entries()[i].name, (*looks)[i].error().message));
      if (field.entries()[i].kind == "stage") all_right_ = false;
    }
    if (schedule.heats.empty()) {
      progress.reset();
      if (!resumed_.empty()) notes_.push_back(title + ": all of it is recorded already.");
      tell(problem.shape);
      return {};
    }
    const double seconds = schedule.seconds + (warmed_up_ ? 0 : protocol_.warm_up_s);
    fmt::print(stderr, "{}{}: {}; about {:.0f} min {:02.0f} s.\n",
               problems_ > 1 ? fmt::format("[{} of {}] ", problem_, problems_) : "", title,
               summary(schedule, protocol_), std::floor(seconds / 60), std::fmod(seconds, 60));
    progress.emplace(std::max(seconds, 1.0));
    if (!std::exchange(warmed_up_, true)) {
      if (const Status warm = warm_up(protocol_, machine); !warm) return warm;
    }
    if (const Status timed = run(schedule, field, machine, facts); !timed) return timed;
    progress.reset();
    tell(problem.shape);
    if (tables_ > 0 && !std::exchange(legend_, true)) fmt::print(out_, "{}", wrapped(LEGEND, out_));
    std::fflush(out_);
    return {};
  }

  Status run(const Schedule& schedule, const Field& field, const Machine& machine, const RunFacts& facts) {
    int number = 1;
    for (const ResultRow& row : resumed_) {
      if (row.same_measurement(facts)) number = std::max(number, row.heat + 1);
    }
    const std::span<const Entry> entries = field.entries();
    std::vector<HeatRun> runs;
    std::vector<std::optional<double>> rates(entries.size());
    Ratios ratios;
    for (const PlannedHeat& planned : schedule.heats) {
      const std::vector<size_t> who = planned.all();
      heat_ = planned.apart ? entries[who[0]].name + ", " : fmt::format("heat {}, ", number);
      auto timings = run_heat(chosen(field.contestants(), who), chosen(schedule.launch_ms, who),
                              planned.apart ? apart_protocol() : protocol_, machine);
      if (!timings) return passed_on(timings);
      const HeatRun& run = runs.emplace_back(HeatRun{
          .number = planned.apart ? 0 : number++, .own = planned.own, .all = who, .timings = std::move(*timings)});
      const Results results = evaluate(entries, run, facts, request_.versus);
      for (size_t i = 0; i < entries.size(); ++i) {
        const auto row = std::ranges::find(results.rows, entries[i].name, &ResultRow::rung);
        if (row != results.rows.end()) rates[i] = row->tflops;
      }
      ratios.insert(results.ratios.begin(), results.ratios.end());
      record(entries, run, facts, results);
      for (const std::string& note : of_the_card(run.timings)) notes_.push_back(note);
      const auto has_ratio = [](const ResultRow& row) { return row.vs_previous.has_value(); };
      if (request_.peers || std::ranges::any_of(results.rows, has_ratio)) {
        if (const auto note = unbalanced(run.timings, protocol_.regime)) notes_.push_back(*note);
      }
      tell(facts.shape);
      if (!written_) return written_;
    }
    if (options_.ablate) {
      const std::string tables = ablation_tables(entries, rates, ratios, columns_of(out_));
      if (!tables.empty()) fmt::print(out_, "\n{}", tables);
    }
    for (const std::string_view name : {std::string_view("fa2"), std::string_view("mma_sync")}) {
      if (const auto note = everywhere_note(entries, runs, name)) notes_.push_back(*note);
    }
    return {};
  }

  // A heat that is over: into the files, and on the screen. Its rows are kept only with their rounds, so that --resume
  // times again what could not be written.
  void record(std::span<const Entry> entries, const HeatRun& run, const RunFacts& facts, const Results& results) {
    all_right_ = all_right_ && results.ok;
    Status kept;
    if (!options_.rounds_csv.empty())
      kept = append_text(options_.rounds_csv, ROUNDS_HEADER, rounds_lines(entries, run, facts));
    if (kept && !options_.csv.empty() && !results.rows.empty())
      kept = append_csv(options_.csv, results.rows, rows_.size() == 0);
    if (!kept && written_) {
      written_ = failure(kept.error().code,
                         "{}\n  The heat above is on the screen alone. With room for it, the same command with --csv "
                         "FILE --resume goes on there.",
                         kept.error().message);
    }
    for (const ResultRow& row : results.rows) {
      Json entry = to_json(row);
      if (row.over && request_.versus != "fa2") {
        const Estimate& ratio = row.over->estimate;
        entry.set("over", {{"stage", request_.versus}, {"ratio", ratio.value}, {"lo", ratio.lo}, {"hi", ratio.hi}});
      }
      rows_.push_back(entry);
    }
    if (!results.rows.empty()) {
      fmt::print(out_, "{}{}", tables_++ ? "\n" : "",
                 results_table(results.rows, recorded_, false, columns_of(out_), request_.versus));
      if (request_.after) request_.after(run, results);
    }
    for (const std::string& note : results.notes) notes_.push_back(note);
    if (std::ranges::any_of(results.rows, [](const ResultRow& row) { return row.vs_fa2.has_value(); })) {
      say_once("fa2 is FlashAttention-2 as PyTorch ships it; built from its own source it can be faster.");
    }
  }

  // What held the clock back, and how long the card waited, because medians hide both.
  static std::vector<std::string> of_the_card(const HeatTimings& heat) {
    std::vector<double> clocks;
    for (const Timing& timing : heat.timings)
      clocks.insert(clocks.end(), timing.clock_mhz.begin(), timing.clock_mhz.end());
    std::vector<std::string> parts, notes;
    if (!clocks.empty()) {
      const auto [slow, fast] = std::ranges::minmax(clocks);
      parts.push_back(fmt::format("SM clock {:.0f} to {:.0f} MHz", slow, fast));
    }
    if (!heat.states.empty()) {
      uint64_t reasons = 0;
      double hottest = 0;
      for (const CardState& state : heat.states) {
        reasons |= state.throttle_reasons;
        hottest = std::max(hottest, state.temperature_c);
      }
      const std::string words = throttle_words(reasons);
      parts.push_back(fmt::format("up to {:.0f} C, slowed by {}", hottest, words.empty() ? "nothing" : words));
      if (too_hot(reasons)) {
        notes.push_back(
            "The card was too hot and slowed itself down: rates of this heat are not to be recorded. What is counted "
            "per clock (FLOP/clk/SM) still compares.");
      }
    }
    if (!heat.idle_ms.empty()) {
      parts.push_back(fmt::format("idle between groups {:.1f} ms at the median, {:.1f} ms at most",
                                  median(heat.idle_ms), std::ranges::max(heat.idle_ms)));
    }
    if (!parts.empty()) notes.insert(notes.begin(), fmt::format("{}.", fmt::join(parts, "; ")));
    return notes;
  }

  // Notes that concern the whole run are printed with the first table only.
  void say_once(const std::string& note) {
    if (said_.insert(note).second) notes_.push_back(note);
  }

  void tell(const Shape& shape) {
    for (const std::string& note : notes_) fmt::print(out_, "{}\n", note);
    if (rows_.size() == 0 && notes_.empty()) fmt::print(out_, "{}: nothing was timed.\n", to_string(shape));
    notes_.clear();
  }

  const Options& options_;
  const BenchRequest& request_;
  std::FILE* out_;
  const GpuInfo& gpu_;
  RealMachine machine_;
  const std::vector<ResultRow> recorded_ = recorded_results();
  std::vector<ResultRow> resumed_;  // what the file holds of an interrupted bench
  Protocol protocol_;
  PeerPool peers_;
  Json rows_ = Json::array();
  std::vector<std::string> notes_;
  std::set<std::string> said_;
  std::string heat_;  // which one runs, for the line of progress
  std::optional<Error> refusal_;
  Status written_;  // the first file that could not be
  bool all_right_ = true;
  bool legend_ = false, warmed_up_ = false;
  int tables_ = 0;
  size_t problem_ = 0, problems_ = 0;  // shapes times input sets
};

}  // namespace

Protocol protocol_of(const Options& options) {
  Protocol protocol = options.burst ? burst_protocol() : options.alone ? alone_protocol() : turns_protocol();
  if (options.rounds) protocol.rounds = *options.rounds;
  if (options.soak_seconds && !options.burst) protocol.soak_s = *options.soak_seconds, protocol.warm_up_s = 0;
  return protocol;
}

Result<ExitCode> bench(const Options& options, const GpuInfo& gpu, const BenchRequest& request) {
  return Bench(options, gpu, request).run();
}

Result<ExitCode> bench_verb(const Options& options) {
  const Result<GpuInfo> gpu = gpu_info();
  if (!gpu) return bench_without_gpu(options, gpu.error());
  if (const Status able = can_bench(options); !able) return passed_on(able);
  const InterruptGuard guard;
  BenchRequest request{.subjects = subjects_of(options), .versus = options.versus};
  std::ranges::stable_sort(request.subjects, {}, [](const Subject& subject) { return subject.rung->name; });
  return bench(options, *gpu, request);
}

}  // namespace ladder
