// Numbers: conversions between f32 and f16 or bf16, or 8 bits, bytes and bits of words, what the special-function unit makes, a maximum of three.
#pragma once
#include <cstdint>
#include "common/architecture.cuh"
#include "common/attention.hpp"

inline namespace ptx {

// Rounds two f32 to nearest-even f16 and packs them: `low` in bits 0..15 (the lower column of a fragment), `high`
// above. Source: PTX ISA, "cvt", cvt.rn.f16x2.f32.
__device__ __forceinline__ uint32_t pack_f16x2(float low, float high) {
  uint32_t packed;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else  // sm_75 converts one at a time
  asm("{\n.reg .b16 l, h;\ncvt.rn.f16.f32 l, %1;\ncvt.rn.f16.f32 h, %2;\nmov.b32 %0, {l, h};\n}"
      : "=r"(packed)
      : "f"(low), "f"(high));
#endif
  return packed;
}

__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

__device__ __forceinline__ f16 to_f16(float value) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// The same of bf16, sm_80 and newer. Source: PTX ISA, "cvt", cvt.rn.bf16x2.f32.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
  needs_sm<80>();
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Every bf16 is an f32 whose lower half is zero. Needs no conversion, and sm_80 has none.
__device__ __forceinline__ float to_float(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

__device__ __forceinline__ bf16 to_bf16(float value) {
  needs_sm<80>();
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// Two f32 to 8 bits each, to nearest even; beyond the largest number (448, 57344), infinity too, it is that number, and NaN is 0x7f.
// `low` in bits 0..7. And back, exactly, as two f16. sm_89 and newer. Source: PTX ISA, "cvt", .e4m3x2, .e5m2x2.
__device__ __forceinline__ uint16_t pack_e4m3x2(float low, float high) {
  needs_sm<89>();
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint16_t pack_e5m2x2(float low, float high) {
  needs_sm<89>();
  uint16_t packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t unpack_e4m3x2(uint16_t packed) {
  needs_sm<89>();
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(packed));
  return halves;
}
__device__ __forceinline__ uint32_t unpack_e5m2x2(uint16_t packed) {
  needs_sm<89>();
  uint32_t halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(packed));
  return halves;
}

// Four of the eight bytes of (low, high), numbered from low's lowest: byte i of the result is the one that digit i of the selector says in
// hexadecimal; 8 more than its number, and it is that byte's sign, eight times. Source: PTX ISA, "prmt".
__device__ __forceinline__ uint32_t prmt_b32(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

// Any function of three bits, 32 times: it is TABLE as computed from a = 0xF0, b = 0xCC and c = 0xAA. Source: PTX ISA, "lop3".
template <int TABLE>
__device__ __forceinline__ uint32_t lop3_b32(uint32_t a, uint32_t b, uint32_t c) {
  static_assert(0 <= TABLE && TABLE <= 0xff);
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
  return bits;
}

// Two f16 less two, each rounded to nearest even. Source: PTX ISA, "sub", sub.f16x2.
__device__ __forceinline__ uint32_t sub_f16x2(uint32_t a, uint32_t b) {
  uint32_t difference;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

// The same of bf16, sm_90 and newer.
__device__ __forceinline__ uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
  needs_sm<90>();
  uint32_t difference;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

// tanh(x) in one MUFU.TANH: a relative error of at most 2^-11. sm_75 and newer. Source: PTX ISA, "tanh", tanh.approx.f32.
__device__ __forceinline__ float tanh_approx(float x) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 2^x in one MUFU.EX2: at most 2 ulp of error over the normal range, subnormal results flushed to 0, 2^-inf = 0.
// Source: PTX ISA, "ex2", ex2.approx.ftz.f32.
__device__ __forceinline__ float ex2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// log2(x) in one MUFU.LG2: an error of at most 2^-22, relative where x is not between 1/2 and 2, absolute there; of 0 and of
// subnormal numbers, which count as 0, -infinity. Source: PTX ISA, "lg2", lg2.approx.ftz.f32.
__device__ __forceinline__ float lg2_approx(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x in one MUFU.RCP: at most 1 ulp of error; subnormal numbers and results count as 0. Source: PTX ISA, "rcp",
// rcp.approx.ftz.f32.
__device__ __forceinline__ float rcp_approx(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// x, but at least 0 and at most 1; NaN becomes 0. Part of the addition, multiplication or both that x is the result of.
// Source: CUDA Math API, "__saturatef".
__device__ __forceinline__ float saturate(float x) {
  return __saturatef(x);
}

// The larger one of two, and NaN if either is, where fmaxf has the other one: one FMNMX. Source: PTX ISA, "max",
// max.NaN.f32.
__device__ __forceinline__ float max_nan(float a, float b) {
  float largest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(a), "f"(b));
  return largest;
}

// The largest of three signed integers: one VIMNMX3 from sm_90 on.
__device__ __forceinline__ int max3_s32(int a, int b, int c) {
  return max(max(a, b), c);
}

}  // namespace ptx
