#include "common/emulator/multiply.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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

// Numbers as significand * 2^(exponent - 3), the significand below 16; subnormals have the smallest exponent.
struct SmallFloats {
  int16_t exponent[32], significand[32];
  bool has_nan = false;
  explicit SmallFloats(const std::byte* elements) {
    for (int k = 0; k < 32; ++k) {
      const int bits = static_cast<int>(elements[k]), size = bits & 0x7f;
      const int value = size < 8 ? size : size % 8 + 8;
      has_nan |= size == 0x7f;
      significand[k] = static_cast<int16_t>(bits & 0x80 ? -value : value);
      exponent[k] = static_cast<int16_t>(size == 0 ? ZERO : std::max(size / 8, 1) - 7);
    }
  }
  static constexpr int ZERO = -1000;  // a product with it is below all others
};

// What a tensor core keeps of numbers below the largest exponent among products and accumulator: they are cut there, added,
// and of the sum as much is kept.
constexpr int KEPT = 13;

float sum_of_products(const SmallFloats& a, const SmallFloats& b, float c) {
  const auto c_bits = std::bit_cast<uint32_t>(c);
  const int c_field = static_cast<int>(c_bits >> 23 & 0xff);
  if (a.has_nan || b.has_nan || std::isnan(c)) return std::bit_cast<float>(0x7fffffffu);
  if (c_field == 0xff) return c;
  const int c_exponent = std::max(c_field, 1) - 127;
  int top = c == 0 ? -126 : c_exponent;
  for (int k = 0; k < 32; ++k) top = std::max(top, a.exponent[k] + b.exponent[k]);
  int sum = 0;  // in units of 2^(top - KEPT)
  for (int k = 0; k < 32; ++k) {
    const int product = a.significand[k] * b.significand[k];  // times 2^-6
    const int below = std::min(top - a.exponent[k] - b.exponent[k], 31);
    const int size = static_cast<int>((static_cast<uint32_t>(std::abs(product)) << (KEPT - 6)) >> below);
    sum += product < 0 ? -size : size;
  }
  const uint32_t mantissa = (c_bits & 0x7fffffu) | (c_field > 0 ? 0x800000u : 0);
  const int of_c = static_cast<int>(mantissa >> std::min(23 - KEPT + top - c_exponent, 31));
  sum += c_bits >> 31 ? -of_c : of_c;
  const int more = std::max(static_cast<int>(std::bit_width(static_cast<uint32_t>(std::abs(sum)))) - (KEPT + 1), 0);
  const int kept = std::abs(sum) >> more << more;
  return std::ldexp(static_cast<float>(sum < 0 ? -kept : kept), top - KEPT);
}

}  // namespace

void multiply_tile_e4m3(const std::byte* a, const std::byte* b, float* c, uint32_t n) {
  std::vector<SmallFloats> A;
  for (uint32_t row = 0; row < 64; ++row) A.emplace_back(a + row * 32);
  for (uint32_t column = 0; column < n; ++column) {
    const SmallFloats B(b + column * 32);
    for (uint32_t row = 0; row < 64; ++row) c[row * n + column] = sum_of_products(A[row], B, c[row * n + column]);
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
