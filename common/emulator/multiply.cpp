#include "common/emulator/multiply.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/emulator/half.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace emulator {
namespace {

template <float (*TO_FLOAT)(uint16_t)>
void convert(const std::byte* elements, float* floats, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint16_t element;
    std::memcpy(&element, elements + 2 * i, sizeof element);
    floats[i] = TO_FLOAT(element);
  }
}

void unpack(ToFloats convert, const uint32_t (*a)[32], const uint32_t (*b)[32], float (&A)[16][16], float (&B)[16][8]) {
  uint16_t of_A[16][16], of_B[16][8];
  for (int r = 0; r < 4; ++r) {  // 4 lanes hold 8 consecutive elements of a row
    for (int row = 0; row < 8; ++row) std::memcpy(&of_A[row + r % 2 * 8][r / 2 * 8], &a[r][4 * row], 16);
  }
  for (int k = 0; k < 16; k += 2) {
    for (int column = 0; column < 8; ++column) {
      const uint32_t pair = b[k / 8][k % 8 * 4 + column];
      of_B[k][column] = static_cast<uint16_t>(pair);
      of_B[k + 1][column] = static_cast<uint16_t>(pair >> 16);
    }
  }
  convert(reinterpret_cast<const std::byte*>(of_A), A[0], 16 * 16);
  convert(reinterpret_cast<const std::byte*>(of_B), B[0], 16 * 8);
}

template <float (*TO_FLOAT)(uint16_t)>
void multiply_by_lanes(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d) {
  float A[16][16], B[16][8];
  unpack(convert<TO_FLOAT>, a, b, A, B);
  for (int row = 0; row < 16; ++row) {
    float sums[8] = {};
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[column] += A[row][k] * B[k][column];
    }
    for (int column = 0; column < 8; ++column) d[row * 8 + column] = c[row * 8 + column] + sums[column];
  }
}

}  // namespace

void multiply_tile_portable(const float* a, const float* b, float* c, uint32_t n) {
  for (int row = 0; row < 64; ++row) {
    for (uint32_t first = 0; first < n; first += 8) {
      float sums[8] = {};
      for (int k = 0; k < 16; ++k) {
        for (uint32_t i = 0; i < 8; ++i) sums[i] += a[row * 16 + k] * b[k * n + first + i];
      }
      for (uint32_t i = 0; i < 8; ++i) c[row * n + first + i] += sums[i];
    }
  }
}

namespace {

// What a tensor core keeps of numbers below the largest exponent among products and accumulator: they are cut there, added,
// and of the sum KEPT_OF_SUM bits are kept behind its leading one. A subnormal factor's exponent counts as the least one.
struct E4m3 {
  static constexpr size_t DEPTH = DEPTH_E4M3;
  static constexpr int KEPT = 13, KEPT_OF_SUM = 13;
  static constexpr float LEAST_POWER = 0x1p-6f;
};
struct F16 {
  static constexpr size_t DEPTH = 16;
  static constexpr int KEPT = 25, KEPT_OF_SUM = 23;
  static constexpr float LEAST_POWER = 0x1p-14f;
};
constexpr float POWER_OF_ZERO = 0x1p-60f;  // so that a product with it is below all others

constexpr size_t LANES = 8;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

// Each term is a whole number of units that an int holds, and so are all of them together in e4m3, and half of them in f16.
template <class Format, size_t A_STRIDE>
[[gnu::always_inline]] inline void add_products(const float* a, const float* a_powers, const float* b,
                                                const float* b_powers, size_t stride, float* c, size_t n) {
  constexpr bool IN_HALVES = Format::KEPT_OF_SUM == 23;
  for (size_t first = 0; first < n; first += LANES) {
    Floats C;
    std::memcpy(&C, c + first, sizeof C);
    Ints largest_bits = {};  // bits of numbers above 0 are in their order
    for (size_t k = 0; k < Format::DEPTH; ++k) {
      Floats power;
      std::memcpy(&power, b_powers + k * stride + first, sizeof power);
      power *= a_powers[k * A_STRIDE];
      const Ints bits = __builtin_bit_cast(Ints, power);
      largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    const Floats largest = __builtin_bit_cast(Floats, largest_bits);
    // Of NaN the power is infinite. Where all products are 0, the accumulator is cut.
    constexpr float LEAST_OF_PRODUCTS = Format::LEAST_POWER * Format::LEAST_POWER;
    const Ints C_bits = __builtin_bit_cast(Ints, C), C_exponent = C_bits & 0x7f800000;
    const Ints is_finite = C_exponent < 0x7f800000,
               is_some = (largest >= LEAST_OF_PRODUCTS) & (largest < 0x1p100f) & is_finite;
    const Floats C_power = __builtin_bit_cast(Floats, C_exponent);
    Floats top = C_power > largest ? C_power : largest;
    top = is_some ? top : Floats{} + 1.0f;
    const Ints exponent = __builtin_bit_cast(Ints, top) >> 23;
    const Ints per_unit_bits = (2 * 127 + Format::KEPT - exponent) << 23, unit_bits = (exponent - Format::KEPT) << 23;
    const Floats per_unit = __builtin_bit_cast(Floats, per_unit_bits), unit = __builtin_bit_cast(Floats, unit_bits);
    Ints sum = __builtin_convertvector((is_some ? C : Floats{}) * per_unit, Ints), odd = {};
    for (size_t k = 0; k < Format::DEPTH; ++k) {
      Floats factors;
      std::memcpy(&factors, b + k * stride + first, sizeof factors);
      const Ints term = __builtin_convertvector(factors * a[k * A_STRIDE] * per_unit, Ints);
      (IN_HALVES && k % 2 == 1 ? odd : sum) += term;
    }
    Floats of_sum = __builtin_convertvector(sum, Floats);
    Ints is_up = {};
    if constexpr (IN_HALVES) {  // rounded to an f32 first, and where that has gone up, it is one too many
      const Floats high = __builtin_convertvector((sum >> 8) + (odd >> 8), Floats) * 256.0f;
      const Floats low = __builtin_convertvector((sum & 255) + (odd & 255), Floats);
      of_sum = high + low;
      const Floats rest = low - (of_sum - high);
      is_up = ((of_sum > 0.0f) & (rest < 0.0f)) | ((of_sum < 0.0f) & (rest > 0.0f));
    }
    constexpr int32_t CUT = -1 << (23 - Format::KEPT_OF_SUM);
    const Ints kept = (__builtin_bit_cast(Ints, of_sum) + is_up) & CUT;
    const Floats result = __builtin_bit_cast(Floats, kept) * unit;
    const Ints cut = C_bits & CUT, is_nan = (largest > 0x1p100f) | ((C != C));
    const Ints cut_or_zero = (cut & 0x7fffffff) == 0 ? Ints{} : cut;
    Ints bits = is_some ? __builtin_bit_cast(Ints, result) : is_finite ? cut_or_zero : C_bits;
    bits = is_nan ? Ints{} + 0x7fffffff : bits;
    std::memcpy(c + first, &bits, sizeof bits);
  }
}

// With wider vectors where there are any, and the same to the last bit.
#if defined(__x86_64__)
#define EMULATOR_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define EMULATOR_WIDE
#endif

}  // namespace

Factor factor_e4m3(float value) {
  if (std::isnan(value)) return {0, std::numeric_limits<float>::infinity()};
  if (value == 0) return {0, POWER_OF_ZERO};
  const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
  return {value, std::max(std::bit_cast<float>(exponent), E4m3::LEAST_POWER)};
}

EMULATOR_WIDE void add_products_e4m3(const Factor* a, const float* b, const float* b_powers, size_t stride, float* c,
                                     size_t n) {
  add_products<E4m3, sizeof *a / sizeof a->value>(&a->value, &a->power, b, b_powers, stride, c, n);
}

void multiply_tile_e4m3(const std::byte* a, const std::byte* b, float* c, uint32_t n) {
  static const auto factors = [] {
    std::array<Factor, 256> of_bytes;
    for (uint32_t bits = 0; bits < of_bytes.size(); ++bits) {
      const int size = bits & 0x7f, steps = size < 8 ? size : size % 8 + 8;
      const float value = std::ldexp(static_cast<float>(bits & 0x80 ? -steps : steps), std::max(size / 8, 1) - 10);
      of_bytes[bits] = factor_e4m3(size == 0x7f ? std::numeric_limits<float>::quiet_NaN() : value);
    }
    return of_bytes;
  }();
  static thread_local std::vector<float> values, powers;
  values.resize(DEPTH_E4M3 * n);
  powers.resize(DEPTH_E4M3 * n);
  for (uint32_t column = 0; column < n; ++column) {
    for (uint32_t k = 0; k < DEPTH_E4M3; ++k) {
      const Factor& factor = factors[static_cast<size_t>(b[column * DEPTH_E4M3 + k])];
      values[k * n + column] = factor.value;
      powers[k * n + column] = factor.power;
    }
  }
  for (uint32_t row = 0; row < 64; ++row) {
    Factor of_row[DEPTH_E4M3];
    for (uint32_t k = 0; k < DEPTH_E4M3; ++k) of_row[k] = factors[static_cast<size_t>(a[row * DEPTH_E4M3 + k])];
    add_products_e4m3(of_row, values.data(), powers.data(), n, c + row * n, n);
  }
}

EMULATOR_WIDE void multiply_tile_s8(const std::byte* a, const std::byte* b, float* c, uint32_t n) {
  constexpr uint32_t DEPTH = 32;
  static thread_local std::vector<int32_t> rows;   // of B, [DEPTH][n]
  static thread_local std::vector<uint32_t> sums;  // of a row
  rows.resize(DEPTH * n);
  sums.resize(n);
  for (uint32_t column = 0; column < n; ++column) {
    for (uint32_t k = 0; k < DEPTH; ++k) rows[k * n + column] = static_cast<int8_t>(b[column * DEPTH + k]);
  }
  for (uint32_t row = 0; row < 64; ++row) {
    std::memcpy(sums.data(), c + row * n, n * sizeof(float));
    for (uint32_t k = 0; k < DEPTH; ++k) {
      const int32_t factor = static_cast<int8_t>(a[row * DEPTH + k]);
      for (uint32_t column = 0; column < n; ++column)
        sums[column] += static_cast<uint32_t>(factor * rows[k * n + column]);
    }
    std::memcpy(c + row * n, sums.data(), n * sizeof(float));
  }
}

// ---- f16 with subnormal factors -------------------------------------------------------------------------------------

EMULATOR_WIDE bool has_subnormals(const void* halves, size_t count) {
  typedef uint16_t Halves __attribute__((vector_size(32)));
  Halves least = ~Halves{};
  for (size_t first = 0; first < count; first += 16) {
    Halves some;
    std::memcpy(&some, static_cast<const std::byte*>(halves) + 2 * first, sizeof some);
    some = (some & 0x7fff) - 1;  // zero becomes the largest
    least = some < least ? some : least;
  }
  bool has = false;
  for (size_t i = 0; i < 16; ++i) has |= least[i] < 0x3ff;
  return has;
}

namespace {

// Eight numbers of f16, the powers of two that they count as, and which of them are subnormal.
struct Eight {
  Floats values, powers;
  Ints subnormal;
  [[gnu::always_inline]] explicit Eight(const float* from) {
    std::memcpy(&values, from, sizeof values);
    const Ints bits = __builtin_bit_cast(Ints, values), sizes = bits & 0x7fffffff;
    powers = __builtin_bit_cast(Floats, bits & 0x7f800000);
    const Ints small = powers < F16::LEAST_POWER;
    subnormal = small & (sizes > 0);
    powers = small ? Floats{} + F16::LEAST_POWER : powers;
    powers = sizes == 0 ? Floats{} + POWER_OF_ZERO : powers;
  }
};

[[gnu::always_inline]] inline bool is_any(const Ints& yes) {
  int32_t any = 0;
  for (size_t i = 0; i < LANES; ++i) any |= yes[i];
  return any != 0;
}

// d[rows][n] = A[rows][16] * B[16][n] + c, where a factor of the sum is subnormal and d, which has it rounded, is finite.
EMULATOR_WIDE void add_subnormals(const float* a, const float* b, const float* c, float* d, size_t rows, size_t n) {
  constexpr size_t DEPTH = F16::DEPTH, MOST_ROWS = 64;
  float of_rows[MOST_ROWS][DEPTH];  // their powers
  bool in_row[MOST_ROWS] = {};
  for (size_t row = 0; row < rows; ++row) {
    for (size_t first = 0; first < DEPTH; first += LANES) {
      const Eight eight(a + row * DEPTH + first);
      in_row[row] |= is_any(eight.subnormal);
      std::memcpy(&of_rows[row][first], &eight.powers, sizeof eight.powers);
    }
  }
  for (size_t first = 0; first < n; first += LANES) {
    Ints in_column = {};
    float values[DEPTH][LANES], powers[DEPTH][LANES];
    for (size_t k = 0; k < DEPTH; ++k) {
      const Eight eight(b + k * n + first);
      in_column |= eight.subnormal;
      std::memcpy(values[k], &eight.values, sizeof values[k]);
      std::memcpy(powers[k], &eight.powers, sizeof powers[k]);
    }
    const bool in_any_column = is_any(in_column);
    for (size_t row = 0; row < rows; ++row) {
      if (!in_any_column && !in_row[row]) continue;
      Floats rounded;
      float cut[LANES];
      std::memcpy(&rounded, d + row * n + first, sizeof rounded);
      std::memcpy(cut, c + row * n + first, sizeof cut);
      add_products<F16, 1>(a + row * DEPTH, of_rows[row], values[0], powers[0], LANES, cut, LANES);
      Floats sums;
      std::memcpy(&sums, cut, sizeof sums);
      const Ints finite = (__builtin_bit_cast(Ints, rounded) & 0x7f800000) < 0x7f800000;
      sums = (finite & (in_column | -int32_t{in_row[row]})) != 0 ? sums : rounded;
      std::memcpy(d + row * n + first, &sums, sizeof sums);
    }
  }
}

template <Multiply WITHOUT_SUBNORMALS>
void multiply_f16(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d) {
  WITHOUT_SUBNORMALS(a, b, c, d);
  if (!has_subnormals(a, 16 * 16) && !has_subnormals(b, 16 * 8)) [[likely]]
    return;
  float A[16][16], B[16][8];
  unpack(to_floats, a, b, A, B);
  add_subnormals(A[0], B[0], c, d, 16, 8);
}

}  // namespace

void multiply_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d) {
  multiply_f16<multiply_by_lanes<half_to_float>>(a, b, c, d);
}

void multiply_bf16_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d) {
  multiply_by_lanes<bfloat_to_float>(a, b, c, d);
}

void multiply_tile_subnormals(const float* a, const float* b, float* c, uint32_t n) {
  static thread_local std::vector<float> C;
  C.assign(c, c + size_t{64} * n);
  multiply_tile(a, b, c, n);
  add_subnormals(a, b, C.data(), c, 64, n);
}

#if defined(__x86_64__)
namespace {

#define EMULATOR_AVX2 __attribute__((target("avx2,fma,f16c")))

struct Half {
  EMULATOR_AVX2 static __m256 floats(__m128i halves) { return _mm256_cvtph_ps(halves); }
};
struct Bfloat {
  EMULATOR_AVX2 static __m256 floats(__m128i bfloats) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bfloats), 16));
  }
};

template <class Element>
EMULATOR_AVX2 void multiply_avx2(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d) {
  alignas(32) float A[16][16];
  __m256 B[16];
  for (int r = 0; r < 4; ++r) {
    for (int row = 0; row < 8; ++row) {  // 4 lanes hold 8 consecutive elements of a row
      const __m128i elements = _mm_load_si128(reinterpret_cast<const __m128i*>(&a[r][4 * row]));
      _mm256_store_ps(&A[row + r % 2 * 8][r / 2 * 8], Element::floats(elements));
    }
  }
  const __m256i low_half = _mm256_set1_epi32(0xffff);
  for (int r = 0; r < 2; ++r) {
    for (int t = 0; t < 4; ++t) {  // 8 pairs of rows 2t (low) and 2t + 1 (high)
      const __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(&b[r][8 * t]));
      const __m256i packed = _mm256_permute4x64_epi64(
          _mm256_packus_epi32(_mm256_and_si256(pairs, low_half), _mm256_srli_epi32(pairs, 16)), 0xd8);
      B[2 * t + r * 8] = Element::floats(_mm256_castsi256_si128(packed));
      B[2 * t + r * 8 + 1] = Element::floats(_mm256_extracti128_si256(packed, 1));
    }
  }
  for (int first = 0; first < 16; first += 8) {
    __m256 sums[8];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 8; ++i) sums[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(&A[first + i][k]), B[k], sums[i]);
    }
    for (int i = 0; i < 8; ++i) {
      const int row = (first + i) * 8;
      _mm256_store_ps(d + row, _mm256_add_ps(_mm256_load_ps(c + row), sums[i]));
    }
  }
}

// Of four rows, 8 * VECTORS columns from `first` on.
template <int VECTORS>
EMULATOR_AVX2 void multiply_columns(const float* a, const float* b, float* c, uint32_t n, uint32_t first) {
  for (uint32_t row = 0; row < 64; row += 4) {
    __m256 sums[4][VECTORS] = {};
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t i = 0; i < 4; ++i) {
        const __m256 factor = _mm256_broadcast_ss(a + (row + i) * 16 + k);
        for (uint32_t v = 0; v < VECTORS; ++v)
          sums[i][v] = _mm256_fmadd_ps(factor, _mm256_loadu_ps(b + k * n + first + 8 * v), sums[i][v]);
      }
    }
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t v = 0; v < VECTORS; ++v) {
        float* const to = c + (row + i) * n + first + 8 * v;
        _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), sums[i][v]));
      }
    }
  }
}

// Eight sums at a time, and their factors, are as many registers as there are.
EMULATOR_AVX2 void multiply_tile_avx2(const float* a, const float* b, float* c, uint32_t n) {
  uint32_t first = 0;
  for (; first + 16 <= n; first += 16) multiply_columns<2>(a, b, c, n, first);
  if (first < n) multiply_columns<1>(a, b, c, n, first);
}

template <class Element>
EMULATOR_AVX2 void convert_avx2(const std::byte* elements, float* floats, uint32_t count) {
  for (uint32_t i = 0; i < count; i += 8)
    _mm256_storeu_ps(floats + i, Element::floats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(elements + 2 * i))));
}

bool has_avx2() {
  unsigned eax, ebx, ecx, edx;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

const Multiply multiply = has_avx2() ? multiply_f16<multiply_avx2<Half>> : multiply_portable;
const Multiply multiply_bf16 = has_avx2() ? multiply_avx2<Bfloat> : multiply_bf16_portable;
const MultiplyTile multiply_tile = has_avx2() ? multiply_tile_avx2 : multiply_tile_portable;
const ToFloats to_floats = has_avx2() ? convert_avx2<Half> : convert<half_to_float>;
const ToFloats bf16_to_floats = has_avx2() ? convert_avx2<Bfloat> : convert<bfloat_to_float>;
#else
const Multiply multiply = multiply_portable, multiply_bf16 = multiply_bf16_portable;
const MultiplyTile multiply_tile = multiply_tile_portable;
const ToFloats to_floats = convert<half_to_float>, bf16_to_floats = convert<bfloat_to_float>;
#endif

}  // namespace emulator
