#include "harness/shapes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>

#include "harness/guarded.hpp"

namespace ladder {
namespace {

constexpr double GIB = 1024.0 * 1024.0 * 1024.0;
constexpr size_t MOST_SMEM = 227 * 1024;  // per block, of any GPU so far (sm_90), and of the emulator

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

// `who` has `available` bytes of shared memory per block.
Status fits_shared_memory(const Stage& stage, const Variant& variant, int n, size_t available, const std::string& who) {
  const uint64_t needed = variant.smem_at(n);
  if (needed <= available) return {};
  std::string what, largest;
  if (variant.smem_bytes_per_key > 0) {
    const uint64_t room = available > variant.smem_bytes ? available - variant.smem_bytes : 0;
    what = fmt::format(" for a row of {} scores", n);
    largest = fmt::format(" Largest N here: {}.", room / variant.smem_bytes_per_key);
  }
  return failure(ExitCode::cannot_run_here,
                 fmt::format("{} ({}) needs {:.1f} KiB of shared memory per block{}; {} has {} "
                             "KiB.{}",
                             stage.name, variant.label, needed / 1024.0, what, who, available / 1024, largest));
}

}  // namespace

std::vector<Shape> shapes_for(const Options& options, const Shape& defaults) {
  Shape shape = defaults;
  shape.d = options.d.value_or(defaults.d);
  shape.batch = options.batch.value_or(defaults.batch);
  shape.heads = options.heads.value_or(defaults.heads);
  shape.causal = options.causal;
  if (options.n.empty()) return {shape};
  std::vector<Shape> shapes;
  for (const int n : options.n) {
    shape.n = n;
    shapes.push_back(shape);
  }
  return shapes;
}

std::string to_string(const Shape& shape) {
  return fmt::format("B={} H={} N={} d={}{}{}", shape.batch, shape.heads, shape.n, shape.d,
                     shape.causal ? " causal" : "",
                     shape.softmax_scale > 0 ? fmt::format(" scale={:.4g}", shape.softmax_scale) : "");
}

Status supports(const Stage& stage, const Variant& variant, const Shape& shape) {
  if (shape.causal && !stage.causal) {
    std::vector<std::string_view> able;
    for (const Stage& other : stages()) {
      if (other.causal) able.push_back(other.name);
    }
    return failure(ExitCode::usage, fmt::format("{} is dense only: it has no mask. Stages that do causal: {}.",
                                                stage.name, fmt::join(able, ", ")));
  }
  if (stage.any_d ? shape.d > stage.max_d : shape.d != stage.max_d) {
    return failure(
        ExitCode::usage,
        fmt::format("{} needs a head dimension of {}{}; d={} is not.{}", stage.name, stage.any_d ? "at most " : "",
                    stage.max_d, shape.d,
                    stage.any_d ? "" : "\n  Any d up to 256:  ./ladder check 00 --d " + std::to_string(shape.d)));
  }
  const int br = std::max(1, variant.tile.br), bc = std::max(1, variant.tile.bc), step = std::lcm(br, bc);
  if (shape.n % step == 0)
    return fits_shared_memory(stage, variant, shape.n, MOST_SMEM, "the largest GPU, emulated here,");
  const std::string tile = step == bc   ? "its KV tile"
                           : step == br ? "its query tile"
                                        : fmt::format("its tiles are {} queries and {} keys", br, bc);
  const int64_t below = shape.n / step * int64_t{step};
  std::vector<int64_t> nearest;
  for (const int64_t n : {below, below + step}) {
    if (n > 0 && n <= std::numeric_limits<int>::max()) nearest.push_back(n);
  }
  return failure(ExitCode::usage, fmt::format("{} needs N to be a multiple of {} ({}); N={} is not. Nearest: {}.",
                                              stage.name, step, tile, shape.n, fmt::join(nearest, ", ")));
}

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
