#include "harness/problem/element.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace ladder {
namespace {

// What each type is in memory, as what number, and the nearest of a number.
struct F16 {
  using Bits = uint16_t;
  static float number(Bits bits) { return emulator::half_to_float(bits); }
  static Bits nearest(double value) { return emulator::float_to_half(static_cast<float>(value)); }
};
struct Bf16 {
  using Bits = uint16_t;
  static float number(Bits bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static Bits nearest(double value) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, as in PTX
    return static_cast<Bits>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
};
struct F32 {
  using Bits = float;
  static float number(Bits bits) { return bits; }
  static Bits nearest(double value) { return static_cast<float>(value); }
};
// A float of 8 bits. e4m3 has no infinity: its largest exponent holds numbers, and one NaN. Conversions saturate.
template <int EXPONENT_BITS, int STORED_BITS, int LARGEST>
struct Small {
  using Bits = uint8_t;
  static constexpr int LEAST = 2 - (1 << (EXPONENT_BITS - 1));  // power of two of the smallest normal number
  static constexpr int INFINITE = ((1 << EXPONENT_BITS) - 1) << STORED_BITS;  // among the numbers, if there is none
  static float number(Bits bits) {
    const int size = bits & 0x7f, exponent = size >> STORED_BITS, stored = size & ((1 << STORED_BITS) - 1);
    const int steps = exponent == 0 ? stored : stored + (1 << STORED_BITS);
    const float value = size <= LARGEST
                            ? std::ldexp(static_cast<float>(steps), std::max(exponent, 1) - 1 + LEAST - STORED_BITS)
                        : size == INFINITE ? std::numeric_limits<float>::infinity()
                                           : std::numeric_limits<float>::quiet_NaN();
    return bits & 0x80 ? -value : value;
  }
  static Bits nearest(double value) {
    const int sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return 0x7f;
    if (std::isinf(value) && INFINITE > LARGEST) return static_cast<Bits>(sign | INFINITE);
    const double size = std::min<double>(std::abs(value), number(LARGEST));
    const int power = std::max(size == 0 ? LEAST : std::ilogb(size), LEAST);  // rint rounds ties to even
    const int steps = static_cast<int>(std::rint(std::ldexp(size, STORED_BITS - power)));
    return static_cast<Bits>(sign | std::min(((power - LEAST) << STORED_BITS) + steps, LARGEST));
  }
};
using E4m3 = Small<4, 3, 0x7e>;
using E5m2 = Small<5, 2, 0x7b>;
template <class T>
struct Integer {
  using Bits = T;
  static double number(Bits bits) { return bits; }
  static Bits nearest(double value) {
    const double least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return static_cast<T>(std::clamp(std::isnan(value) ? 0 : std::rint(value), least, most));
  }
};

// Of four bits, from -8 to 7, in the low half of a byte.
struct Nibble {
  using Bits = uint8_t;
  static double number(Bits bits) { return ((bits & 15) ^ 8) - 8; }
  static Bits nearest(double value) { return Integer<int8_t>::nearest(std::clamp(value, -8.0, 7.0)) & 15; }
};

template <class Type>
double load_one(const std::byte* from) {
  typename Type::Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  return Type::number(bits);
}
template <class Type>
void store_one(double value, std::byte* to) {
  const typename Type::Bits bits = Type::nearest(value);
  std::memcpy(to, &bits, sizeof bits);
}

template <class Type>
constexpr ElementInfo row(Element element, std::string_view name, double eps, int least, double largest,
                          uint32_t poison, bool has_nan = true) {
  constexpr int BYTES = sizeof(typename Type::Bits);
  return {element,
          name,
          8 * BYTES,
          eps,
          least,
          largest,
          poison,
          has_nan,
          load_one<Type>,
          store_one<Type>,
          [](const std::byte* from, std::span<float> values) {
            for (float& value : values) value = static_cast<float>(load_one<Type>(std::exchange(from, from + BYTES)));
          },
          [](std::span<const float> values, std::byte* to) {
            for (const float value : values) store_one<Type>(value, std::exchange(to, to + BYTES));
          },
          [](std::span<float> values) {
            for (float& value : values) value = static_cast<float>(Type::number(Type::nearest(value)));
          }};
}

constexpr ElementInfo two_to_a_byte(ElementInfo of) {
  of.bits = 4;
  of.read = [](const std::byte* from, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(load(Element::s4, from, int64_t(i)));
  };
  of.write = [](std::span<const float> values, std::byte* to) {
    for (size_t i = 0; i < values.size(); ++i) store(Element::s4, to, int64_t(i), values[i]);
  };
  return of;
}

constexpr std::array ELEMENTS{
    row<F16>(Element::f16, "fp16", 0x1p-10, -14, 65504, 0x7fa5),
    row<Bf16>(Element::bf16, "bf16", 0x1p-7, -126, 0x1.fep127, 0x7fa5),
    row<F32>(Element::f32, "fp32", 0x1p-23, -126, 0x1.fffffep127, 0x7fa57fa5),
    row<E4m3>(Element::e4m3, "e4m3", 0x1p-3, E4m3::LEAST, 448, 0xff),
    row<E5m2>(Element::e5m2, "e5m2", 0x1p-2, E5m2::LEAST, 57344, 0xfd),
    row<Integer<int8_t>>(Element::s8, "s8", 1, 0, 127, 0x80, false),
    row<Integer<int32_t>>(Element::i32, "i32", 1, 0, 2147483647, 0xa5a5a5a5, false),
    two_to_a_byte(row<Nibble>(Element::s4, "s4", 1, 0, 7, 0x88, false)),
};
static_assert([] {
  for (size_t i = 0; i < ELEMENTS.size(); ++i) {
    if (static_cast<size_t>(ELEMENTS[i].element) != i) return false;
  }
  return true;
}());

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

double load(Element element, const std::byte* first, int64_t i) {
  const ElementInfo& of = info(element);
  if (of.bits >= 8) return of.to(first + bytes_of(element, i));
  const std::byte half = first[i / 2] >> (i % 2 * 4);
  return of.to(&half);
}

void store(Element element, std::byte* first, int64_t i, double value) {
  const ElementInfo& of = info(element);
  if (of.bits >= 8) return of.from(value, first + bytes_of(element, i));
  std::byte half;
  of.from(value, &half);
  first[i / 2] = (first[i / 2] & (i % 2 == 0 ? std::byte{0xf0} : std::byte{0x0f})) | half << (i % 2 * 4);
}

namespace {
// The fewest elements that are whole bytes.
size_t piece_of(Element element) {
  return std::max<size_t>(bytes_of(element, 1), 1);
}
}  // namespace

bool is_poison(Element element, const std::byte* at) {
  const ElementInfo& of = info(element);
  if (at[0] != static_cast<std::byte>(of.poison)) return false;  // nearly always
  return std::memcmp(at, &of.poison, piece_of(element)) == 0;
}

void poison(Element element, std::span<std::byte> memory) {
  const ElementInfo& of = info(element);
  size_t filled = std::min(piece_of(element), memory.size());
  for (size_t i = 0; i < filled; ++i) memory[i] = static_cast<std::byte>(of.poison >> (i * 8));
  for (; filled < memory.size(); filled *= 2)
    std::memcpy(&memory[filled], memory.data(), std::min(filled, memory.size() - filled));
}

std::optional<size_t> first_not_poison(Element element, std::span<const std::byte> memory) {
  const size_t bytes = piece_of(element);
  for (size_t at = 0; at + bytes <= memory.size(); at += bytes) {
    if (!is_poison(element, &memory[at])) return at;
  }
  return {};
}

}  // namespace ladder
