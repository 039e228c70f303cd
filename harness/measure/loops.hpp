// The ceilings' loops, as kernels.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace ladder {

// One loop: what it needs, and how it is launched, in the default stream.
struct Loop {
  std::string_view name;
  std::string_view dtype;  // of the operands that it multiplies; empty: it multiplies none
  int least_sm, most_sm;
  int blocks_per_sm, threads;
  double work_per_block;
  size_t buffer_bytes;
  void (*launch)(int blocks, const std::byte* buffer, float* sums);
};

std::span<const Loop> loops();

}  // namespace ladder
