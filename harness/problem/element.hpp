// The types of a tensor's numbers: one row of a table for each, and the only place that tells them apart.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/attention.hpp"
#include "common/emulator/half.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

inline float to_float(f16 value) {
  return emulator::half_to_float(value.bits);
}
inline f16 to_f16(float value) {
  return {emulator::float_to_half(value)};
}

struct ElementInfo {
  Element element;
  std::string_view name;  // in results and in the text of a problem: "fp16"
  int bits;               // four are half a byte: the low half is the element before the other
  double eps;             // from 1 to the next number
  int least;              // power of two of the smallest normal number: below it steps stay as they are
  double largest;         // finite
  uint32_t poison;  // what nobody wrote: a NaN that no arithmetic makes, or of a type without NaN an unlikely number
  bool has_nan;
  double (*to)(const std::byte*);                    // the number that stands there, of four bits in the low half
  void (*from)(double, std::byte*);                  // the nearest one, ties to even
  void (*read)(const std::byte*, std::span<float>);  // many of them, from there and to there
  void (*write)(std::span<const float>, std::byte*);
  void (*round)(std::span<float>);  // to the nearest numbers of the type
};

const ElementInfo& info(Element element);
std::span<const ElementInfo> all_elements();
inline std::string_view to_string(Element element) {
  return info(element).name;
}
inline size_t bytes_of(Element element, int64_t count) {
  return static_cast<size_t>(count * info(element).bits / 8);
}

double rounded(Element element, double value);
// Element i of those that begin at `first`.
double load(Element element, const std::byte* first, int64_t i);
void store(Element element, std::byte* first, int64_t i, double value);

// The most that rounding to the type changes a number of this size.
inline double half_step(Element element, double value) {
  const ElementInfo& of = info(element);
  return std::ldexp(0.5 * of.eps, std::max(std::ilogb(value), of.least));  // ilogb(0) is far below
}

// Memory of that type: whether an element is poison, or two of four bits are.
bool is_poison(Element element, const std::byte* at);
// Fills memory with poison.
void poison(Element element, std::span<std::byte> memory);
// Where an element of that memory is not poison: its first byte.
std::optional<size_t> first_not_poison(Element element, std::span<const std::byte> memory);

}  // namespace ladder
