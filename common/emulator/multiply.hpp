// The arithmetic of mma.m16n8k16 for a whole warp.
#pragma once
#include <cstdint>

namespace emulator {

// product[16][8] = A[16][16] * B[16][8] in f32. Operands are registers by lane in PTX's fragment order, B's lanes with
// row pairs outermost: a[r][lane], b[r][lane % 4 * 8 + lane / 4]. Products of f16 are exact in f32 and sums go by
// ascending k, so that every host computes the same bits.
using Multiply = void (*)(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product);

void multiply_portable(const uint32_t (*a)[32], const uint32_t (*b)[32], float* product);

// The fastest that this CPU can run.
extern const Multiply multiply;

}  // namespace emulator
