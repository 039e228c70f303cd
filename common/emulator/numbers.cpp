// Numbers of 8 bits, and bytes of words.
#include <algorithm>
#include <bit>
#include <cmath>
#include "common/emulator/half.hpp"
#include "common/emulator/instructions.hpp"

namespace emulator {
namespace {

// So many bits behind the point, the exponent of the smallest normal number, and the largest number.
template <int MANTISSA, int LEAST, uint32_t LARGEST>
uint32_t to_8_bits(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 24 & 0x80;
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return 0x7f;
  if (magnitude >= 0x1p16f) return sign | LARGEST;
  // In units of the last place, of a subnormal number that of the smallest normal one; a carry goes into the exponent.
  const int exponent = magnitude == 0 ? LEAST : std::max(std::ilogb(magnitude), LEAST);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, MANTISSA - exponent)));
  const int bits = ((exponent - LEAST) << MANTISSA) + units;
  return sign | std::min(static_cast<uint32_t>(bits), LARGEST);
}

uint32_t e4m3_to_half(uint32_t bits) {
  if ((bits & 0x7f) == 0x7f) return 0x7fff;
  // The f16 of the same fields, whose exponent counts from 15 and not from 7.
  return float_to_half(half_to_float(static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 0x1p8f);
}
uint32_t e5m2_to_half(uint32_t bits) {
  return (bits & 0x7f) > 0x7c ? 0x7fff : bits << 8;
}

}  // namespace
}  // namespace emulator

inline namespace emulated {

using namespace emulator;

uint16_t pack_e4m3x2(float low, float high) {
  return static_cast<uint16_t>(to_8_bits<3, -6, 0x7e>(low) | to_8_bits<3, -6, 0x7e>(high) << 8);
}
uint16_t pack_e5m2x2(float low, float high) {
  return static_cast<uint16_t>(to_8_bits<2, -14, 0x7b>(low) | to_8_bits<2, -14, 0x7b>(high) << 8);
}
uint32_t unpack_e4m3x2(uint16_t packed) {
  return e4m3_to_half(packed & 0xff) | e4m3_to_half(packed >> 8) << 16;
}
uint32_t unpack_e5m2x2(uint16_t packed) {
  return e5m2_to_half(packed & 0xff) | e5m2_to_half(packed >> 8) << 16;
}

// An f32 has so many bits that rounding it again makes no difference.
uint32_t sub_f16x2(uint32_t a, uint32_t b) {
  const auto of = [](uint32_t a, uint32_t b) -> uint32_t {
    return float_to_half(half_to_float(static_cast<uint16_t>(a)) - half_to_float(static_cast<uint16_t>(b)));
  };
  return of(a, b) | of(a >> 16, b >> 16) << 16;
}

uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
  const auto of = [](uint32_t a, uint32_t b) -> uint32_t {
    return float_to_bfloat(bfloat_to_float(static_cast<uint16_t>(a)) - bfloat_to_float(static_cast<uint16_t>(b)));
  };
  return of(a, b) | of(a >> 16, b >> 16) << 16;
}

uint32_t prmt_b32(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t all = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t digit = selector >> 4 * i & 15;
    uint32_t byte = static_cast<uint32_t>(all >> 8 * (digit & 7) & 0xff);
    if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
    bytes |= byte << 8 * i;
  }
  return bytes;
}

}  // namespace emulated
