#include "harness/verbs/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "harness/base/interrupt.hpp"
#include "harness/base/process.hpp"
#include "harness/base/progress.hpp"
#include "harness/base/table.hpp"
#include "harness/base/terminal.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/measure/results_table.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/bench.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verbs/verbs.hpp"
#include "harness/verify/check.hpp"

namespace ladder {
namespace {

// A variant of a rung, or a peer.
struct Side {
  const Rung* rung = nullptr;
  const Variant* variant = nullptr;
  std::string peer = {};
  std::string name() const { return rung ? row_name(*rung, *variant) : peer; }
};

std::string kernel_of(const Rung& rung) {
  return fmt::format("{}/{}/kernel.cuh", LADDER_SOURCE_DIR, rung.directory);
}

// Three columns in, for what belongs to the line above it.
std::string indented(std::string_view text, std::FILE* out) {
  const size_t columns = columns_of(out);
  std::string lines = columns > 20 ? wrapped(text, columns - 3) : std::string(text);
  for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos;) lines.insert(++at, "   ");
  return "   " + lines;
}

class SideBySide {
 public:
  SideBySide(const Options& options, Side a, Side b)
      : options_(options), out_(table_stream(options)), sides_{std::move(a), std::move(b)} {}

  Result<ExitCode> run() {
    const Result<GpuInfo> gpu = options_.on == Where::cpu
                                    ? failure(ExitCode::cannot_run_here, "--on cpu asks for the emulator alone.")
                                    : gpu_info();
    const std::string cause = gpu ? "" : gpu.error().first_line();
    if (!gpu && !options_.csv.empty()) {
      return failure(ExitCode::cannot_run_here,
                     "--csv holds timings, and nothing is timed here. {}\n"
                     "  Here:  --json FILE    what the emulator counted for both",
                     cause);
    }
    if (sides_[0].rung && sides_[1].rung) {
      print_source();
      if (const Status emulated = emulate(); !emulated) return passed_on(emulated);
    }
    if (interrupted()) return ExitCode::interrupted;
    if (gpu) {
      fmt::print(out_, "\n");
      const Result<ExitCode> timed = time(*gpu);
      if (!timed || *timed != ExitCode::done) return timed;
    } else if (options_.on == Where::gpu) {
      return passed_on(gpu);
    } else {
      if (options_.on == Where::automatic) print_recorded(cause);
      const Json rows = Json::array(emulated_, [](const CheckResult& result) { return to_json(result); });
      if (const Status written = write_document(options_.json, rows); !written) return passed_on(written);
    }
    return all_right_ ? ExitCode::done : ExitCode::check_failed;
  }

 private:
  void print_source() const {
    for (int i = 0; i < 2; ++i) {
      fmt::print(out_, "{}  {} ({})\n{}\n", i == 0 ? "A" : "B", sides_[i].rung->name, sides_[i].variant->label,
                 indented(sides_[i].rung->idea, out_));
    }
    if (sides_[0].rung == sides_[1].rung) {
      fmt::print(out_, "The same kernel.cuh with other parameters.\n");
      return;
    }
    const std::string after = kernel_of(*sides_[1].rung);
    const std::optional<int> changed = changed_lines(kernel_of(*sides_[0].rung), after);
    if (!changed) return;
    std::ifstream text(after);
    fmt::print(out_, "kernel.cuh: {} changed lines of {}.\n", *changed,
               std::count(std::istreambuf_iterator<char>(text), {}, '\n'));
  }

  // One head is enough for counters; what is too long for the emulator runs at its default length.
  Shape emulator_shape() const {
    constexpr int DEFAULT_N = 512, LONGEST_N = 1024;
    Shape shape = shapes_for(options_, {.batch = 1, .heads = 1, .n = DEFAULT_N, .d = 128}).front();
    if (options_.on == Where::cpu) return shape;
    shape.batch = shape.heads = 1;
    if (shape.n > LONGEST_N) shape.n = DEFAULT_N;
    return shape;
  }

  Status emulate() {
    const Shape shape = emulator_shape();
    for (const Side& side : sides_) {
      if (const Status able = supports(*side.rung, *side.variant, shape); !able) return able;
      if (const Status fits = fits_host_memory(shape, side.variant->workspace_at(shape)); !fits) return fits;
    }
    const InputKind kind = options_.inputs.empty() ? InputKind::normal : options_.inputs.front();
    const Problem problem = make_problem(shape, kind, options_.seed);
    {
      Progress progress(2);
      for (const Side& side : sides_) {
        if (interrupted()) return {};
        progress.step(side.name() + ", emulated", 1);
        emulated_.push_back(check_on_emulator(*side.rung, *side.variant, problem));
      }
    }
    fmt::print(out_, "\nOn the emulator, {}, {} inputs\n", to_string(shape), to_string(kind));
    // Which variants they are stands above the table, and two long names would not fit beside each other.
    Table table({"<", fmt::format("A {}", sides_[0].rung->name), fmt::format("B {}", sides_[1].rung->name), "B / A"});
    const CheckResult &a = emulated_[0], &b = emulated_[1];
    table.add({"verdict", verdict_word(a.ok, out_), verdict_word(b.ok, out_), ""});
    table.add({"max error", fmt::format("{:.1e}", a.max_err), fmt::format("{:.1e}", b.max_err), ""});
    table.add({"ldmatrix conflict ways", fmt::format("{:.2f}", ldmatrix_ways(*a.counters)),
               fmt::format("{:.2f}", ldmatrix_ways(*b.counters)), ""});
    for (const emulator::Count& count : emulator::COUNTS) {
      const uint64_t x = (*a.counters).*count.value, y = (*b.counters).*count.value;
      const std::string ratio = x > 0 ? fmt::format("{:.2f}", double(y) / double(x)) : "-";
      if (x > 0 || y > 0) table.add({count.words, grouped(x), grouped(y), ratio});
    }
    fmt::print(out_, "{}", table.text(out_));
    for (int i = 0; i < 2; ++i) {
      all_right_ = all_right_ && emulated_[i].ok;
      for (const Failure& failure : emulated_[i].failures) {
        fmt::print(out_, "{}: {}: {}\n", sides_[i].name(), to_string(failure.kind), failure.message);
      }
    }
    return {};
  }

  // A bench of the two.
  Result<ExitCode> time(const GpuInfo& gpu) {
    BenchRequest request{.subjects = {}, .versus = sides_[0].name(), .peers = std::vector<std::string>()};
    for (const Side& side : sides_) {
      if (side.rung) request.subjects.push_back({side.rung, side.variant, side.name()});
      if (!side.rung) request.peers->push_back(side.peer);
    }
    request.after = [this](const HeatRun& heat, const Results& results) {
      print_resources(results.rows.front().shape.n);
      const auto b = std::ranges::find(results.rows, sides_[1].name(), &ResultRow::rung);
      if (b == results.rows.end() || !b->over) return;
      const Verdict word = verdicts(std::span(&*b->over, 1)).front();
      const std::string is = word == Verdict::none   ? "no verdict"
                             : word == Verdict::same ? "B is as fast as A"
                                                     : fmt::format("B is {} than A", to_string(word));
      const Regime regime = regime_of(options_);
      fmt::print(out_, "B / A = {}: {}, from {} rounds, {}.\n", to_string(b->over->estimate), is,
                 heat.timings.timings[0].ms.size(), regime == Regime::turns ? "in turns, ABBA" : to_string(regime));
    };
    return bench(options_, gpu, request);
  }

  void print_resources(int n) const {
    Table table({"<", "registers", "spill bytes", "?shared KiB", "blocks per SM"});
    for (const Side& side : sides_) {
      if (!side.rung) continue;
      const Result<KernelResources> resources = gpu_resources(*side.variant, n);
      if (!resources) continue;
      table.add({side.name(), std::to_string(resources->registers), std::to_string(resources->local_bytes),
                 fmt::format("{:.0f}", double(side.variant->smem_at(n)) / 1024.0),
                 std::to_string(resources->blocks_per_sm)});
    }
    fmt::print(out_, "{}", table.text(out_));
  }

  void print_recorded(const std::string& cause) const {
    const Shape shape = bench_shapes(options_).front();
    const std::string ratio = recorded_speedup(recorded_results(), sides_[0].name(), sides_[1].name(), shape);
    print_wrapped(out_, "\nNot timed. " + cause);
    fmt::print(out_, "{}\n",
               ratio.empty() ? fmt::format("docs/results has no figures for both at {}.", to_string(shape))
                             : "B / A = " + ratio);
  }

  const Options& options_;
  std::FILE* out_;
  Side sides_[2];
  std::vector<CheckResult> emulated_;
  bool all_right_ = true;
};

}  // namespace

Result<const Variant*> find_variant(const Rung& rung, std::string_view label) {
  if (label.empty()) return &rung.variants.front();
  std::vector<const Variant*> matches;
  std::vector<std::string> labels;
  for (const Variant& variant : rung.variants) {
    if (variant.label == label) return &variant;
    if (variant.label.starts_with(label)) matches.push_back(&variant);
    labels.push_back(variant.label);
  }
  if (matches.size() == 1) return matches.front();
  return usage("{} has {} variant '{}'.\n  There are: {}", rung.name, matches.empty() ? "no" : "more than one", label,
               fmt::join(labels, "; "));
}

std::optional<int> changed_lines(const std::string& before, const std::string& after) {
  std::string command = "diff --minimal --unchanged-group-format=";
  for (const char* group : {"old", "new", "changed"}) command += fmt::format(" --{}-group-format='%dn %dN '", group);
  command += fmt::format(" {} {} 2>/dev/null", shell_word(before), shell_word(after));
  std::FILE* const diff = ::popen(command.c_str(), "r");
  int total = 0, removed = 0, added = 0;
  while (diff != nullptr && std::fscanf(diff, "%d %d", &removed, &added) == 2) total += std::max(removed, added);
  const int status = diff != nullptr ? ::pclose(diff) : -1;
  return WIFEXITED(status) && WEXITSTATUS(status) <= 1 ? std::optional(total) : std::nullopt;
}

std::string recorded_speedup(std::span<const ResultRow> recorded, std::string_view a, std::string_view b,
                             const Shape& shape) {
  const auto matches = [&](const ResultRow& row, std::string_view name) {
    return row.rung == name && row.is_record_of(shape);
  };
  for (const ResultRow& row_a : recorded) {
    for (const ResultRow& row_b : recorded) {
      if (!matches(row_a, a) || !matches(row_b, b) || !row_a.same_measurement(row_b)) continue;
      const std::string ratio = row_b.vs_previous && row_b.previous == row_a.rung
                                    ? to_string(*row_b.vs_previous)
                                    : fmt::format("{:.3f} of the medians", row_b.tflops / row_a.tflops);
      return fmt::format("{}, RECORDED on {}, {}, at {}", ratio, row_b.gpu, row_b.date, to_string(shape));
    }
  }
  return "";
}

Result<ExitCode> compare_verb(const Options& options) {
  Side sides[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    if (!options.rungs[i]) {
      sides[i].peer = options.variants[i];
      continue;
    }
    const Result<const Variant*> variant = find_variant(*options.rungs[i], options.variants[i]);
    if (!variant) return passed_on(variant);
    sides[i] = {options.rungs[i], *variant};
  }
  if (sides[0].name() == sides[1].name()) {
    return usage("compare takes two different kernels; both are {}.", sides[0].name());
  }
  if (const Status able = can_append_csv(options.csv); !able) return passed_on(able);
  const InterruptGuard guard;
  return SideBySide(options, std::move(sides[0]), std::move(sides[1])).run();
}

}  // namespace ladder
