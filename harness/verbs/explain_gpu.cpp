#include "harness/verbs/verbs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "harness/base/table.hpp"
#include "harness/devices/capacity.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/json.hpp"
#include "harness/verify/check.hpp"

namespace ladder {
namespace {

Status can_run(const Rung& rung, const Shape& shape, const GpuInfo& gpu) {
  const Variant& variant = rung.variants.front();
  if (auto status = supports(rung, variant, shape); !status) return status;
  if (auto status = runs_on(rung, variant, shape, gpu); !status) return status;
  return fits_gpu_memory(shape, variant.workspace_at(shape), gpu);
}

// What the card has less, by its own word (cudaMemGetInfo), while the rung's buffers stand and after its kernels have
// run. No rung frees anything in between, so this is the peak.
Result<size_t> launch(const Rung& rung, const Problem& problem, CheckResult& checked) {
  const auto before = gpu_info();
  if (!before) return passed_on(before);
  auto on_gpu = GpuProblem::create(problem.shape, problem.inputs, rung.workspace_at(problem.shape));
  if (!on_gpu) return passed_on(on_gpu);
  checked = check_on_gpu(rung, rung.variants.front(), problem, **on_gpu, {});
  const auto after = gpu_info();
  if (!after) return passed_on(after);
  return before->memory_free - std::min(before->memory_free, after->memory_free);
}

}  // namespace

Result<ExitCode> explain_on_gpu(const Options& options) {
  const auto gpu = gpu_info();
  if (!gpu) return passed_on(gpu);
  Table table({"<stage", "<shape", "device memory", "?bytes", "<verdict"});
  Json rows = Json::array();
  std::vector<std::string> left_out;
  bool ok = true;
  // The first thing that a process allocates on a GPU brings the driver's own memory with it.
  if (auto first = GpuProblem::create({.n = 16}, make_inputs(InputKind::normal, {.n = 16}, 1), 0); !first) {
    return passed_on(first);
  }
  for (const Shape& shape : shapes_for(options, GPU_COUNTED_SHAPE)) {
    if (auto status = fits_host_memory(shape, 0); !status) return passed_on(status);
    std::optional<Problem> problem;
    for (const Rung* rung : options.rungs) {
      if (auto status = can_run(*rung, shape, *gpu); !status) {
        left_out.push_back(status.error().message);
        if (options.rungs.size() == 1 && options.n.size() < 2) return passed_on(status);
        continue;
      }
      if (!problem) problem = make_problem(shape, InputKind::normal, options.seed);
      CheckResult checked;
      const auto memory_used = launch(*rung, *problem, checked);
      if (!memory_used) return passed_on(memory_used);
      table.add({rung->name, to_string(shape), bytes_text(double(*memory_used)), grouped(*memory_used),
                 verdict_word(checked.ok, table_stream(options))});
      for (const Failure& failure : checked.failures) fmt::print(stderr, "{}\n", failure.message);
      ok = ok && checked.ok;
      Json json = to_json(checked);
      json.set("gpu", gpu->name);
      json.set("cuda.memory_used_bytes", *memory_used);
      rows.push_back(json);
    }
  }
  if (rows.size() == 0) return failure(ExitCode::cannot_run_here, "{}", fmt::join(left_out, "\n"));
  std::FILE* out = table_stream(options);
  fmt::print(out, "{}{}: one launch each, and what it takes of the card's memory.\n", table.text(out), gpu->name);
  for (const std::string& reason : left_out) fmt::print(out, "Left out: {}\n", reason);
  if (auto status = write_document(options.json, rows); !status) return passed_on(status);
  return ok ? ExitCode::done : ExitCode::check_failed;
}

}  // namespace ladder
