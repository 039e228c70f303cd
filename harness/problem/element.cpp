#include "harness/problem/element.hpp"

#include <algorithm>

namespace ladder {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void write(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

double from_f16(const std::byte* at) {
  return emulator::half_to_float(read<uint16_t>(at));
}
void to_f16_bits(double value, std::byte* at) {
  write(emulator::float_to_half(static_cast<float>(value)), at);
}
double from_bf16(const std::byte* at) {
  return std::bit_cast<float>(uint32_t{read<uint16_t>(at)} << 16);
}
void to_bf16_bits(double value, std::byte* at) {
  write(static_cast<uint16_t>(std::bit_cast<uint32_t>(bf16_of(static_cast<float>(value))) >> 16), at);
}
double from_f32(const std::byte* at) {
  return read<float>(at);
}
void to_f32_bits(double value, std::byte* at) {
  write(static_cast<float>(value), at);
}

// A float of 8 bits. e4m3 has no infinity: its largest exponent holds numbers, but for one NaN; conversions saturate.
template <int EXPONENT_BITS, int STORED_BITS, bool HAS_INFINITY>
struct Small {
  static constexpr int BIAS = (1 << (EXPONENT_BITS - 1)) - 1, LAST = (1 << EXPONENT_BITS) - 1;
  static constexpr uint8_t NOT_A_NUMBER = 0x7f;

  static double magnitude(int bits) {
    const int exponent = bits >> STORED_BITS, stored = bits & ((1 << STORED_BITS) - 1);
    return exponent == 0 ? std::ldexp(stored, 1 - BIAS - STORED_BITS)
                         : std::ldexp((1 << STORED_BITS) + stored, exponent - BIAS - STORED_BITS);
  }
  static constexpr int largest() { return HAS_INFINITY ? (LAST << STORED_BITS) - 1 : 0x7e; }
  static double from(const std::byte* at) {
    const int bits = read<uint8_t>(at), size = bits & 0x7f;
    const double sign = bits & 0x80 ? -1 : 1;
    if (size <= largest()) return sign * magnitude(size);
    if (HAS_INFINITY && size == LAST << STORED_BITS) return sign * std::numeric_limits<double>::infinity();
    return std::numeric_limits<double>::quiet_NaN();
  }
  static void to(double value, std::byte* at) {
    const int sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return write(NOT_A_NUMBER, at);
    if (std::isinf(value) && HAS_INFINITY) return write(static_cast<uint8_t>(sign | LAST << STORED_BITS), at);
    const double size = std::min(std::abs(value), magnitude(largest()));
    // In steps of the number's own power of two; rint rounds ties to even.
    const int power = std::max(size == 0 ? 1 - BIAS : std::ilogb(size), 1 - BIAS) - STORED_BITS;
    const auto steps = static_cast<int>(std::rint(std::ldexp(size, -power)));
    const int bits =
        steps < 1 << STORED_BITS ? steps : ((power + STORED_BITS + BIAS) << STORED_BITS) + steps - (1 << STORED_BITS);
    write(static_cast<uint8_t>(sign | std::min(bits, largest())), at);
  }
};
using E4m3 = Small<4, 3, false>;
using E5m2 = Small<5, 2, true>;

template <class T>
double from_integer(const std::byte* at) {
  return read<T>(at);
}
template <class T>
void to_integer(double value, std::byte* at) {
  using Limits = std::numeric_limits<T>;
  write(static_cast<T>(
            std::clamp(std::isnan(value) ? 0.0 : std::rint(value), double(Limits::min()), double(Limits::max()))),
        at);
}

constexpr std::array ELEMENTS{
    ElementInfo{Element::f16, "fp16", 2, 0x1p-10, 0x1p-14, 65504, 0x7fa5, true, from_f16, to_f16_bits},
    ElementInfo{Element::bf16, "bf16", 2, 0x1p-7, 0x1p-126, 0x1.fep127, 0x7fa5, true, from_bf16, to_bf16_bits},
    ElementInfo{Element::f32, "fp32", 4, 0x1p-23, 0x1p-126, 0x1.fffffep127, 0x7fa57fa5, true, from_f32, to_f32_bits},
    ElementInfo{Element::e4m3, "e4m3", 1, 0x1p-3, 0x1p-6, 448, 0xff, true, E4m3::from, E4m3::to},
    ElementInfo{Element::e5m2, "e5m2", 1, 0x1p-2, 0x1p-14, 57344, 0xfd, true, E5m2::from, E5m2::to},
    ElementInfo{Element::s8, "s8", 1, 1, 0, 127, 0x80, false, from_integer<int8_t>, to_integer<int8_t>},
    ElementInfo{Element::i32, "i32", 4, 1, 0, 2147483647, 0xa5a5a5a5, false, from_integer<int32_t>,
                to_integer<int32_t>},
};
static_assert(std::ranges::all_of(ELEMENTS, [](const ElementInfo& each) {
  return &ELEMENTS[static_cast<size_t>(each.element)] == &each;
}));

}  // namespace

const ElementInfo& info(Element element) {
  return ELEMENTS[static_cast<size_t>(element)];
}

std::span<const ElementInfo> all_elements() {
  return ELEMENTS;
}

double rounded(Element element, double value) {
  std::array<std::byte, 8> memory;
  info(element).from(value, memory.data());
  return info(element).to(memory.data());
}

bool is_poison(Element element, const std::byte* at) {
  return std::memcmp(at, &info(element).poison, bytes_of(element)) == 0;
}

bool is_nan(Element element, const std::byte* at) {
  return std::isnan(info(element).to(at));
}

void poison(Element element, std::span<std::byte> memory) {
  const size_t bytes = bytes_of(element);
  for (size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<std::byte>(info(element).poison >> (i % bytes * 8));
}

}  // namespace ladder
