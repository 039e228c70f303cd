// The arithmetic of mma.m16n8k16 for a whole warp, and of wgmma for a warpgroup.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

// D[16][8] = A[16][16] * B[16][8] + C in f32. Operands are registers by lane in PTX's fragment order, B's lanes with
// row pairs outermost: a[r][lane], b[r][lane % 4 * 8 + lane / 4]. Products are exact in f32, but for those of bf16 that
// are subnormal there, and sums go by ascending k, C last, so that every host computes the same bits. A sum of f16 of which
// a factor is subnormal is bit for bit an H200's, which loses more there: see docs/adder.md.
using Multiply = void (*)(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d);

void multiply_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d);
void multiply_bf16_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], const float* c, float* d);

// The fastest that this CPU can run.
extern const Multiply multiply, multiply_bf16;

// C[64][n] += A[64][16] * B[16][n] in f32, for wgmma; n is a multiple of 8. As above the product's sum comes before C.
using MultiplyTile = void (*)(const float* a, const float* b, float* c, uint32_t n);

void multiply_tile_portable(const float* a, const float* b, float* c, uint32_t n);

extern const MultiplyTile multiply_tile;

// Whether there are any among numbers of f16, a multiple of 16; and the same product for A or B that has some, as above.
bool has_subnormals(const void* halves, size_t count);
void multiply_tile_subnormals(const float* a, const float* b, float* c, uint32_t n);

// The same in e4m3, of A[64][32] and B's columns [n][32], bit for bit as an H200 adds: see docs/adder.md.
void multiply_tile_e4m3(const std::byte* a, const std::byte* b, float* c, uint32_t n);

// One row of it. A factor is a number of e4m3 and the power of two that its exponent says: of NaN infinity, and NaN's value is 0.
// c[n] += a[32] * b[32][n], of which a row has `stride` elements; n is a multiple of 8.
constexpr size_t DEPTH_E4M3 = 32;
struct Factor {
  float value, power;
};
Factor factor_e4m3(float value);
void add_products_e4m3(const Factor* a, const float* b, const float* b_powers, size_t stride, float* c, size_t n);

// And in int8, with the bits of int32 in C: exact sums, which wrap.
void multiply_tile_s8(const std::byte* a, const std::byte* b, float* c, uint32_t n);

// `count` elements of 16 bits, a multiple of 8.
using ToFloats = void (*)(const std::byte* elements, float* floats, uint32_t count);
extern const ToFloats to_floats, bf16_to_floats;

}  // namespace emulator
