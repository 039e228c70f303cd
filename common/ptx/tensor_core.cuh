// Tensor-core instructions of a warp: all 32 lanes take part. mma_m16n8k16 is of sm_80 and newer, ldmatrix of sm_75.
#pragma once
#include <cstdint>
#include "common/architecture.cuh"

inline namespace ptx {

// ldmatrix loads 8x8 matrices of 16-bit elements. Lane 8 * m + r gives the shared address (16-byte aligned) of row r of
// matrix m. Register m of lane l then holds elements (l / 4, l % 4 * 2) and (l / 4, l % 4 * 2 + 1) of matrix m; with
// .trans, elements (l % 4 * 2, l / 4) and (l % 4 * 2 + 1, l / 4). .x2 reads the addresses of lanes 0..15 only.
// Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&matrices)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row_address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&matrices)[2], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(row_address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&matrices)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row_address)
               : "memory");
}

// The way back: stores four 8x8 matrices, which the registers hold as after ldmatrix_x4. Lane 8 * m + r gives the
// address of row r of matrix m. sm_90 and newer.
// Source: PTX ISA, "Warp-level matrix store instruction: stmatrix".
__device__ __forceinline__ void stmatrix_x4(uint32_t row_address, const uint32_t (&matrices)[4]) {
  needs_sm<90>();
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(matrices[0]),
               "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

// The same with the matrices transposed, as ldmatrix_x4_trans has them: row r in memory is column r of the registers' matrix.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row_address, const uint32_t (&matrices)[4]) {
  needs_sm<90>();
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

// C[16 x 8] += A[16 x 16] B[16 x 8], f16 operands, f32 accumulation. Layouts: FragmentA, FragmentB (b0: k = 0..7,
// b1: k = 8..15) and FragmentC of common/fragments.hpp.
// Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", shape .m16n8k16.
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  needs_sm<80>();
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// D = A B + C, which leaves C as it is.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                             const float (&c)[4]) {
  needs_sm<80>();
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Both in bf16: the same layouts, f32 accumulation.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  needs_sm<80>();
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
      "%2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                                  const float (&c)[4]) {
  needs_sm<80>();
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
      "%12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

}  // namespace ptx
