#include "harness/problem/shapes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

constexpr size_t MOST_SMEM = 227 * 1024;  // per block, of any GPU so far (sm_90), and of the emulator

}  // namespace

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

std::string to_string(const Shape& shape) {
  return fmt::format("B={} H={} N={} d={}{}{}", shape.batch, shape.heads, shape.n, shape.d,
                     shape.causal ? " causal" : "",
                     shape.softmax_scale > 0 ? fmt::format(" scale={:.4g}", shape.softmax_scale) : "");
}

Status supports(const Stage& stage, const Variant& variant, const Shape& shape) {
  for (const TensorSpec& input : formula_of(shape).inputs(shape)) {
    if (input.element == variant.element) continue;
    return failure(ExitCode::usage, fmt::format("{} ({}) takes {} tensors; {} is {}.", stage.name, variant.label,
                                                to_string(variant.element), input.name, to_string(input.element)));
  }
  if (shape.causal && !variant.causal) {
    std::vector<std::string_view> able;
    for (const Stage& other : stages()) {
      if (std::ranges::any_of(other.variants, &Variant::causal)) able.push_back(other.name);
    }
    return failure(ExitCode::usage, fmt::format("{} is dense only: it has no mask. Stages that do causal: {}.",
                                                stage.name, fmt::join(able, ", ")));
  }
  if (shape.d < variant.min_d || shape.d > variant.max_d) {
    std::string others;
    for (const Stage& other : stages()) {
      const Variant& able = other.variants.front();
      if (others.empty() && able.min_d <= shape.d && shape.d <= able.max_d) {
        others = fmt::format("\n  One that takes it:  ./ladder check {} --d {}", other.number(), shape.d);
      }
    }
    return failure(ExitCode::usage,
                   fmt::format("{} needs a head dimension of {}; d={} is not.{}", stage.name,
                               variant.min_d == variant.max_d ? std::to_string(variant.max_d)
                                                              : fmt::format("{} to {}", variant.min_d, variant.max_d),
                               shape.d, others));
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

}  // namespace ladder
