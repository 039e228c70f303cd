#include "harness/devices/capacity.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/devices/guarded.hpp"
#include "harness/problem/formula.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

constexpr double GIB = 1024.0 * 1024.0 * 1024.0;

Status fits(double needed, double available, const Shape& shape, uint64_t workspace_bytes, const std::string& where) {
  if (needed <= available) return {};
  return failure(ExitCode::cannot_run_here,
                 "{} needs {:.1f} GiB of {}{}; {:.1f} GiB are free.\n"
                 "  Smaller:  --n, --batch and --heads",
                 to_string(shape), needed / GIB, where,
                 workspace_bytes > 0 ? fmt::format(", {:.1f} of them a workspace", double(workspace_bytes) / GIB) : "",
                 available / GIB);
}

}  // namespace

std::string gpus_of(const Rung& rung) {
  if (rung.max_sm == 0) return fmt::format("sm_{} or newer", rung.min_sm);
  return rung.max_sm == rung.min_sm ? fmt::format("sm_{} alone", rung.min_sm)
                                    : fmt::format("sm_{} to sm_{}", rung.min_sm, rung.max_sm);
}

Status runs_on(const Rung& rung, const Variant& variant, const Shape& shape, const GpuInfo& gpu) {
  const std::string here =
      fmt::format("\n  Here:  ./ladder check {} --on cpu      the same kernel, emulated", rung.number());
  if (gpu.sm < rung.min_sm) {
    return failure(ExitCode::cannot_run_here, "{} needs {} ({}); this is a {} (sm_{}).{}", rung.name, gpus_of(rung),
                   rung.needs, gpu.name, gpu.sm, here);
  }
  if (rung.max_sm != 0 && gpu.sm > rung.max_sm) {
    return failure(ExitCode::cannot_run_here,
                   "{} needs instructions that newer GPUs than sm_{} do not have ({}); this is a {} (sm_{}).{}",
                   rung.name, rung.max_sm, rung.needs, gpu.name, gpu.sm, here);
  }
  if (auto status = fits_shared_memory(rung, variant, shape.n, gpu.smem_per_block, "this " + gpu.name); !status) {
    status.error().message += here;
    return status;
  }
  if (variant.on_gpu == nullptr) {
    return failure(ExitCode::cannot_run_here, "{} ({}) was not compiled for the GPU in this build.{}", rung.name,
                   variant.label, here);
  }
  return {};
}

size_t gpu_bytes_needed(const Spec& spec, uint64_t workspace_bytes, int more_heads, int outputs) {
  const Formula& formula = formula_of(spec);
  double bytes = double(workspace_bytes), buffers = workspace_bytes > 0 ? 1 : 0;
  // In double: what is asked for may be more than any number of bytes.
  const auto of_unit = [](const TensorSpec& tensor) {
    return double(tensor.memory_bytes()) / double(std::max<int64_t>(tensor.units(), 1));
  };
  const std::vector<TensorSpec> inputs = formula.inputs(spec);
  for (const TensorSpec& tensor : inputs) {
    bytes += double(tensor.memory_bytes()) + double(units_of_more(inputs, tensor, more_heads)) * of_unit(tensor);
    ++buffers;
  }
  for (const TensorSpec& tensor : formula.outputs(spec)) {
    bytes += outputs * double(tensor.memory_bytes());
    buffers += outputs;
  }
  return static_cast<size_t>(std::min(bytes + buffers * 2 * GUARD_BYTES, 1e18));
}

Status fits_gpu_memory(const Shape& shape, uint64_t workspace_bytes, const GpuInfo& gpu) {
  return fits(double(gpu_bytes_needed(shape, workspace_bytes)), double(gpu.memory_free), shape, workspace_bytes,
              fmt::format("the {}'s memory", gpu.name));
}

Status fits_host_memory(const Shape& shape, uint64_t workspace_bytes) {
  // Q, K, V and O once for the harness and once for the kernel, plus the reference.
  const double needed = 2 * double(gpu_bytes_needed(shape, 0)) + double(workspace_bytes) + 64e6;
  return fits(needed, double(host_memory_available()), shape, workspace_bytes, "host memory");
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
