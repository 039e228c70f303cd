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
void multiply_by_lanes(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product) {
  float A[16][16], B[16][8];
  for (int r = 0; r < 4; ++r) {
    for (int lane = 0; lane < 32; ++lane) {
      float* const pair = &A[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8];
      pair[0] = TO_FLOAT(static_cast<uint16_t>(a[r][lane]));
      pair[1] = TO_FLOAT(static_cast<uint16_t>(a[r][lane] >> 16));
    }
  }
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 32; ++i) {
      B[i / 8 * 2 + r * 8][i % 8] = TO_FLOAT(static_cast<uint16_t>(b[r][i]));
      B[i / 8 * 2 + r * 8 + 1][i % 8] = TO_FLOAT(static_cast<uint16_t>(b[r][i] >> 16));
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sums[8] = {};
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[column] += A[row][k] * B[k][column];
    }
    for (int column = 0; column < 8; ++column) product[row * 8 + column] = sums[column];
  }
}

template <float (*TO_FLOAT)(uint16_t)>
void convert(const std::byte* elements, float* floats, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint16_t element;
    std::memcpy(&element, elements + 2 * i, sizeof element);
    floats[i] = TO_FLOAT(element);
  }
}

}  // namespace

void multiply_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product) {
  multiply_by_lanes<half_to_float>(a, b, product);
}

void multiply_bf16_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product) {
  multiply_by_lanes<bfloat_to_float>(a, b, product);
}

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
// and of the sum as much is kept.
constexpr int KEPT = 13;
constexpr float LEAST_OF_PRODUCTS = 0x1p-12f;  // a subnormal's exponent counts as -6
constexpr float POWER_OF_ZERO = 0x1p-60f;      // so that a product with it is below all others

}  // namespace

FactorE4m3 factor_e4m3(float value) {
  if (std::isnan(value)) return {0, std::numeric_limits<float>::infinity()};
  if (value == 0) return {0, POWER_OF_ZERO};
  const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
  return {value, std::max(std::bit_cast<float>(exponent), 0x1p-6f)};
}

// With wider vectors where there are any, and the same to the last bit: each term is a whole number of units that an int holds.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void add_products_e4m3(const FactorE4m3* a, const float* b, const float* b_powers, size_t stride, float* c, size_t n) {
  constexpr size_t LANES = 8;
  typedef float Floats __attribute__((vector_size(4 * LANES)));
  typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
  for (size_t first = 0; first < n; first += LANES) {
    Floats largest = {}, C;
    std::memcpy(&C, c + first, sizeof C);
    for (size_t k = 0; k < DEPTH_E4M3; ++k) {
      Floats power;
      std::memcpy(&power, b_powers + k * stride + first, sizeof power);
      power *= a[k].power;
      largest = power > largest ? power : largest;
    }
    // Of NaN the power is infinite. Where all products are 0, the accumulator is cut.
    const Ints C_bits = __builtin_bit_cast(Ints, C), C_exponent = C_bits & 0x7f800000;
    const Ints is_finite = C_exponent < 0x7f800000,
               is_some = (largest >= LEAST_OF_PRODUCTS) & (largest < 0x1p100f) & is_finite;
    const Floats C_power = __builtin_bit_cast(Floats, C_exponent);
    Floats top = C_power > largest ? C_power : largest;
    top = is_some ? top : Floats{} + 1.0f;
    const Ints exponent = __builtin_bit_cast(Ints, top) >> 23;
    const Ints per_unit_bits = (2 * 127 + KEPT - exponent) << 23, unit_bits = (exponent - KEPT) << 23;
    const Floats per_unit = __builtin_bit_cast(Floats, per_unit_bits), unit = __builtin_bit_cast(Floats, unit_bits);
    Ints sum = __builtin_convertvector((is_some ? C : Floats{}) * per_unit, Ints);
    for (size_t k = 0; k < DEPTH_E4M3; ++k) {
      Floats factors;
      std::memcpy(&factors, b + k * stride + first, sizeof factors);
      sum += __builtin_convertvector(factors * a[k].value * per_unit, Ints);
    }
    constexpr int32_t CUT = -1 << (23 - KEPT);
    const Floats of_sum = __builtin_convertvector(sum, Floats);
    const Ints kept = __builtin_bit_cast(Ints, of_sum) & CUT;
    const Floats result = __builtin_bit_cast(Floats, kept) * unit;
    const Ints cut = C_bits & CUT, is_nan = (largest > 0x1p100f) | ((C != C));
    const Ints cut_or_zero = (cut & 0x7fffffff) == 0 ? Ints{} : cut;
    Ints bits = is_some ? __builtin_bit_cast(Ints, result) : is_finite ? cut_or_zero : C_bits;
    bits = is_nan ? Ints{} + 0x7fffffff : bits;
    std::memcpy(c + first, &bits, sizeof bits);
  }
}

void multiply_tile_e4m3(const std::byte* a, const std::byte* b, float* c, uint32_t n) {
  static const auto factors = [] {
    std::array<FactorE4m3, 256> of_bytes;
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
      const FactorE4m3& factor = factors[static_cast<size_t>(b[column * DEPTH_E4M3 + k])];
      values[k * n + column] = factor.value;
      powers[k * n + column] = factor.power;
    }
  }
  for (uint32_t row = 0; row < 64; ++row) {
    FactorE4m3 of_row[DEPTH_E4M3];
    for (uint32_t k = 0; k < DEPTH_E4M3; ++k) of_row[k] = factors[static_cast<size_t>(a[row * DEPTH_E4M3 + k])];
    add_products_e4m3(of_row, values.data(), powers.data(), n, c + row * n, n);
  }
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_tile_s8(const std::byte* a, const std::byte* b, float* c, uint32_t n) {
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
EMULATOR_AVX2 void multiply_avx2(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product) {
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
    for (int i = 0; i < 8; ++i) _mm256_store_ps(product + (first + i) * 8, sums[i]);
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

const Multiply multiply = has_avx2() ? multiply_avx2<Half> : multiply_portable;
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
