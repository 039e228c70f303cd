#include "harness/devices/capacity.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/devices/guarded.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

constexpr double GIB = 1024.0 * 1024.0 * 1024.0;

// Doubles, so that no shape a user may ask for overflows.
double tensor_bytes(const Shape& shape) {
  return double(shape.batch_heads()) * shape.n * shape.d * sizeof(f16);
}
double score_bytes(const Shape& shape) {
  return double(shape.batch_heads()) * shape.n * shape.n * sizeof(float);
}

Status fits(double needed, double available, const Shape& shape, bool with_scores, const std::string& where) {
  if (needed <= available) return {};
  return failure(
      ExitCode::cannot_run_here,
      fmt::format(
          "{} needs {:.1f} GiB of {}{}; {:.1f} GiB are free.\n"
          "  Smaller:  --n, --batch and --heads",
          to_string(shape), needed / GIB, where,
          with_scores ? fmt::format(", {:.1f} of them for the n x n scores of 00_naive", score_bytes(shape) / GIB) : "",
          available / GIB));
}

}  // namespace

Status runs_on(const Stage& stage, const Variant& variant, const Shape& shape, const GpuInfo& gpu) {
  const std::string number(stage.name.substr(0, stage.name.find('_')));
  const std::string here = fmt::format("\n  Here:  ./ladder check {} --on cpu      the same kernel, emulated", number);
  if (gpu.sm < stage.min_sm) {
    return failure(ExitCode::cannot_run_here,
                   fmt::format("{} needs sm_{} or newer ({}); this is a {} (sm_{}).{}", stage.name, stage.min_sm,
                               stage.needs, gpu.name, gpu.sm, here));
  }
  if (auto status = fits_shared_memory(stage, variant, shape.n, gpu.smem_per_block, "this " + gpu.name); !status) {
    status.error().message += here;
    return status;
  }
  if (variant.on_gpu == nullptr) {
    return failure(ExitCode::cannot_run_here, fmt::format("{} ({}) was not compiled for the GPU in this build.{}",
                                                          stage.name, variant.label, here));
  }
  return {};
}

size_t gpu_bytes_needed(const Shape& shape, bool with_scores, int more_heads, int outputs) {
  const double head_bytes = double(shape.n) * shape.d * sizeof(f16);
  const double output_bytes = tensor_bytes(shape) + double(shape.batch_heads()) * shape.n * sizeof(float);
  const double bytes = 3 * (tensor_bytes(shape) + more_heads * head_bytes) + outputs * output_bytes +
                       (with_scores ? score_bytes(shape) : 0) + (8 + 4 * outputs) * GUARD_BYTES;
  return static_cast<size_t>(std::min(bytes, 1e18));
}

Status fits_gpu_memory(const Shape& shape, bool with_scores, const GpuInfo& gpu) {
  return fits(double(gpu_bytes_needed(shape, with_scores)), double(gpu.memory_free), shape, with_scores,
              fmt::format("the {}'s memory", gpu.name));
}

Status fits_host_memory(const Shape& shape, bool with_scores) {
  // Q, K, V and O once for the harness and once for the kernel, plus the reference.
  const double needed = 8 * tensor_bytes(shape) + (with_scores ? score_bytes(shape) : 0) + 64e6;
  return fits(needed, double(host_memory_available()), shape, with_scores, "host memory");
}

size_t host_memory_available() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    meminfo.ignore(256, '\n');
  }
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_bytes > 0 ? size_t(pages) * size_t(page_bytes) : 0;
}

}  // namespace ladder
