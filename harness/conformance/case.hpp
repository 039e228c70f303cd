// What a conformance case is.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace ladder::conformance {

// One primitive, one kernel, one launch.
struct Case {
  // Its name in common/gpu.cuh, with ".what" behind it for an overload. The fixture is FIXTURES/primitive.txt.
  std::string_view primitive;
  std::string_view what;                                        // what the kernel does
  std::string_view layout;                                      // which output word is what
  void (*kernel)(const uint32_t* in, uint32_t* out) = nullptr;  // null: it takes a tensor map, see cases.hpp
  std::vector<uint32_t> input = {};
  size_t output_words = 0;
  uint32_t threads = 32;
  uint32_t grid_x = 1, grid_y = 1;
  uint32_t cluster = 1;  // blocks
  uint32_t smem_bytes = 0;
  size_t words_per_line = 8;
  int min_sm = 80;  // oldest GPU that has the instruction
  // 0: the same bits. Otherwise output words are f32: infinities and zeros are the same bits, NaN is any NaN, and other
  // numbers differ by at most so many units in the last place.
  uint32_t max_ulp = 0;
};

}  // namespace ladder::conformance
