#include "harness/problem/normals.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ladder {

// Box and Muller's transform, a function at a time: with -ffast-math glibc lends those of four doubles at once.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void draw_normals(uint64_t stream, uint64_t first, std::span<float> values) {
  constexpr size_t TOGETHER = 64;
  double radius[TOGETHER], angle[TOGETHER], cosine[TOGETHER], sine[TOGETHER];
  while (!values.empty()) {
    const size_t pairs = std::min(TOGETHER, values.size() / 2);
    for (size_t i = 0; i < pairs; ++i) {
      const uint64_t bits = hash(stream ^ hash(first + i));
      // (0, 1]: its logarithm is finite.
      radius[i] = static_cast<double>(static_cast<int64_t>(bits >> 32) + 1) * 0x1p-32;
      angle[i] = static_cast<double>(static_cast<int64_t>(bits & 0xffffffffu)) * 0x1p-32 * 2 * std::numbers::pi;
    }
    for (size_t i = 0; i < pairs; ++i) radius[i] = std::sqrt(-2 * std::log(radius[i]));
    for (size_t i = 0; i < pairs; ++i) cosine[i] = std::cos(angle[i]);
    for (size_t i = 0; i < pairs; ++i) sine[i] = std::sin(angle[i]);
    for (size_t i = 0; i < pairs; ++i) {
      values[2 * i] = static_cast<float>(radius[i] * cosine[i]);
      values[2 * i + 1] = static_cast<float>(radius[i] * sine[i]);
    }
    values = values.subspan(2 * pairs);
    first += pairs;
  }
}

}  // namespace ladder
