// f16 and bf16 <-> f32 with the rounding of the GPU's conversions, in plain integer and f32 arithmetic: the same on every host.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace emulator {

// NaN becomes 0x7fffffff, whatever its sign and payload, as on an H200.
[[gnu::always_inline]] inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) [[unlikely]]
    return std::bit_cast<float>(magnitude == 0x7c00u ? sign | 0x7f800000u : 0x7fffffffu);
  // The f32 of the same exponent and mantissa fields, times 2^(127-15); exact for subnormals too.
  return std::bit_cast<float>(sign | magnitude << 13) * 0x1p112f;
}

// Rounds to nearest even. NaN becomes 0x7fff, as in PTX.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                       // below 2^-14: a subnormal, in units of 2^-24
    // Adding 0.5, whose unit in the last place is 2^-24, makes the addition round.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t to_even = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + to_even) >> 13));
}

inline float bfloat_to_float(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

// Rounds to nearest even, which a carry into the exponent does right, up to infinity. NaN becomes 0x7fff, as in PTX.
inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace emulator
