#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "harness/base/progress.hpp"
#include "harness/base/table.hpp"
#include "harness/base/terminal.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/measure/csv.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verify/check.hpp"

namespace ladder {
namespace {

// A quarter of the work that `explain` counts at, which is most of a scalar rung's time.
constexpr Shape COUNTED_SHAPE{.batch = 1, .heads = 1, .n = EMULATOR_SHAPE.n / 2, .d = EMULATOR_SHAPE.d};

// Recorded figures of one card: the one in this machine if it has been recorded, otherwise the latest.
struct Recorded {
  std::string gpu, date;
  std::vector<ResultRow> rows;

  const ResultRow* find(std::string_view rung) const {
    const auto row = std::ranges::find(rows, rung, &ResultRow::rung);
    return row == rows.end() ? nullptr : &*row;
  }
};

Recorded read_recorded(const Result<GpuInfo>& gpu, const Shape& headline) {
  std::vector<ResultRow> rows = recorded_results();
  std::erase_if(rows, [&](const ResultRow& row) { return !row.is_record_of(headline); });
  Recorded recorded;
  if (rows.empty()) return recorded;
  const bool here = gpu && std::ranges::find(rows, gpu->name, &ResultRow::gpu) != rows.end();
  recorded.gpu = here ? gpu->name : std::ranges::max_element(rows, {}, &ResultRow::date)->gpu;
  std::erase_if(rows, [&](const ResultRow& row) { return row.gpu != recorded.gpu; });
  recorded.date = std::ranges::max_element(rows, {}, &ResultRow::date)->date;
  recorded.rows = std::move(rows);
  return recorded;
}

void print_machine(std::FILE* out, const Result<GpuInfo>& gpu) {
  print_wrapped(out, gpu ? fmt::format("GPU       {} (sm_{}, {} SMs, {} of {} free), driver {}, CUDA {}", gpu->name,
                                       gpu->sm, gpu->processors, bytes_text(double(gpu->memory_free)),
                                       bytes_text(double(gpu->memory_total)), gpu->driver, gpu->cuda)
                         : fmt::format("GPU       none in use. {}", gpu.error().first_line()));
#ifdef LADDER_HAS_CUDA
  fmt::print(out, "Build     emulator and GPU (nvcc)\n");
#else
  fmt::print(out, "Build     emulator only, without nvcc\n");
#endif
  fmt::print(out, "CPU       {} cores, {} of memory available\n\n", std::thread::hardware_concurrency(),
             bytes_text(double(host_memory_available())));
}

}  // namespace

Result<ExitCode> overview_verb(const Options& options) {
  std::FILE* out = table_stream(options);
  const Result<GpuInfo> gpu = gpu_info();
  print_machine(out, gpu);
  const auto is_shown = [&](const Rung* rung) { return options.all || rung->role == Role::line; };
  Table ideas({"<stage", "beside", "~idea"});
  for (const Rung* rung : options.rungs) {
    if (!is_shown(rung)) continue;
    const auto hang = std::ranges::count_if(
        options.rungs, [&](const Rung* other) { return other != rung && &of_line(*other) == rung; });
    ideas.add({rung->name, hang > 0 ? fmt::format("+{}", hang) : "", rung->idea});
  }
  fmt::print(out, "{}\n", ideas.text(out));

  Shape headline = HEADLINE;
  headline.causal = options.causal;
  headline = with_problem(options, headline);
  const auto recorded = read_recorded(gpu, headline);
  const Shape shape = shapes_for(options, COUNTED_SHAPE).front();
  for (const Rung* rung : options.rungs) {
    const Spec own = shapes_for(options, COUNTED_SHAPE, &rung->variants.front().accepts).front();
    if (auto status = supports(*rung, rung->variants.front(), own); !status) return passed_on(status);
    if (auto status = fits_host_memory(own, rung->workspace_at(own)); !status) return passed_on(status);
  }

  Table table({"<stage", "<verdict", "max error", "conflicts", "wavefronts", "?global read", "??mma", "??ldmatrix",
               "??barriers", "x fa2*"});
  std::vector<std::string> failures;
  size_t beside = 0;  // right, and not in the table
  {
    Progress progress(double(options.rungs.size()));
    std::optional<Problem> problem;  // of the rungs of a type
    for (const Rung* rung : options.rungs) {
      progress.step(fmt::format("{}, emulated", rung->name), 1);
      const Spec own = shapes_for(options, COUNTED_SHAPE, &rung->variants.front().accepts).front();
      if (!problem || problem->shape != own) problem = make_problem(own, InputKind::normal, options.seed);
      const CheckResult result = check_on_emulator(*rung, rung->variants.front(), *problem);
      if (!is_shown(rung) && result.ok) {
        ++beside;
        continue;
      }
      const emulator::Counters& counters = *result.counters;
      const double ways = ldmatrix_ways(counters);
      const ResultRow* row = recorded.find(rung->name);
      table.add({rung->name, verdict_word(result.ok, out), fmt::format("{:.1e}", result.max_err),
                 ways > 0 ? fmt::format("{:.2g}-way", ways) : "-", grouped(counters.smem_wavefronts),
                 bytes_text(double(counters.gmem_bytes_read)), grouped(counters.mma), grouped(counters.ldmatrix),
                 grouped(counters.barriers), row && row->vs_fa2 ? fmt::format("{:.2f}", row->vs_fa2->value) : "-"});
      for (const Failure& failure : result.failures) {
        failures.push_back(fmt::format("{}: {}", rung->name, failure.message));
      }
    }
  }
  fmt::print(out, "{}", table.text(out));
  if (beside > 0) {
    print_wrapped(
        out, fmt::format(
                 "{} more are right, which hang beside these: ./ladder list names them, ./ladder --all has their rows.",
                 beside));
  }
  print_wrapped(out,
                fmt::format("Counted here, on the emulator: {}, normal inputs. Conflicts: of ldmatrix; 1-way is none.",
                            to_string(shape)));
  if (!weaker_checks().empty()) print_wrapped(out, std::string(weaker_checks()));
  if (recorded.rows.empty()) {
    fmt::print(out, "* No GPU's results are recorded in docs/results/ yet.\n");
  } else {
    print_wrapped(
        out,
        fmt::format(
            "* Times FlashAttention-2's rate in the same rounds; recorded, not measured now: {}, {}, {}, in turns.",
            recorded.gpu, recorded.date, to_string(headline)));
  }
  for (const std::string& failure : failures) fmt::print(out, "WRONG  {}\n", failure);

  fmt::print(out,
             "\nNext\n"
             "  ./ladder explain 01        what it does, predicted against counted, by line\n"
             "  ./ladder check             all input sets and properties, every stage\n");
  if (gpu) {
    fmt::print(out,
               "  ./ladder bench             TFLOPS on this {}\n"
               "  ./ladder compare 02 03     what one idea is worth\n",
               gpu->name);
  } else {
    fmt::print(out, "  on a machine with a GPU:   ./ladder bench, ./ladder compare 02 03\n");
  }
  return failures.empty() ? ExitCode::done : ExitCode::check_failed;
}

}  // namespace ladder
