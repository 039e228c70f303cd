#include "harness/verbs/bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "harness/base/interrupt.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/terminal.hpp"
#include "harness/measure/field.hpp"
#include "harness/measure/results_table.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr int SWEEP_N[] = {512, 1024, 2048, 4096, 8192, 16384};

constexpr const char* LEGEND =
    "TFLOPS count 4*B*H*N^2*d per launch (half when causal); the write-up counts 1.2 % more at d=128. spread: p20 to "
    "p80 "
    "over the median.\nRatios are medians of per-round ratios of TFLOPS with their 95 % interval, above 1 is faster; "
    "same: "
    "the interval holds 1, or below 0.2 %.\n";

// Success when some stage can solve some shape, or why the first one cannot.
Status any_supported(const Options& options) {
  Status first;
  for (const Shape& shape : bench_shapes(options)) {
    for (const Stage* stage : options.stages) {
      for (const Variant& variant : stage->variants) {
        const Status able = supports(*stage, variant, shape);
        if (able) return {};
        if (first) first = able;
        if (!options.ablate) break;
      }
    }
  }
  return first;
}

// Everything that outlives a shape.
class Bench {
 public:
  Bench(const Options& options, GpuInfo gpu, std::vector<ResultRow> recorded)
      : options_(options),
        out_(table_stream(options)),
        gpu_(std::move(gpu)),
        nvml_(Nvml::open(gpu_.pci_bus_id)),
        recorded_(std::move(recorded)),
        protocol_(protocol_of(options)),
        peers_(peer_commands(options)) {
    std::stable_sort(stages_.begin(), stages_.end(), [](auto* a, auto* b) { return a->name < b->name; });
    if (!nvml_) say_once("No NVML here: clock, power and FLOP per clock stay empty.");
    if (!options.burst && protocol_.rounds < sustained_protocol().rounds) {
      say_once(fmt::format("Only {} rounds: intervals from fewer than 20 are not to be relied on.", protocol_.rounds));
    }
  }

  Result<ExitCode> run() {
    const std::vector<InputKind> kinds = options_.inputs.empty() ? std::vector{InputKind::normal} : options_.inputs;
    Status status;
    for (const Shape& shape : bench_shapes(options_)) {
      for (const InputKind kind : kinds) {
        if (status) status = run_shape(shape, kind);
      }
    }
    const bool stopped = !status && status.error().code == ExitCode::interrupted;
    if (!options_.json.empty()) keep_first(write_json(options_.json, rows_));
    if (stopped) {
      fmt::print(stderr, "{}\n", status.error().message);
      if (!write_error_) return ExitCode::interrupted;
    }
    if (!status && !stopped) return tl::make_unexpected(status.error());
    if (write_error_) return tl::make_unexpected(*write_error_);
    if (rows_.empty() && refusal_) return tl::make_unexpected(*refusal_);
    return all_right_ ? ExitCode::done : ExitCode::check_failed;
  }

 private:
  static std::vector<PeerCommand> peer_commands(const Options& options) {
    std::vector<PeerCommand> commands;
    for (const std::string& line : options.peers) commands.push_back(peer_from_option(line));
    if (options.no_peers) return commands;
    for (PeerCommand& command : find_peers(peers_directory())) commands.push_back(std::move(command));
    return commands;
  }

  // The field of one shape. Without room for what some stages need as a workspace, the others run without them.
  Result<Field> make_field(const Shape& shape, InputKind kind) {
    uint64_t workspace = 0;
    for (const Stage* stage : stages_) workspace = std::max(workspace, stage->workspace_at(shape));
    Result<Field> field = Field::create(gpu_, shape, kind, options_.seed, workspace);
    std::optional<Error> no_room;
    if (!field && workspace > 0 && field.error().code == ExitCode::cannot_run_here) {
      no_room = field.error();
      field = Field::create(gpu_, shape, kind, options_.seed, 0);
    }
    if (!field) return field;
    for (const Stage* stage : stages_) {
      if (no_room && stage->workspace_at(shape) > 0) {
        say_once(fmt::format("{}: not timed: {}", stage->name, no_room->message));
        if (!refusal_) refusal_ = no_room;
        continue;
      }
      for (const Variant& variant : stage->variants) {
        if (interrupted()) break;
        field->add(*stage, variant);
        if (!options_.ablate) break;
      }
    }
    return field;
  }

  Status run_shape(const Shape& shape, InputKind kind) {
    const std::string title = fmt::format("{}, {}", to_string(shape), to_string(kind));
    {
      Progress progress(1);
      progress.step(title + ": inputs, reference, check", 0);
      peers_.ask_to_prepare(shape, kind, options_.seed);
    }
    Result<Field> field = make_field(shape, kind);
    if (!field) return tl::make_unexpected(field.error());
    if (interrupted()) return interruption();  // before all stages were checked
    const bool any_stage = !field->entries().empty();
    if (const Status added = field->add_peers(peers_); !added) return added;
    if (any_stage) field->add_mma_ceiling();
    if (!refusal_) refusal_ = field->refusal();
    all_right_ = all_right_ && field->all_right();
    for (const std::string& note : field->notes()) say_once(note);
    if (!any_stage) {
      tell(shape);
      return {};
    }

    const Machine machine = real_machine(nvml_ ? &*nvml_ : nullptr, show_progress(title));
    const auto timings = run_rounds(field->contestants(), protocol_, machine);
    progress_.reset();
    if (!timings) return tl::make_unexpected(timings.error());
    const RunFacts facts = run_facts(gpu_, nvml_, shape, kind, protocol_.regime);
    const Results results = evaluate(field->entries(), *timings, facts);
    all_right_ = all_right_ && results.ok;
    if (!options_.csv.empty()) {
      keep_first(append_csv(options_.csv, results.rows, rows_.empty()));
    }
    rows_.insert(rows_.end(), results.rows.begin(), results.rows.end());

    fmt::print(out_, "{}{}", tables_++ ? "\n" : "", results_table(results.rows, recorded_, false, columns_of(out_)));
    if (options_.ablate) fmt::print(out_, "\n{}", ablation_tables(field->entries(), *timings, columns_of(out_)));
    for (const std::string& note : results.notes) notes_.push_back(note);
    if (const auto note = unbalanced(*timings, protocol_.regime)) say_once(*note);
    if (std::any_of(results.rows.begin(), results.rows.end(), [](const ResultRow& row) { return row.vs_fa2; })) {
      say_once("fa2 is FlashAttention-2 as PyTorch ships it; built from its own source it can be faster.");
    }
    for (const std::string& note : throttling(field->entries(), *timings)) notes_.push_back(note);
    tell(shape);
    if (tables_ == 1) fmt::print(out_, "{}", wrapped(LEGEND, out_));
    std::fflush(out_);
    return {};
  }

  // One line on what held the clock back, because medians hide it.
  static std::vector<std::string> throttling(std::span<const Entry> entries, std::span<const Timing> timings) {
    std::vector<CardState> all;
    uint64_t reasons = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      for (const CardState& state : timings[i].states) all.push_back(state), reasons |= state.throttle_reasons;
    }
    if (all.empty()) return {};
    const auto [slow, fast] = std::minmax_element(
        all.begin(), all.end(), [](const CardState& a, const CardState& b) { return a.clock_mhz < b.clock_mhz; });
    const auto hot = std::max_element(all.begin(), all.end(), [](const CardState& a, const CardState& b) {
      return a.temperature_c < b.temperature_c;
    });
    const std::string words = throttle_words(reasons);
    return {fmt::format("SM clock {:.0f} to {:.0f} MHz over all rounds, up to {:.0f} C; slowed by: {}.",
                        slow->clock_mhz, fast->clock_mhz, hot->temperature_c, words.empty() ? "nothing" : words)};
  }

  std::function<void(std::string_view, int, int)> show_progress(const std::string& title) {
    return [this, title](std::string_view what, int done, int total) {
      if (!progress_ || what != progress_of_) {
        progress_ = std::make_unique<Progress>(std::max(total, 1));
        progress_of_ = what;
      }
      progress_->step(fmt::format("{}: {}{}", title, what, total > 1 ? fmt::format(" {} of {}", done + 1, total) : ""),
                      1);
    };
  }

  // Notes that concern the whole run are printed with the first table only.
  void say_once(const std::string& note) {
    if (said_.insert(note).second) notes_.push_back(note);
  }

  void tell(const Shape& shape) {
    for (const std::string& note : notes_) fmt::print(out_, "{}\n", note);
    if (rows_.empty() && notes_.empty()) fmt::print(out_, "{}: nothing was timed.\n", to_string(shape));
    notes_.clear();
  }

  void keep_first(const Status& status) {
    if (status || write_error_) return;
    write_error_ = status.error();
  }

  const Options& options_;
  std::FILE* out_;
  GpuInfo gpu_;
  std::optional<Nvml> nvml_;
  std::vector<ResultRow> recorded_;
  Protocol protocol_;
  PeerPool peers_;
  std::vector<const Stage*> stages_ = options_.stages;
  std::vector<ResultRow> rows_;
  std::vector<std::string> notes_;
  std::set<std::string> said_;
  std::unique_ptr<Progress> progress_;
  std::string progress_of_;
  std::optional<Error> refusal_, write_error_;
  bool all_right_ = true;
  int tables_ = 0;
};

}  // namespace

Protocol protocol_of(const Options& options) {
  Protocol protocol = options.burst ? burst_protocol() : sustained_protocol();
  if (options.rounds) protocol.rounds = *options.rounds;
  if (options.soak_seconds && !options.burst) protocol.soak_s = *options.soak_seconds;
  return protocol;
}

fs::path recorded_results_directory() {
  return fs::path(LADDER_SOURCE_DIR) / "docs" / "results";
}
fs::path peers_directory() {
  return fs::path(LADDER_SOURCE_DIR) / "harness" / "peers";
}

std::vector<Shape> bench_shapes(const Options& options) {
  std::vector<Shape> shapes;
  if (options.sweep) {
    for (const int n : SWEEP_N) {
      shapes.push_back({.batch = SWEEP_TOKENS / n,
                        .heads = options.heads.value_or(HEADLINE.heads),
                        .n = n,
                        .d = options.d.value_or(HEADLINE.d),
                        .causal = options.causal});
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
      const bool asked =
          row.kind != "stage" || std::any_of(options.stages.begin(), options.stages.end(), [&](const Stage* stage) {
            return row.stage == stage->name || (options.ablate && row.stage.starts_with(stage->name));
          });
      const bool regime = row.regime == to_string(options.burst ? Regime::burst : Regime::sustained);
      if (row.shape == shape && row.source == "measured" && asked && regime) rows.push_back(row);
    }
  }
  // Peers and ceilings say something beside a stage of their own run.
  std::vector<std::pair<std::string, std::string>> runs;
  for (const ResultRow& row : rows) {
    if (row.kind == "stage") runs.emplace_back(row.gpu, row.inputs);
  }
  std::erase_if(rows, [&](const ResultRow& row) {
    return std::find(runs.begin(), runs.end(), std::pair(row.gpu, row.inputs)) == runs.end();
  });
  if (rows.empty()) {
    const bool one = options.stages.size() == 1;
    return fmt::format("docs/results has no recorded figures {}for {}{}.\n",
                       one ? fmt::format("of {} ", options.stages.front()->name) : "", to_string(shapes.front()),
                       shapes.size() > 1 ? " and the other shapes" : "");
  }
  return results_table(rows, {}, true, columns) + (columns > 0 ? wrapped(LEGEND, columns) : LEGEND);
}

Result<ExitCode> bench_verb(const Options& options) {
  if (options.on == Where::cpu) {
    return failure(ExitCode::usage,
                   "bench measures time, and the emulator counts events instead.\n"
                   "  Here:  ./ladder check --on cpu      ./ladder explain 03");
  }
  for (const Status& able : {any_supported(options), can_append_csv(options.csv)}) {
    if (!able) return tl::make_unexpected(able.error());
  }
  const Result<std::vector<ResultRow>> recorded = recorded_results(recorded_results_directory());
  if (!recorded) fmt::print(stderr, "{}\n", recorded.error().message);
  Result<GpuInfo> gpu = gpu_info();
  if (!gpu) {
    if (recorded)
      fmt::print(table_stream(options), "{}\n", recorded_table(*recorded, options, columns_of(table_stream(options))));
    return failure(ExitCode::cannot_run_here,
                   fmt::format("bench needs a GPU. {}\n"
                               "  Here:  ./ladder check              the same kernels, emulated\n"
                               "         ./ladder compare 02 03      two kernels' counters, side by side",
                               gpu.error().message.substr(0, gpu.error().message.find('\n'))));
  }
  const InterruptGuard guard;
  return Bench(options, std::move(*gpu), recorded.value_or(std::vector<ResultRow>{})).run();
}

}  // namespace ladder
