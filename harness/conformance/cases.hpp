// The conformance cases: for each primitive its kernel, its inputs and its launch. Compiled for both machines; the
// including file gets its own copy, as with a kernel.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "harness/conformance/case.hpp"
#include "harness/conformance/primitives.cuh"
#include "harness/problem/inputs.hpp"

namespace {
namespace cases {

// 0x101, 0x102, ...: no two words alike, none of them 0.
inline std::vector<uint32_t> numbered(uint32_t count) {
  std::vector<uint32_t> words(count);
  for (uint32_t i = 0; i < count; ++i) words[i] = 0x101 + i;
  return words;
}

// 0x01, 0x02, ..., a byte each; none of them 0.
inline std::vector<uint32_t> numbered_bytes(uint32_t count) {
  std::vector<uint32_t> words(count / 4);
  for (uint32_t i = 0; i < count; ++i) words[i / 4] |= (i % 255 + 1) << (i % 4 * 8);
  return words;
}

// 1.0f, 2.0f, ...
inline std::vector<uint32_t> numbered_f32(uint32_t count) {
  std::vector<uint32_t> words(count);
  for (uint32_t i = 0; i < count; ++i) words[i] = std::bit_cast<uint32_t>(static_cast<float>(i + 1));
  return words;
}

// -48, -45, ..., in two's complement.
inline std::vector<uint32_t> signed_integers() {
  std::vector<uint32_t> words;
  for (int i = 0; i < 32; ++i) words.push_back(static_cast<uint32_t>(3 * i - 48));
  return words;
}

// The rows of the tensor of halves that bulk copies read: 1, 2, ..., so that a zero is one from outside.
inline std::vector<uint32_t> tensor_rows() {
  std::vector<uint32_t> words(MAP_ROWS * 64);
  for (uint32_t i = 0; i < MAP_ROWS * 64; ++i) words[i] = (2 * i + 1) | (2 * i + 2) << 16;
  return words;
}

// All ordered pairs of f32 where something ends: numbers, the normal ones, their places behind the point.
inline std::vector<uint32_t> pairs_of_ends() {
  constexpr float VALUES[] = {0.0f,         1.0f,      -3.0f,          0x1.fffffep127f, -0x1p100f, 0x1p-126f,
                              -0x1.8p-130f, 0x1p-149f, 0x1.000002p24f, INFINITY,        -INFINITY, NAN};
  std::vector<uint32_t> words;
  for (const float a : VALUES) {
    for (const float b : VALUES) words.insert(words.end(), {std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)});
  }
  return words;
}

// All ordered triples of five integers.
inline std::vector<uint32_t> triples() {
  constexpr uint32_t VALUES[] = {0x80000000u, static_cast<uint32_t>(-7), 0, 5, 0x7fffffffu};
  std::vector<uint32_t> words;
  for (const uint32_t a : VALUES) {
    for (const uint32_t b : VALUES) {
      for (const uint32_t c : VALUES) words.insert(words.end(), {a, b, c});
    }
  }
  return words;
}

// Three votes of 32 lanes: nobody says yes, lane 19 alone does, everybody does.
inline std::vector<uint32_t> ballots() {
  std::vector<uint32_t> words(96);
  words[32 + 19] = 1;
  std::fill(words.begin() + 64, words.end(), 1u);
  return words;
}

// -16.0f, -15.0f, ...
inline std::vector<uint32_t> small_floats() {
  std::vector<uint32_t> words;
  for (int i = -16; i < 16; ++i) words.push_back(std::bit_cast<uint32_t>(static_cast<float>(i)));
  return words;
}

// Four 8x8 matrices of 16-bit elements, one row after the other. Element (m, row, column) is the hex number 0mrc.
inline std::vector<uint32_t> matrix_rows() {
  std::vector<uint32_t> words;
  for (uint32_t m = 0; m < 4; ++m) {
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t column = 0; column < 8; column += 2) {
        const uint32_t even = m << 8 | row << 4 | column;
        words.push_back(even | (even + 1) << 16);
      }
    }
  }
  return words;
}

// An integer so small that both types have it.
inline uint32_t as_f16(int value) {
  return ladder::to_f16(static_cast<float>(value)).bits;
}
inline uint32_t as_bf16(int value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16;
}
inline uint32_t as_e4m3(int value) {  // up to 16: more have a step of 2
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return value == 0 ? 0 : (bits >> 24 & 0x80) | (((bits >> 20 & 0x7ff) - (120 << 3)) & 0x7f);
}
// Another one, of all that a byte has: sums are as large as they come.
inline uint32_t as_s8(int value) {
  return static_cast<uint8_t>(16 * value - std::max(value, 0) % 3);
}

// A[16 x 16] and B[16 x 8] as f16 or bf16, C[16 x 8] as integers: small enough that every order of summation is exact.
inline std::vector<uint32_t> mma_operands(uint32_t (*element)(int) = as_f16) {
  std::vector<uint32_t> words;
  for (int i = 0; i < 16 * 16; ++i) words.push_back(element(i * i % 17 - 8));
  for (int i = 0; i < 16 * 8; ++i) words.push_back(element(i * 5 % 13 + i / 32 - 7));
  for (int i = 0; i < 16 * 8; ++i) words.push_back(static_cast<uint32_t>(i * 11 % 199 - 99));
  return words;
}

// A 16 x 16 matrix of f16, two to a word: `element` gives number i, counted row by row.
template <class Element>
std::vector<uint32_t> half_matrix(Element element) {
  std::vector<uint32_t> words;
  for (int i = 0; i < 256; i += 2) {
    const auto half = [&](int j) { return uint32_t{ladder::to_f16(static_cast<float>(element(j))).bits}; };
    words.push_back(half(i) | half(i + 1) << 16);
  }
  return words;
}
// 1 to 256: no two alike, all exact in f16.
inline std::vector<uint32_t> numbered_halves() {
  return half_matrix([](int i) { return i + 1; });
}
// A 16 x 16 matrix of f32: -128 to 127.
inline std::vector<uint32_t> numbered_floats() {
  std::vector<uint32_t> words;
  for (int i = -128; i < 128; ++i) words.push_back(std::bit_cast<uint32_t>(static_cast<float>(i)));
  return words;
}
// A, B and C, small enough that every order of summation is exact.
inline std::vector<uint32_t> wmma_operands() {
  std::vector<uint32_t> words = half_matrix([](int i) { return i * i % 17 - 8; });
  for (const uint32_t word : half_matrix([](int i) { return i * 5 % 13 + i / 32 - 7; })) words.push_back(word);
  for (const uint32_t word : numbered_floats()) words.push_back(word);
  return words;
}

// A[64 x 64] and 64 x n of B, so small that every sum is exact and all columns of D differ.
inline std::vector<uint32_t> wgmma_operands(uint32_t n, uint32_t (*element)(int) = as_f16) {
  std::vector<uint32_t> words;
  const int in_a_word = element == as_e4m3 || element == as_s8 ? 4 : 2, bits = 32 / in_a_word;
  const auto add = [&](uint32_t rows, auto value) {
    for (uint32_t word = 0; word < rows * 32; ++word) {
      words.push_back(0);
      for (int i = 0; i < in_a_word; ++i)
        words.back() |= element(value(static_cast<int>(word) * in_a_word + i)) << i * bits;
    }
  };
  add(64, [](int i) { return i * i % 17 - 8; });
  add(n, [](int i) { return i * 5 % 13 + i / 64 % 7 - 7; });
  return words;
}

// Pairs: addresses and distances, in bytes.
inline std::vector<uint32_t> places() {
  return {1024, 16384, 1024 + 96, 8192, 66560, 16, 230400, 32768};
}

inline std::vector<uint32_t> bits_of(std::initializer_list<float> values) {
  std::vector<uint32_t> words;
  for (const float value : values) words.push_back(std::bit_cast<uint32_t>(value));
  return words;
}

// f32 values whose rounding to f16 is a decision: ties, the edges of the subnormals and of infinity, NaN.
inline std::vector<uint32_t> rounding_inputs() {
  constexpr float INF = std::numeric_limits<float>::infinity();
  std::vector<uint32_t> words = bits_of({
      0.0f,       -0.0f,        1.0f,         -1.0f,           7.0f,
      -13.0f,     0.1f,         1.0f / 3.0f,                                   // numbers
      0x1.002p0f, 0x1.006p0f,   -0x1.002p0f,  0x1.002002p0f,   0x1.001ffep0f,  // ties around 1, and just beside one
      2049.0f,    2051.0f,      -2049.0f,     2049.001f,                       // ties among integers
      65504.0f,   65519.0f,     65519.996f,   65520.0f,        -65520.0f,
      1e30f,      INF,          -INF,                        // up to infinity
      0x1p-14f,   0x1.ffcp-15f, 0x1.ffep-15f, 0x1.ffdp-15f,  // normal and subnormal meet
      0x1p-24f,   -0x1p-24f,    0x1p-25f,     0x1.000002p-25f, 0x1.8p-24f,
      0x1.8p-25f, 0x1p-26f,     1e-40f,  // the smallest
  });
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu}) words.push_back(nan);
  return words;
}

// The same of bf16.
inline std::vector<uint32_t> bf16_rounding_inputs() {
  constexpr float INF = std::numeric_limits<float>::infinity();
  std::vector<uint32_t> words = bits_of({
      0.0f,        -0.0f,           1.0f,         -1.0f,         -13.0f,          0.1f,
      1.0f / 3.0f, 70000.0f,                                                     // numbers
      0x1.01p0f,   0x1.03p0f,       -0x1.01p0f,   0x1.010002p0f, 0x1.00fffep0f,  // ties around 1, and just beside one
      257.0f,      259.0f,          -257.0f,      511.0f,                        // ties among integers
      0x1.fep127f, 0x1.fefffep127f, 0x1.ffp127f,  -0x1.ffp127f,  0x1.fffffep127f, INF,
      -INF,                                                      // up to infinity
      0x1p-126f,   0x1.fcp-127f,    0x1.fep-127f, 0x1.fdp-127f,  // normal and subnormal meet
      0x1p-133f,   -0x1p-133f,      0x1p-134f,    INF,           0x1.8p-133f,     0x1.8p-132f,
      0x1p-135f,   0x1p-149f,  // the smallest
  });
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu}) words.push_back(nan);
  return words;
}

// Every value with the one behind it: both halves of the register see every decision.
inline std::vector<uint32_t> in_pairs(const std::vector<uint32_t>& values) {
  std::vector<uint32_t> words;
  for (size_t i = 0; i < values.size(); ++i) {
    words.push_back(values[i]);
    words.push_back(values[(i + 1) % values.size()]);
  }
  return words;
}

// f16 bits: every exponent with four mantissas, signs alternating; exponent 0 is subnormal, 31 infinity and NaN.
inline std::vector<uint32_t> every_exponent() {
  std::vector<uint32_t> words;
  for (uint32_t exponent = 0; exponent < 32; ++exponent) {
    for (const uint32_t mantissa : {0x000u, 0x001u, 0x200u, 0x3ffu}) {
      words.push_back((words.size() * 3 / 2 % 2) << 15 | exponent << 10 | mantissa);
    }
  }
  return words;
}

// Two times two f16: of every exponent, less some of another one; and from 1024 on, less 1152.
inline std::vector<uint32_t> differences_of_f16() {
  const std::vector<uint32_t> all = every_exponent();
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < all.size(); ++i)
    words.insert(words.end(), {all[i] | (0x6400 + 2 * i) << 16, all[(i * 37 + 5) % all.size()] | 0x6480u << 16});
  return words;
}

// All bytes, two at a time.
inline std::vector<uint32_t> pairs_of_bytes() {
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < 256; i += 2) words.push_back(i | (i + 1) << 8);
  return words;
}

// Two words and a selector.
inline std::vector<uint32_t> selections() {
  std::vector<uint32_t> words;
  for (const uint32_t selector :
       {0x3210u, 0x7654u, 0x0123u, 0x5410u, 0x7632u, 0x6420u, 0xfedcu, 0xba98u, 0x0f8bu, 0x12343333u})
    words.insert(words.end(), {0x83020180u, 0x7f86857eu, selector});
  return words;
}

// The same of bf16, of the exponents at both ends and around 1.
inline std::vector<uint32_t> bf16_exponents() {
  std::vector<uint32_t> words;
  for (const uint32_t exponent : {0u, 1u, 2u, 112u, 113u, 126u, 127u, 128u, 142u, 143u, 253u, 254u, 255u}) {
    for (const uint32_t mantissa : {0x00u, 0x01u, 0x40u, 0x7fu})
      words.push_back((words.size() * 3 / 2 % 2) << 15 | exponent << 7 | mantissa);
  }
  return words;
}

// The same of bf16: and above 128 and the numbers of four bits that are shifted by 8, less 136.
inline std::vector<uint32_t> differences_of_bf16() {
  const std::vector<uint32_t> all = bf16_exponents();
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < all.size(); ++i)
    words.insert(words.end(), {all[i] | (0x4300 + i % 16) << 16, all[(i * 37 + 5) % all.size()] | 0x4308u << 16});
  return words;
}

// What a rounding to so many bits behind the point decides: every number between, just below and just above.
inline std::vector<uint32_t> rounding_inputs_8(int mantissa) {
  constexpr float INF = std::numeric_limits<float>::infinity();
  const int least = mantissa == 3 ? -6 : -14;
  std::vector<uint32_t> words =
      bits_of({0.0f,     -0.0f,    1.0f,     -1.0f,     0.1f,     -3.3f, 448.0f, 463.9f, 464.0f, 464.1f, -480.0f,
               57344.0f, 61439.0f, 61440.0f, -65535.0f, 65536.0f, 1e30f, -1e30f, INF,    -INF,   1e-40f});
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu}) words.push_back(nan);
  for (const int exponent : {least, least + 1, 0, mantissa == 3 ? 8 : 15}) {
    for (int half = 0; half < 2 << mantissa; ++half) {
      const float tie = std::ldexp(static_cast<float>(2 * half + 1), exponent - mantissa - 1);
      for (const float value : {tie, std::nextafter(tie, 0.0f), -std::nextafter(tie, INF)})
        words.push_back(std::bit_cast<uint32_t>(value));
    }
  }
  return words;
}

// Positive numbers, but for those between 1/2 and 2, whose logarithm has an absolute error; and 0, and what counts as 0.
inline std::vector<uint32_t> positive_numbers() {
  std::vector<uint32_t> words = bits_of({0.0f, 1e-40f, std::numeric_limits<float>::infinity()});
  for (const uint32_t exponent : {1u, 2u, 64u, 100u, 124u, 125u, 128u, 129u, 130u, 140u, 191u, 252u, 253u, 254u}) {
    for (const uint32_t mantissa : {0x000000u, 0x000001u, 0x123456u, 0x400000u, 0x7fffffu})
      words.push_back(exponent << 23 | mantissa);
  }
  return words;
}

inline std::vector<uint32_t> exponents() {
  constexpr float INF = std::numeric_limits<float>::infinity(), NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();
  std::vector<uint32_t> words = bits_of({
      -INF,    -1e30f,  -1000.0f,   -150.0f, -149.0f, -148.5f, -140.0f,
      -127.0f, -126.5f, -126.0625f,                                           // 0, or flushed to 0
      -126.0f, -125.5f,                                                       // the smallest normals
      -0.0f,   0.0f,    1e-40f,     -1e-40f, 1e-8f,   -1e-8f,                 // 1, or nearly so
      127.0f,  127.5f,  127.9375f,  128.0f,  1000.0f, INF,     NOT_A_NUMBER,  // up to infinity
  });
  for (int i = -24; i <= 24; ++i) words.push_back(std::bit_cast<uint32_t>(static_cast<float>(i)));
  // What a softmax asks for: [-20, 0], in steps that are no power of two.
  for (int i = 1; i <= 54; ++i) words.push_back(std::bit_cast<uint32_t>(-0.37f * static_cast<float>(i)));
  return words;
}

inline uint32_t size(const std::vector<uint32_t>& words) {
  return static_cast<uint32_t>(words.size());
}

}  // namespace cases

// D = A B with all of B's forms: 64 x 64 x n.
inline ladder::conformance::Case wgmma(std::string_view name, void (*kernel)(const uint32_t*, uint32_t*), uint32_t n,
                                       uint32_t (*element)(int) = cases::as_f16) {
  return {
      .primitive = name,
      .what = "D[64 x n] = A B on small integers, in four slices of 32 bytes of k",
      .layout = n == 64
                    ? "D as integers, row by row"
                    : "words 2t, 2t+1: of the elements of thread t in its two rows the sum, each times its column + 1",
      .kernel = kernel,
      .input = cases::wgmma_operands(n, element),
      .output_words = n == 64 ? 4096u : 256u,
      .threads = 128,
      .smem_bytes = WGMMA_SMEM,
      .words_per_line = n == 64 ? 64u : 8u,
      .min_sm = 90};
}

// clang-format off
inline std::vector<ladder::conformance::Case> all_cases() {
  using namespace cases;
  return {
    {.primitive = "smem_base", .what = "begin of shared memory modulo its alignment, 1024",
     .layout = "word t: thread t", .kernel = smem_base_case, .output_words = 64, .threads = 64, .smem_bytes = 1024},
    {.primitive = "smem_name", .what = "store and load a word of a named region",
     .layout = "word t: lane t", .kernel = smem_name_case, .input = numbered(32), .output_words = 32, .smem_bytes = 128},
    {.primitive = "ld_shared_b32", .what = "lane l loads word 5l mod 32",
     .layout = "word l: lane l", .kernel = ld_shared_b32_case, .input = numbered(32), .output_words = 32,
     .smem_bytes = 128},
    {.primitive = "ld_shared_v2", .what = "lane l loads 8-byte chunk 5l mod 32",
     .layout = "words 2l, 2l+1: lane l's x, y", .kernel = ld_shared_v2_case, .input = numbered(64), .output_words = 64,
     .smem_bytes = 256},
    {.primitive = "ld_shared_v4", .what = "lane l loads 16-byte chunk 5l mod 32",
     .layout = "words 4l..4l+3: lane l's x, y, z, w", .kernel = ld_shared_v4_case, .input = numbered(128),
     .output_words = 128, .smem_bytes = 512},
    {.primitive = "st_shared_b32", .what = "lane l stores word 5l mod 32",
     .layout = "shared memory, word by word", .kernel = st_shared_b32_case, .input = numbered(32), .output_words = 32,
     .smem_bytes = 128},
    {.primitive = "st_shared_v2", .what = "lane l stores 8-byte chunk 5l mod 32",
     .layout = "shared memory, word by word", .kernel = st_shared_v2_case, .input = numbered(64), .output_words = 64,
     .smem_bytes = 256},
    {.primitive = "st_shared_v4", .what = "lane l stores 16-byte chunk 5l mod 32",
     .layout = "shared memory, word by word", .kernel = st_shared_v4_case, .input = numbered(128), .output_words = 128,
     .smem_bytes = 512},
    {.primitive = "ld_global_f16", .what = "lane l loads half 5l mod 32",
     .layout = "word l: lane l", .kernel = ld_global_f16_case, .input = matrix_rows(), .output_words = 32},
    {.primitive = "ld_global_bf16", .what = "lane l loads element 5l mod 32",
     .layout = "word l: lane l", .kernel = ld_global_bf16_case, .input = matrix_rows(), .output_words = 32},
    {.primitive = "ld_global_b32", .what = "lane l loads word 5l mod 32",
     .layout = "word l: lane l", .kernel = ld_global_b32_case, .input = numbered(32), .output_words = 32},
    {.primitive = "ld_global_f32", .what = "lane l loads word 5l mod 32",
     .layout = "word l: lane l (f32)", .kernel = ld_global_f32_case, .input = small_floats(), .output_words = 32},
    {.primitive = "ld_global_s32", .what = "lane l loads integer 5l mod 32 and halves it",
     .layout = "word l: lane l", .kernel = ld_global_s32_case, .input = signed_integers(), .output_words = 32},
    {.primitive = "ld_global_v4", .what = "lane l loads 16-byte chunk 5l mod 32",
     .layout = "words 4l..4l+3: lane l's x, y, z, w", .kernel = ld_global_v4_case, .input = numbered(128),
     .output_words = 128},
    {.primitive = "st_global_f16", .what = "lane l stores half 5l mod 32",
     .layout = "global memory, word by word", .kernel = st_global_f16_case, .input = numbered(32), .output_words = 16},
    {.primitive = "st_global_bf16", .what = "lane l stores element 5l mod 32",
     .layout = "global memory, word by word", .kernel = st_global_bf16_case, .input = numbered(32), .output_words = 16},
    {.primitive = "st_global_b32", .what = "lane l stores word 5l mod 32",
     .layout = "global memory, word by word", .kernel = st_global_b32_case, .input = numbered(32), .output_words = 32},
    {.primitive = "st_global_f32", .what = "lane l stores word 5l mod 32",
     .layout = "global memory, word by word (f32)", .kernel = st_global_f32_case, .input = small_floats(),
     .output_words = 32},
    {.primitive = "st_global_v4", .what = "lane l stores 16-byte chunk 5l mod 32",
     .layout = "global memory, word by word", .kernel = st_global_v4_case, .input = numbered(128), .output_words = 128},
    {.primitive = "red_global_add_f32", .what = "128 threads, thread t adds in[t] to word 5t mod 32 of 32 words of 0.5",
     .layout = "32 sums (f32); word 32+t: sum t+1 mod 32, which thread t reads; 2^-127 plus 2^-127",
     .kernel = red_global_add_f32_case, .input = numbered(128), .output_words = 161, .threads = 128},
    {.primitive = "atom_global_add_u32", .what = "four warps draw numbers, and add in[number] to a word in the order of these",
     .layout = "numbers drawn, turns passed on, the sum; words 4 to 7: what each number has found", .kernel = in_turn_case,
     .input = numbered(4), .output_words = 8, .threads = 128},
    {.primitive = "atom_global_inc_u32", .what = "128 threads count up to 6 and again from 0, in a word that is above 6 at first",
     .layout = "how often 0 to 6 were found, and anything else; the word", .kernel = atom_global_inc_u32_case,
     .output_words = 9, .threads = 128, .words_per_line = 9},
    {.primitive = "fence_acq_rel_gpu", .what = "six blocks leave 64 words each and count themselves; the last one adds up what all have left",
     .layout = "word 0: the counter; 64+64b+t: thread t of block b; the last 64: the sums", .kernel = last_block_case,
     .input = numbered(384), .output_words = 512, .threads = 64, .grid_x = 6, .smem_bytes = 4},
    {.primitive = "createpolicy_evict_first", .what = "lane l loads 16-byte chunk 5l mod 32, which the L2 cache is to give up first",
     .layout = "words 4l..4l+3: lane l's x, y, z, w", .kernel = ld_global_v4_policy_case<true>, .input = numbered(128),
     .output_words = 128},
    {.primitive = "createpolicy_evict_last", .what = "lane l loads 16-byte chunk 5l mod 32, which the L2 cache is to give up last",
     .layout = "words 4l..4l+3: lane l's x, y, z, w", .kernel = ld_global_v4_policy_case<false>, .input = numbered(128),
     .output_words = 128},
    {.primitive = "cp_async_bulk.policy",
     .what = "words 0 to 63 to word 64, with a cache policy, 64 to 79 to word 0, 80 to 127 to word 16",
     .layout = "shared memory, word by word", .kernel = cp_async_bulk_case<true>, .input = numbered(128), .output_words = 128,
     .threads = 64, .smem_bytes = 520, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_4d.policy",
     .what = "boxes of 64 x 8 x 2 x 1 from a tensor of 64 x 10 x 2 x 2 halves 1, 2, ...: at (0, 1, 0, 1), with a cache policy, and at (8, 5, 0, 0), with parts outside",
     .layout = "shared memory, word by word, a row of a box per line", .input = tensor_rows(),
     .output_words = 2 * BOX_BYTES_4D / 4, .threads = 64, .smem_bytes = 2 * BOX_BYTES_4D + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "red_release_add_u32", .what = "four warps draw numbers, and add in[number] to a word in the order of these",
     .layout = "numbers drawn, turns passed on, the sum; words 4 to 7: what each number has found", .kernel = in_turn_case,
     .input = numbered(4), .output_words = 8, .threads = 128},
    {.primitive = "ld_acquire_wait_u32", .what = "four warps draw numbers, and add in[number] to a word in the order of these",
     .layout = "numbers drawn, turns passed on, the sum; words 4 to 7: what each number has found", .kernel = in_turn_case,
     .input = numbered(4), .output_words = 8, .threads = 128},
    {.primitive = "cp_async_16.zero_fill", .what = "lane l copies 5l mod 17 bytes of 16-byte chunk l to chunk 5l mod 32",
     .layout = "shared memory, word by word", .kernel = cp_async_16_zero_fill_case, .input = numbered_bytes(512),
     .output_words = 128, .smem_bytes = 512},
    {.primitive = "cp_async_4", .what = "lane l copies word l to word 5l mod 32, or if l is odd a zero",
     .layout = "shared memory, word by word", .kernel = cp_async_4_case, .input = numbered(32), .output_words = 32,
     .smem_bytes = 128},
    {.primitive = "cp_async_16", .what = "lane l copies 16-byte chunk l to chunk 5l mod 32",
     .layout = "shared memory, word by word", .kernel = cp_async_16_case, .input = numbered(128), .output_words = 128,
     .smem_bytes = 512},
    {.primitive = "cp_async_commit", .what = "a group of two copies, an empty group; wait for all groups but one",
     .layout = "words 8l..8l+7: what lane l reads", .kernel = cp_async_commit_case, .input = numbered(256),
     .output_words = 256, .smem_bytes = 1024},
    {.primitive = "cp_async_wait", .what = "three groups of one copy each, waited for one by one",
     .layout = "words 12l..12l+11: what lane l reads, a group after each wait", .kernel = cp_async_wait_case,
     .input = numbered(384), .output_words = 384, .smem_bytes = 1536, .words_per_line = 12},
    {.primitive = "__syncthreads", .what = "128 threads, thread t reads from t+37, then writes to it",
     .layout = "word t: thread t's first read; word 128+t: its second", .kernel = syncthreads_case,
     .input = numbered(256), .output_words = 256, .threads = 128, .smem_bytes = 512},
    {.primitive = "__syncwarp", .what = "lane l reads from l+13, then writes to it",
     .layout = "word l: lane l's first read; word 32+l: its second", .kernel = syncwarp_case, .input = numbered(64),
     .output_words = 64, .smem_bytes = 128},
    {.primitive = "named_barrier_sync", .what = "two pairs of warps, thread t of a pair reads from t+37",
     .layout = "word t: thread t", .kernel = named_barrier_sync_case, .input = numbered(128), .output_words = 128,
     .threads = 128, .smem_bytes = 512},
    {.primitive = "named_barrier_arrive", .what = "warp 0 fills a buffer three times, lane l of warp 1 reads from l+13",
     .layout = "word 32r+l: lane l of warp 1 in round r", .kernel = named_barrier_arrive_case, .input = numbered(96),
     .output_words = 96, .threads = 64, .smem_bytes = 128},
    {.primitive = "mbarrier_init", .what = "barriers of 1, 20 and 32 arrivals; as many lanes store, lane l reads from l mod as many",
     .layout = "word 32i+l: lane l behind the i-th barrier", .kernel = mbarrier_init_case, .input = numbered(96),
     .output_words = 96, .smem_bytes = 152},
    {.primitive = "mbarrier_inval", .what = "at one place barriers of 1, 20 and 32 arrivals; as many lanes store, lane l reads from l mod as many",
     .layout = "word 32i+l: lane l behind the i-th barrier", .kernel = mbarrier_inval_case, .input = numbered(96),
     .output_words = 96, .smem_bytes = 136},
    {.primitive = "mbarrier_arrive", .what = "warp 0 fills a buffer five times, lane l of warp 1 reads from l+13",
     .layout = "word 32r+l: lane l of warp 1 in round r", .kernel = mbarrier_arrive_case, .input = numbered(160),
     .output_words = 160, .threads = 64, .smem_bytes = 144},
    {.primitive = "cp_async_mbarrier_arrive_noinc",
     .what = "two halves; lane l of warp 0 copies 16-byte chunk l to chunk 5l mod 32, warp 1 reads behind each half's barrier",
     .layout = "shared memory, word by word", .kernel = cp_async_mbarrier_arrive_noinc_case, .input = numbered(256),
     .output_words = 256, .threads = 64, .smem_bytes = 1040},
    {.primitive = "mbarrier_wait_parity", .what = "64 threads, four phases, thread t reads from t+37",
     .layout = "word 64p+t: thread t behind phase p", .kernel = mbarrier_wait_parity_case, .input = numbered(256),
     .output_words = 256, .threads = 64, .smem_bytes = 1032},
    {.primitive = "cp_async_bulk", .what = "words 0 to 63 to word 64, 64 to 79 to word 0, 80 to 127 to word 16",
     .layout = "shared memory, word by word", .kernel = cp_async_bulk_case<false>, .input = numbered(128), .output_words = 128,
     .threads = 64, .smem_bytes = 520, .min_sm = 90},
    {.primitive = "cp_async_bulk_store", .what = "words 0 to 63 to word 80, 64 to 79 to word 0, 80 to 127 to word 16",
     .layout = "global memory, word by word", .kernel = cp_async_bulk_store_case, .input = numbered(128),
     .output_words = 144, .threads = 64, .smem_bytes = 512, .min_sm = 90},
    {.primitive = "cp_reduce_async_bulk_add_f32",
     .what = "128 floats to as many of 0.5, 64 others to the last 64 of these, then 1 more to each second one",
     .layout = "the sums (f32), and four times 2^-127 plus 2^-127", .kernel = cp_reduce_async_bulk_add_f32_case,
     .input = numbered_f32(256), .output_words = 132, .threads = 64, .smem_bytes = 528, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_3d",
     .what = "four boxes of 64 x 12 x 2 from a tensor of 64 x 20 x 2 halves 1, 2, ...: at (0, 3, 0), and at (24, 13, 0), (-8, -5, 0), (0, 4, 1) with parts outside",
     .layout = "shared memory, word by word, a row of a box per line", .input = tensor_rows(), .output_words = 4 * BOX_BYTES / 4,
     .threads = 128, .smem_bytes = 4 * BOX_ROOM + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_4d",
     .what = "boxes of 64 x 8 x 2 x 1 from a tensor of 64 x 10 x 2 x 2 halves 1, 2, ...: at (0, 1, 0, 1), and at (8, 5, 0, 0), with parts outside",
     .layout = "shared memory, word by word, a row of a box per line", .input = tensor_rows(),
     .output_words = 2 * BOX_BYTES_4D / 4, .threads = 64, .smem_bytes = 2 * BOX_BYTES_4D + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_4d.e4m3",
     .what = "the same by a map of bytes: boxes of 128 x 8 x 2 x 1 at (0, 1, 0, 1) and (16, 5, 0, 0)",
     .layout = "shared memory, word by word, a row of a box per line", .input = tensor_rows(),
     .output_words = 2 * BOX_BYTES_4D / 4, .threads = 64, .smem_bytes = 2 * BOX_BYTES_4D + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_4d_multicast",
     .what = "two blocks, each brings a box of 64 x 8 x 2 x 1 halves of the head of its number, from row 1 on, to both",
     .layout = "shared memory of each, word by word, a row of a box per line", .input = tensor_rows(),
     .output_words = 4 * BOX_BYTES_4D / 4, .threads = 64, .grid_x = 2, .cluster = 2, .smem_bytes = 2 * BOX_BYTES_4D + 8,
     .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_tensor_store_4d",
     .what = "a box of 64 x 8 x 2 x 1 halves 1, 2, ... to (0, 5, 0, 1) of a tensor of 64 x 10 x 2 x 2, over words deadbeef",
     .layout = "the tensor, word by word", .output_words = MAP_ROWS * 64, .threads = 64, .smem_bytes = BOX_BYTES_4D,
     .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_commit",
     .what = "boxes of 64 x 8 x 2 x 1 halves to (0, 0, 0, 0) and (0, 8, 0, 0), then another from where the first was, to (0, 0, 0, 1)",
     .layout = "the tensor of 64 x 10 x 2 x 2, word by word", .output_words = MAP_ROWS * 64, .threads = 64,
     .smem_bytes = 2 * BOX_BYTES_4D, .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_wait_read",
     .what = "boxes of 64 x 8 x 2 x 1 halves to (0, 0, 0, 0) and (0, 8, 0, 0), then another from where the first was, to (0, 0, 0, 1)",
     .layout = "the tensor of 64 x 10 x 2 x 2, word by word", .output_words = MAP_ROWS * 64, .threads = 64,
     .smem_bytes = 2 * BOX_BYTES_4D, .words_per_line = 32, .min_sm = 90},
    {.primitive = "cp_async_bulk_wait", .what = "a box of 64 x 8 x 2 x 1 halves to (0, 0, 0, 0), whose first 64 halves are then made 1 more",
     .layout = "the tensor of 64 x 10 x 2 x 2, word by word", .output_words = MAP_ROWS * 64, .threads = 64,
     .smem_bytes = BOX_BYTES_4D, .words_per_line = 32, .min_sm = 90},
    {.primitive = "mbarrier_arrive_expect_tx", .what = "three phases of a box of 64 x 12 x 2 halves, from rows 0, 4 and 8 on, and a word",
     .layout = "word 64p: the word of phase p; word 64p+t: word 12t of its box", .input = tensor_rows(), .output_words = 192,
     .threads = 64, .smem_bytes = BOX_ROOM + 16, .min_sm = 90},
    {.primitive = "fence_mbarrier_init", .what = "two warps, each asks for a box of 64 x 12 x 2 halves, from rows 0 and 8 on, and reads the other's",
     .layout = "word 128w+i: word i of the box that warp w reads", .input = tensor_rows(), .output_words = 256,
     .threads = 64, .smem_bytes = 2 * BOX_ROOM + 16, .words_per_line = 32, .min_sm = 90},
    {.primitive = "fence_proxy_async_shared", .what = "a box of 64 x 12 x 2 halves, from row 8 on, over words that 64 threads have stored and fenced",
     .layout = "the box, word by word, a row per line", .input = tensor_rows(), .output_words = BOX_BYTES / 4,
     .threads = 64, .smem_bytes = BOX_ROOM + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "fence_proxy_async", .what = "a box of 64 x 12 x 2 halves, from row 8 on, over words that 64 threads have stored, fenced by who asks for it",
     .layout = "the box, word by word, a row per line", .input = tensor_rows(), .output_words = BOX_BYTES / 4,
     .threads = 64, .smem_bytes = BOX_ROOM + 8, .words_per_line = 32, .min_sm = 90},
    {.primitive = "launch", .what = "grid 3x2, 32 threads a block, each tells its indices and the shapes",
     .layout = "word 32b+t: thread t of block b; in decimal: block y, x, thread (2 digits), grid y, x, block (2 digits)",
     .kernel = launch_case, .output_words = 192, .grid_x = 3, .grid_y = 2},
    {.primitive = "launch_dependent", .what = "4 blocks of 64 threads store words; a dependent launch reads them, thread t from t+37",
     .layout = "what the first launch has stored, and what the second one has read", .kernel = before_dependents_case,
     .input = numbered(256), .output_words = 512, .threads = 64, .grid_x = 4, .min_sm = 90},
    {.primitive = "griddepcontrol_launch_dependents",
     .what = "4 blocks of 64 threads store words when a dependent launch may have begun; that reads them, thread t from t+37",
     .layout = "what the first launch has stored, and what the second one has read", .kernel = before_dependents_case,
     .input = numbered(256), .output_words = 512, .threads = 64, .grid_x = 4, .min_sm = 90},
    {.primitive = "griddepcontrol_wait", .what = "4 blocks of 64 threads wait for the launch before, and read its words, thread t from t+37",
     .layout = "what the first launch has stored, and what the second one has read", .kernel = before_dependents_case,
     .input = numbered(256), .output_words = 512, .threads = 64, .grid_x = 4, .min_sm = 90},
    {.primitive = "shfl_xor", .what = "lane l offers l + 0x101 to the masks 1, 2, 4, 8, 16 and 31",
     .layout = "word 32i+l: what lane l gets from the i-th mask", .kernel = shfl_xor_case, .input = numbered(32),
     .output_words = 192},
    {.primitive = "shfl", .what = "lane l asks lanes 0, 31, 7l + 3 and l - 5, modulo 32",
     .layout = "word 32i+l: what lane l gets from the i-th", .kernel = shfl_case, .input = numbered(32),
     .output_words = 128},
    {.primitive = "vote_any", .what = "no lane, lane 19 alone, every lane says yes",
     .layout = "word 32i+l: what lane l hears in the i-th vote", .kernel = vote_any_case, .input = ballots(),
     .output_words = 96},
    {.primitive = "ldmatrix_x4", .what = "four 8x8 matrices; element (row, column) of matrix m is 0mrc",
     .layout = "words 4l..4l+3: lane l's registers", .kernel = ldmatrix_x4_case, .input = matrix_rows(),
     .output_words = 128, .smem_bytes = 512},
    {.primitive = "ldmatrix_x2_trans", .what = "the first two of four 8x8 matrices; element (row, column) of matrix m is 0mrc",
     .layout = "words 2l, 2l+1: lane l's registers", .kernel = ldmatrix_x2_trans_case, .input = matrix_rows(),
     .output_words = 64, .smem_bytes = 512},
    {.primitive = "ldmatrix_x4_trans", .what = "four 8x8 matrices; element (row, column) of matrix m is 0mrc",
     .layout = "words 4l..4l+3: lane l's registers", .kernel = ldmatrix_x4_trans_case, .input = matrix_rows(),
     .output_words = 128, .smem_bytes = 512},
    {.primitive = "stmatrix_x4", .what = "four 8x8 matrices, row r of matrix m to the 16-byte chunk 5(8m + r) mod 32",
     .layout = "shared memory, word by word", .kernel = stmatrix_x4_case<false>, .input = numbered(128), .output_words = 128,
     .smem_bytes = 512, .min_sm = 90},
    {.primitive = "stmatrix_x4_trans",
     .what = "four 8x8 matrices, column r of matrix m to the 16-byte chunk 5(8m + r) mod 32",
     .layout = "shared memory, word by word", .kernel = stmatrix_x4_case<true>, .input = matrix_rows(), .output_words = 128,
     .smem_bytes = 512, .min_sm = 90},
    {.primitive = "elect_sync", .what = "twice: how many lanes are elected, and whether it is the same one",
     .layout = "word l: their number; word 32+l: 1", .kernel = elect_sync_case, .output_words = 64, .min_sm = 90},
    {.primitive = "wgmma_descriptor", .what = "of pairs of an address and the bytes from a panel to the next",
     .layout = "each line: low word, high word", .kernel = wgmma_descriptor_case, .input = places(),
     .output_words = size(places()), .threads = size(places()) / 2, .words_per_line = 2, .min_sm = 90},
    {.primitive = "wgmma_advance", .what = "of pairs of an address and the bytes to go on from there",
     .layout = "each line: low word, high word", .kernel = wgmma_advance_case, .input = places(),
     .output_words = size(places()), .threads = size(places()) / 2, .words_per_line = 2, .min_sm = 90},
    wgmma("wgmma_ss.n8", wgmma_ss_case<8, false>, 8), wgmma("wgmma_rs.n8", wgmma_rs_case<8, false>, 8),
    wgmma("wgmma_ss_bf16.n8", wgmma_ss_case<8, false, bf16>, 8, as_bf16),
    wgmma("wgmma_rs_bf16.n8", wgmma_rs_case<8, false, bf16>, 8, as_bf16),
    wgmma("wgmma_ss_bf16.n8_trans_b", wgmma_ss_case<8, true, bf16>, 8, as_bf16),
    wgmma("wgmma_ss", wgmma_ss_case<64, false>, 64), wgmma("wgmma_ss.n96", wgmma_ss_case<96, false>, 96),
    wgmma("wgmma_ss.n128", wgmma_ss_case<128, false>, 128), wgmma("wgmma_ss.n176", wgmma_ss_case<176, false>, 176),
    wgmma("wgmma_ss.n192", wgmma_ss_case<192, false>, 192), wgmma("wgmma_ss.n256", wgmma_ss_case<256, false>, 256),
    wgmma("wgmma_ss.trans_b", wgmma_ss_case<64, true>, 64),
    wgmma("wgmma_ss.n128_trans_b", wgmma_ss_case<128, true>, 128),
    wgmma("wgmma_ss.n32_trans_b", wgmma_ss_case<32, true>, 32),
    wgmma("wgmma_rs.n32", wgmma_rs_case<32, false>, 32),
    wgmma("wgmma_rs", wgmma_rs_case<64, false>, 64), wgmma("wgmma_rs.n96", wgmma_rs_case<96, false>, 96),
    wgmma("wgmma_rs.n128", wgmma_rs_case<128, false>, 128), wgmma("wgmma_rs.n176", wgmma_rs_case<176, false>, 176),
    wgmma("wgmma_rs.n192", wgmma_rs_case<192, false>, 192), wgmma("wgmma_rs.n256", wgmma_rs_case<256, false>, 256),
    wgmma("wgmma_rs.trans_b", wgmma_rs_case<64, true>, 64),
    wgmma("wgmma_rs.n128_trans_b", wgmma_rs_case<128, true>, 128),
    wgmma("wgmma_rs.n32_trans_b", wgmma_rs_case<32, true>, 32),
    wgmma("wgmma_rs.n96_trans_b", wgmma_rs_case<96, true>, 96),
    wgmma("wgmma_rs.n192_trans_b", wgmma_rs_case<192, true>, 192),
    wgmma("wgmma_rs.n256_trans_b", wgmma_rs_case<256, true>, 256),
    wgmma("wgmma_ss_bf16", wgmma_ss_case<64, false, bf16>, 64, as_bf16),
    wgmma("wgmma_ss_bf16.n96", wgmma_ss_case<96, false, bf16>, 96, as_bf16),
    wgmma("wgmma_ss_bf16.n128", wgmma_ss_case<128, false, bf16>, 128, as_bf16),
    wgmma("wgmma_ss_bf16.n256", wgmma_ss_case<256, false, bf16>, 256, as_bf16),
    wgmma("wgmma_ss_bf16.trans_b", wgmma_ss_case<64, true, bf16>, 64, as_bf16),
    wgmma("wgmma_ss_bf16.n32_trans_b", wgmma_ss_case<32, true, bf16>, 32, as_bf16),
    wgmma("wgmma_rs_bf16", wgmma_rs_case<64, false, bf16>, 64, as_bf16),
    wgmma("wgmma_rs_bf16.n32", wgmma_rs_case<32, false, bf16>, 32, as_bf16),
    wgmma("wgmma_rs_bf16.n128", wgmma_rs_case<128, false, bf16>, 128, as_bf16),
    wgmma("wgmma_rs_bf16.n256", wgmma_rs_case<256, false, bf16>, 256, as_bf16),
    wgmma("wgmma_rs_bf16.trans_b", wgmma_rs_case<64, true, bf16>, 64, as_bf16),
    wgmma("wgmma_rs_bf16.n32_trans_b", wgmma_rs_case<32, true, bf16>, 32, as_bf16),
    wgmma("wgmma_rs_bf16.n128_trans_b", wgmma_rs_case<128, true, bf16>, 128, as_bf16),
    wgmma("wgmma_rs_bf16.n96_trans_b", wgmma_rs_case<96, true, bf16>, 96, as_bf16),
    wgmma("wgmma_rs_bf16.n192_trans_b", wgmma_rs_case<192, true, bf16>, 192, as_bf16),
    wgmma("wgmma_rs_bf16.n256_trans_b", wgmma_rs_case<256, true, bf16>, 256, as_bf16),
    wgmma("wgmma_ss_e4m3", wgmma_ss_case<64, false, e4m3>, 64, as_e4m3),
    wgmma("wgmma_ss_e4m3.n128", wgmma_ss_case<128, false, e4m3>, 128, as_e4m3),
    wgmma("wgmma_ss_s8", wgmma_ss_case<64, false, int8_t, int32_t>, 64, as_s8),
    wgmma("wgmma_ss_s8.n128", wgmma_ss_case<128, false, int8_t, int32_t>, 128, as_s8),
    wgmma("wgmma_rs_e4m3", wgmma_rs_case<64, false, e4m3>, 64, as_e4m3),
    wgmma("wgmma_rs_e4m3.n128", wgmma_rs_case<128, false, e4m3>, 128, as_e4m3),
    wgmma("wgmma_rs_e4m3.n136", wgmma_rs_case<136, false, e4m3>, 136, as_e4m3),
    {.primitive = "wgmma_fence", .what = "D is thread number t, then D += A B over k = 0..15, D *= 2, D += A B over k = 16..31",
     .layout = "D[64 x 64] as integers, row by row", .kernel = wgmma_fence_case, .input = wgmma_operands(64),
     .output_words = 4096, .threads = 128, .smem_bytes = WGMMA_SMEM, .words_per_line = 64, .min_sm = 90},
    {.primitive = "wgmma_commit", .what = "A B over k = 0..15, and over k = 16..47; a wait for all groups but an empty one",
     .layout = "two D[64 x 64] as integers, row by row", .kernel = wgmma_commit_case, .input = wgmma_operands(64),
     .output_words = 8192, .threads = 128, .smem_bytes = WGMMA_SMEM, .words_per_line = 64, .min_sm = 90},
    {.primitive = "wgmma_wait", .what = "A B over k = 0..15, and over k = 16..47; a wait for each",
     .layout = "two D[64 x 64] as integers, row by row", .kernel = wgmma_wait_case, .input = wgmma_operands(64),
     .output_words = 8192, .threads = 128, .smem_bytes = WGMMA_SMEM, .words_per_line = 64, .min_sm = 90},
    {.primitive = "setmaxnreg_dec", .what = "of three warpgroups the first goes down to 24 registers, then the others up to 240",
     .layout = "word t: in[t], 1 more from thread 128 on", .kernel = setmaxnreg_case<24, 240>, .input = numbered(384),
     .output_words = 384, .threads = 384, .min_sm = 90},
    {.primitive = "setmaxnreg_inc", .what = "of three warpgroups the first goes down to 40 registers, then the others up to 232",
     .layout = "word t: in[t], 1 more from thread 128 on", .kernel = setmaxnreg_case<40, 232>, .input = numbered(384),
     .output_words = 384, .threads = 384, .min_sm = 90},
    {.primitive = "cluster_rank", .what = "six blocks in clusters of two", .layout = "word 32b+t: 100 rank + t",
     .kernel = cluster_rank_case, .output_words = 192, .grid_x = 6, .cluster = 2, .min_sm = 90},
    {.primitive = "launch_clusters", .what = "grid 4x2 in clusters of 4, 32 threads per block",
     .layout = "word 32b+t: thread t of block b; in decimal: block y, x, rank, grid x, thread (2 digits)",
     .kernel = launch_clusters_case, .output_words = 256, .grid_x = 4, .grid_y = 2, .cluster = 4, .min_sm = 90},
    {.primitive = "cluster_sync", .what = "four blocks arrive at barriers that their neighbours have made before",
     .layout = "word 64r+32p+l: lane l of rank r behind phase p", .kernel = mbarrier_arrive_remote_case<1>,
     .input = numbered(256), .output_words = 256, .grid_x = 4, .cluster = 4, .smem_bytes = 8, .min_sm = 90},
    {.primitive = "mapa", .what = "four blocks, lane l of block r stores to word 5l mod 32 of block r + 1 mod 4",
     .layout = "word 32r+l: word l of rank r", .kernel = st_shared_cluster_b32_case<1>, .input = numbered(128),
     .output_words = 128, .grid_x = 4, .cluster = 4, .smem_bytes = 128, .min_sm = 90},
    {.primitive = "st_shared_cluster_b32", .what = "four blocks, lane l of block r stores to word 5l mod 32 of block r + 3 mod 4",
     .layout = "word 32r+l: word l of rank r", .kernel = st_shared_cluster_b32_case<3>, .input = numbered(128),
     .output_words = 128, .grid_x = 4, .cluster = 4, .smem_bytes = 128, .min_sm = 90},
    {.primitive = "st_async_b32", .what = "four blocks, lane l of block r stores to word 5l mod 32 of block r + 1 mod 4, in two phases",
     .layout = "word 64r+32p+l: word l of rank r behind phase p", .kernel = st_async_b32_case, .input = numbered(256),
     .output_words = 256, .grid_x = 4, .cluster = 4, .smem_bytes = 136, .min_sm = 90},
    {.primitive = "mbarrier_arrive_remote", .what = "four blocks, block r arrives at the barrier of block r + 2 mod 4",
     .layout = "word 64r+32p+l: lane l of rank r behind phase p", .kernel = mbarrier_arrive_remote_case<2>,
     .input = numbered(256), .output_words = 256, .grid_x = 4, .cluster = 4, .smem_bytes = 8, .min_sm = 90},
    {.primitive = "mma_m16n8k16", .what = "D = A B + C on small integers",
     .layout = "D[16 x 8] as integers, row by row", .kernel = mma_m16n8k16_case<false>, .input = mma_operands(),
     .output_words = 128},
    {.primitive = "mma_m16n8k16.own_c", .what = "D = A B + C on small integers, C in registers of its own",
     .layout = "D[16 x 8], then C[16 x 8], as integers, row by row", .kernel = mma_m16n8k16_case<true>,
     .input = mma_operands(), .output_words = 256},
    {.primitive = "mma_m16n8k16_bf16", .what = "D = A B + C on small integers in bf16",
     .layout = "D[16 x 8] as integers, row by row", .kernel = mma_m16n8k16_case<false, true>,
     .input = mma_operands(as_bf16), .output_words = 128},
    {.primitive = "mma_m16n8k16_bf16.own_c", .what = "D = A B + C on small integers in bf16, C in registers of its own",
     .layout = "D[16 x 8], then C[16 x 8], as integers, row by row", .kernel = mma_m16n8k16_case<true, true>,
     .input = mma_operands(as_bf16), .output_words = 256},
    {.primitive = "wmma_fill", .what = "fill a 16x16 fragment and store it",
     .layout = "the matrix as integers, row by row", .kernel = wmma_fill_case, .input = numbered(1),
     .output_words = 256, .smem_bytes = F32_BYTES, .words_per_line = 16},
    {.primitive = "wmma_load_a", .what = "A of a leading dimension of 48, times the identity",
     .layout = "A[16 x 16] as integers, row by row", .kernel = wmma_load_case<true, WmmaBRow>, .input = numbered_halves(),
     .output_words = 256, .smem_bytes = 2 * F16_BYTES + F32_BYTES, .words_per_line = 16},
    {.primitive = "wmma_load_b_row", .what = "the identity times B of a leading dimension of 48, stored row by row",
     .layout = "B[16 x 16] as integers, row by row", .kernel = wmma_load_case<false, WmmaBRow>, .input = numbered_halves(),
     .output_words = 256, .smem_bytes = 2 * F16_BYTES + F32_BYTES, .words_per_line = 16},
    {.primitive = "wmma_load_b_col", .what = "the identity times B of a leading dimension of 48, stored column by column",
     .layout = "B[16 x 16] as integers, row by row", .kernel = wmma_load_case<false, WmmaBCol>, .input = numbered_halves(),
     .output_words = 256, .smem_bytes = 2 * F16_BYTES + F32_BYTES, .words_per_line = 16},
    {.primitive = "wmma_load_c", .what = "load C of a leading dimension of 24 and store it",
     .layout = "C[16 x 16] as integers, row by row", .kernel = wmma_load_c_case, .input = numbered_floats(),
     .output_words = 256, .smem_bytes = 2 * F32_BYTES, .words_per_line = 16},
    {.primitive = "wmma_store_d", .what = "store D with a leading dimension of 24 over words deadbeef",
     .layout = "shared memory (f32), 24 words a row, the last 8 of which are not D's", .kernel = wmma_store_d_case,
     .input = numbered_floats(), .output_words = 16 * F32_LD, .smem_bytes = 2 * F32_BYTES, .words_per_line = F32_LD},
    {.primitive = "wmma_mma", .what = "D = A B + C on small integers, B row by row, then B column by column",
     .layout = "two D[16 x 16] as integers, row by row", .kernel = wmma_mma_case, .input = wmma_operands(),
     .output_words = 512, .smem_bytes = 2 * F16_BYTES + F32_BYTES, .words_per_line = 16},
    {.primitive = "pack_f16x2", .what = "two f32 to two f16, round to nearest even",
     .layout = "each line: low, high (f32), packed", .kernel = pack_case<To::f16>, .input = in_pairs(rounding_inputs()),
     .output_words = 3 * rounding_inputs().size(), .threads = size(rounding_inputs()), .words_per_line = 3},
    {.primitive = "pack_bf16x2", .what = "two f32 to two bf16, round to nearest even",
     .layout = "each line: low, high (f32), packed", .kernel = pack_case<To::bf16>, .input = in_pairs(bf16_rounding_inputs()),
     .output_words = 3 * bf16_rounding_inputs().size(), .threads = size(bf16_rounding_inputs()), .words_per_line = 3},
    {.primitive = "pack_e4m3x2", .what = "two f32 to two e4m3, round to nearest even, at most 448",
     .layout = "each line: low, high (f32), packed", .kernel = pack_case<To::e4m3>, .input = in_pairs(rounding_inputs_8(3)),
     .output_words = 3 * rounding_inputs_8(3).size(), .threads = size(rounding_inputs_8(3)), .words_per_line = 3, .min_sm = 90},
    {.primitive = "pack_e5m2x2", .what = "two f32 to two e5m2, round to nearest even, at most 57344",
     .layout = "each line: low, high (f32), packed", .kernel = pack_case<To::e5m2>, .input = in_pairs(rounding_inputs_8(2)),
     .output_words = 3 * rounding_inputs_8(2).size(), .threads = size(rounding_inputs_8(2)), .words_per_line = 3, .min_sm = 90},
    {.primitive = "unpack_e4m3x2", .what = "all e4m3, two at a time, to f16",
     .layout = "each line: two e4m3, two f16", .kernel = unpack_8_bits_case<true>, .input = pairs_of_bytes(),
     .output_words = 256, .threads = 128, .words_per_line = 2, .min_sm = 90},
    {.primitive = "unpack_e5m2x2", .what = "all e5m2, two at a time, to f16",
     .layout = "each line: two e5m2, two f16", .kernel = unpack_8_bits_case<false>, .input = pairs_of_bytes(),
     .output_words = 256, .threads = 128, .words_per_line = 2, .min_sm = 90},
    {.primitive = "sub_f16x2", .what = "two f16 less two, round to nearest even",
     .layout = "each line: two f16, two f16, differences", .kernel = sub_f16x2_case, .input = differences_of_f16(),
     .output_words = 384, .threads = 128, .words_per_line = 3},
    {.primitive = "sub_bf16x2", .what = "two bf16 less two, round to nearest even",
     .layout = "each line: two bf16, two bf16, differences", .kernel = sub_bf16x2_case, .input = differences_of_bf16(),
     .output_words = 3 * size(differences_of_bf16()) / 2, .threads = size(differences_of_bf16()) / 2,
     .words_per_line = 3, .min_sm = 90},
    {.primitive = "prmt_b32", .what = "four of eight bytes, or their signs",
     .layout = "each line: low, high, selector, bytes", .kernel = prmt_b32_case, .input = selections(),
     .output_words = 4 * size(selections()) / 3, .threads = size(selections()) / 3, .words_per_line = 4},
    {.primitive = "lop3_b32", .what = "of three words of all triples of bits: each alone, parity, majority, none",
     .layout = "word i: the i-th function", .kernel = lop3_b32_case, .input = {0xf0f0ff00, 0xccccf0f0, 0xaaaacccc},
     .output_words = 6, .threads = 1},
    {.primitive = "to_float", .what = "f16 to f32",
     .layout = "each line: f16, f32", .kernel = to_float_case<f16>, .input = every_exponent(),
     .output_words = 2 * every_exponent().size(), .threads = size(every_exponent()), .words_per_line = 2},
    {.primitive = "to_float.bf16", .what = "bf16 to f32",
     .layout = "each line: bf16, f32", .kernel = to_float_case<bf16>, .input = bf16_exponents(),
     .output_words = 2 * bf16_exponents().size(), .threads = size(bf16_exponents()), .words_per_line = 2},
    {.primitive = "to_bf16", .what = "f32 to bf16, round to nearest even",
     .layout = "each line: f32, bf16", .kernel = f32_to_case<To::bf16>, .input = bf16_rounding_inputs(),
     .output_words = 2 * bf16_rounding_inputs().size(), .threads = size(bf16_rounding_inputs()), .words_per_line = 2},
    {.primitive = "to_f16", .what = "f32 to f16, round to nearest even",
     .layout = "each line: f32, f16", .kernel = f32_to_case<To::f16>, .input = rounding_inputs(),
     .output_words = 2 * rounding_inputs().size(), .threads = size(rounding_inputs()), .words_per_line = 2},
    {.primitive = "ex2_approx", .what = "2^x; an approximation, held to 2 ulp of these words",
     .layout = "each line: x, 2^x (f32)", .kernel = f32_to_case<To::exp2>, .input = exponents(),
     .output_words = 2 * exponents().size(), .threads = size(exponents()), .words_per_line = 2, .max_ulp = 2},
    {.primitive = "lg2_approx", .what = "log2(x); an approximation, held to 2^-22 of these words",
     .layout = "each line: x, log2(x) (f32)", .kernel = f32_to_case<To::log2>, .input = positive_numbers(),
     .output_words = 2 * positive_numbers().size(), .threads = size(positive_numbers()), .words_per_line = 2, .max_ulp = 2},
    {.primitive = "rcp_approx", .what = "1 / x; an approximation, held to 1 ulp of these words",
     .layout = "each line: x, 1 / x (f32)", .kernel = f32_to_case<To::inverse>, .input = positive_numbers(),
     .output_words = 2 * positive_numbers().size(), .threads = size(positive_numbers()), .words_per_line = 2, .max_ulp = 1},
    {.primitive = "launch.f32_arithmetic", .what = "f32 as C++ has it, at its ends: NaN is any NaN",
     .layout = "each line: a, b, fmaxf, fminf, a + b, a * b, a / b", .kernel = f32_arithmetic_case, .input = pairs_of_ends(),
     .output_words = 7 * size(pairs_of_ends()) / 2, .threads = size(pairs_of_ends()) / 2, .words_per_line = 7, .max_ulp = 1},
    {.primitive = "tanh_approx", .what = "tanh(x); an approximation, held to 2^-10 of these words",
     .layout = "each line: x, tanh(x) (f32)", .kernel = f32_to_case<To::tanh>, .input = exponents(),
     .output_words = 2 * exponents().size(), .threads = size(exponents()), .words_per_line = 2, .max_ulp = 1 << 14},
    {.primitive = "saturate", .what = "x, at least 0 and at most 1; NaN becomes 0",
     .layout = "each line: x, the result (f32)", .kernel = f32_to_case<To::saturated>, .input = exponents(),
     .output_words = 2 * exponents().size(), .threads = size(exponents()), .words_per_line = 2},
    {.primitive = "max_nan", .what = "the larger one of two f32, and NaN, which is any NaN, if either is",
     .layout = "each line: a, b, maximum", .kernel = max_nan_case, .input = pairs_of_ends(),
     .output_words = 3 * size(pairs_of_ends()) / 2, .threads = size(pairs_of_ends()) / 2, .words_per_line = 3, .max_ulp = 1},
    {.primitive = "max3_s32", .what = "the largest of three signed integers",
     .layout = "each line: a, b, c, maximum", .kernel = max3_s32_case, .input = triples(),
     .output_words = 4 * size(triples()) / 3, .threads = size(triples()) / 3, .words_per_line = 4},
  };
}
// clang-format on

// The kernels on a tensor map, by primitive.
inline void (*map_kernel(std::string_view primitive))(TensorMap, uint32_t*) {
  if (primitive == "cp_async_bulk_tensor_3d") return cp_async_bulk_tensor_3d_case;
  if (primitive == "cp_async_bulk_tensor_4d") return cp_async_bulk_tensor_4d_case<false>;
  if (primitive == "cp_async_bulk_tensor_4d.e4m3") return cp_async_bulk_tensor_4d_case<false, 16>;
  if (primitive == "cp_async_bulk_tensor_4d.policy") return cp_async_bulk_tensor_4d_case<true>;
  if (primitive == "cp_async_bulk_tensor_4d_multicast") return cp_async_bulk_tensor_4d_multicast_case;
  if (primitive == "cp_async_bulk_tensor_store_4d") return cp_async_bulk_tensor_store_4d_case;
  if (primitive == "cp_async_bulk_commit") return cp_async_bulk_wait_read_case;
  if (primitive == "cp_async_bulk_wait_read") return cp_async_bulk_wait_read_case;
  if (primitive == "cp_async_bulk_wait") return cp_async_bulk_wait_case;
  if (primitive == "fence_proxy_async") return fence_proxy_async_case;
  if (primitive == "fence_proxy_async_shared") return fence_proxy_async_shared_case;
  return primitive == "fence_mbarrier_init" ? fence_mbarrier_init_case : mbarrier_arrive_expect_tx_case;
}

// Launches a case, on whatever this is compiled for. `in` and `out` are the device's.
inline void run_case(Device& device, const ladder::conformance::Case& test, const uint32_t* in, uint32_t* out) {
  const dim3 grid(test.grid_x, test.grid_y), block(test.threads);
  if (test.kernel == before_dependents_case) {
    launch(device, test.kernel, grid, block, test.smem_bytes, in, out);
    return launch_dependent(device, dependent_case, grid, block, test.smem_bytes, out);
  }
  if (test.kernel != nullptr) {
    if (test.cluster == 1) return launch(device, test.kernel, grid, block, test.smem_bytes, in, out);
    return launch_clusters(device, test.kernel, grid, block, test.cluster, test.smem_bytes, in, out);
  }
  // Of what the case reads, or has no input and stores.
  const f16* const tensor = reinterpret_cast<const f16*>(test.input.empty() ? out : in);
  const bool is_4d = test.input.empty() || test.primitive.find("_4d") != std::string_view::npos;
  const TensorMap map =
      test.primitive.ends_with(".e4m3")
          ? tensor_map_4d_e4m3(device, reinterpret_cast<const e4m3*>(tensor), {128, ROWS_4D, 2, 2},
                               {256, 128, ROWS_4D * 256}, {128, BOX_ROWS_4D, 2, 1})
      : is_4d ? tensor_map_4d(device, tensor, {64, ROWS_4D, 2, 2}, {256, 128, ROWS_4D * 256}, {64, BOX_ROWS_4D, 2, 1})
              : tensor_map_3d(device, tensor, {64, MAP_ROWS, 2}, {256, 128}, {64, BOX_ROWS, 2});
  launch_clusters(device, map_kernel(test.primitive), grid, block, test.cluster, test.smem_bytes, map, out);
}

}  // namespace
