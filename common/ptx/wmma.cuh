// WMMA: C[16 x 16] += A[16 x 16] B[16 x 16], f16 operands, f32 accumulation, by all 32 lanes of a warp. sm_70 and
// newer.
//
// Which lane holds which element of a fragment is not said: a kernel can load, fill, multiply and store it as a whole,
// and whatever works on single rows or elements has to go through shared memory.
//
// `address` is that of the matrix's first element in shared memory and `ld` its leading dimension: the elements from
// one row (column, for b_col) to the next. Both are the same in all lanes. Every row begins at a multiple of 32 bytes,
// so `ld` is a multiple of 16 f16 or of 8 f32. Lanes that read what a store wrote need a __syncwarp() in between.
// Source: PTX ISA, "Warp-level Matrix Instructions for Matrix Multiply-Accumulate: wmma", its "Address Alignment". (The
// C++ API in mma.h asks for 16 bytes only.)
#pragma once
#include <cstdint>

inline namespace ptx {

struct WmmaRegisters;  // the way in, for the functions below

template <class Register, int USE>
class WmmaFragment {
  friend struct WmmaRegisters;
  Register registers[8];
};
using WmmaA = WmmaFragment<uint32_t, 0>;
using WmmaBRow = WmmaFragment<uint32_t, 1>;  // from a matrix stored row by row: V
using WmmaBCol = WmmaFragment<uint32_t, 2>;  // column by column, that is, its transpose row by row: K for K^T
using WmmaAccumulator = WmmaFragment<float, 3>;

struct WmmaRegisters {
  template <class Register, int USE>
  static __device__ __forceinline__ Register (&of(WmmaFragment<Register, USE>& fragment))[8] {
    return fragment.registers;
  }
  template <class Register, int USE>
  static __device__ __forceinline__ const Register (&of(const WmmaFragment<Register, USE>& fragment))[8] {
    return fragment.registers;
  }
};

// Every element becomes `value`.
__device__ __forceinline__ void wmma_fill(WmmaAccumulator& fragment, float value) {
#pragma unroll
  for (float& element : WmmaRegisters::of(fragment)) element = value;
}

// One ldmatrix.x4 since sm_80, two ldmatrix.x2 on sm_75 (b_row: with .trans): that is what ptxas 13.0 makes of it.
__device__ __forceinline__ void wmma_load_a(WmmaA& fragment, uint32_t address, uint32_t ld) {
  auto& r = WmmaRegisters::of(fragment);
  asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
               : "r"(address), "r"(ld)
               : "memory");
}

__device__ __forceinline__ void wmma_load_b_row(WmmaBRow& fragment, uint32_t address, uint32_t ld) {
  auto& r = WmmaRegisters::of(fragment);
  asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
               : "r"(address), "r"(ld)
               : "memory");
}

__device__ __forceinline__ void wmma_load_b_col(WmmaBCol& fragment, uint32_t address, uint32_t ld) {
  auto& r = WmmaRegisters::of(fragment);
  asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
               : "r"(address), "r"(ld)
               : "memory");
}

// C and D by rows of f32; a load or a store is four of 8 bytes per lane: ld.shared.v2, st.shared.v2.
__device__ __forceinline__ void wmma_load_c(WmmaAccumulator& fragment, uint32_t address, uint32_t ld) {
  auto& r = WmmaRegisters::of(fragment);
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
               : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]), "=f"(r[7])
               : "r"(address), "r"(ld)
               : "memory");
}

__device__ __forceinline__ void wmma_store_d(uint32_t address, const WmmaAccumulator& fragment, uint32_t ld) {
  const auto& r = WmmaRegisters::of(fragment);
  asm volatile(
      "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;" ::"r"(address),
      "f"(r[0]), "f"(r[1]), "f"(r[2]), "f"(r[3]), "f"(r[4]), "f"(r[5]), "f"(r[6]), "f"(r[7]), "r"(ld)
      : "memory");
}

// c += a * b: two HMMA of the shape m16n8k16 since sm_80, four of m16n8k8 on sm_75.
__device__ __forceinline__ void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBRow& b) {
  auto& d = WmmaRegisters::of(c);
  const auto &x = WmmaRegisters::of(a), &y = WmmaRegisters::of(b);
  asm volatile(
      "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, "
      "%14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]), "r"(y[0]), "r"(y[1]),
        "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
}

__device__ __forceinline__ void wmma_mma(WmmaAccumulator& c, const WmmaA& a, const WmmaBCol& b) {
  auto& d = WmmaRegisters::of(c);
  const auto &x = WmmaRegisters::of(a), &y = WmmaRegisters::of(b);
  asm volatile(
      "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, "
      "%14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]), "r"(y[0]), "r"(y[1]),
        "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
}

}  // namespace ptx
