// Tensor-core instructions of a warpgroup: four warps, 4g to 4g + 3 of a block, multiply tiles that lie in shared
// memory. sm_90a alone: no other GPU has them, older or newer.
//
// They are asynchronous. A product is issued, committed to a group with others, and over when a wait says so. Until
// then nobody may touch its accumulators, nor the registers that its A comes from; the compiler knows neither of the
// wait nor of the flight. So a fence names the registers that it hands over, and a wait those that it hands back:
//   wgmma_fence(S);  wgmma_ss(S, Q, K, false);  wgmma_commit();  wgmma_wait<0>(S);
// ptxas waits after every product (warning C7510 and its like) if registers in flight are named anywhere else.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once
#include <cstdint>
#include "common/architecture.cuh"

inline namespace ptx {

// ---- where a tile lies ---------------------------------------------------------------------------------------------

// Tells wgmma of a tile as the copy engine lays it out with 128-byte swizzle: panels of 64 columns of f16 or bf16, or 128
// of a byte, of which every row is 128 bytes. Eight rows are 1024 bytes, to which panels are aligned; the next eight rows follow.
//   K-major   the columns are the k dimension: Q and K of Q K^T. 16 columns, one instruction's k, are 32 bytes.
//   MN-major  the rows are: V of P V. An instruction takes 16 rows, and `panel_bytes` is from one panel to the next.
//             K-major ones have no use for it, as an instruction stays within a panel.
// Low word: bits 0-13 address / 16, bits 16-29 panel_bytes / 16 (PTX: leading dimension byte offset). High word: bits
// 0-13 from eight rows to the next / 16 (stride dimension byte offset), bits 17-19 base offset 0, bits 30-31 the
// swizzle, 1.
// Source: PTX ISA, "Matrix Descriptor Format", "Strides".
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t panel_bytes = 16) {
  constexpr uint64_t HIGH = 1u << 30 | 1024 / 16;
  return HIGH << 32 | (panel_bytes / 16) << 16 | (address & 0x3ffff) / 16;
}

// The descriptor of what lies `bytes` further on, a multiple of 16: the low word alone changes, one addition is enough.
__device__ __forceinline__ uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  const auto low = static_cast<uint32_t>(descriptor) + bytes / 16;
  return (descriptor >> 32) << 32 | low;
}

// ---- registers -----------------------------------------------------------------------------------------------------

// Keeps the compiler from moving what it does with registers across the place where this stands. No instruction.
struct WgmmaRegisters {
  static __forceinline__ __device__ void keep(float& value) { asm volatile("" : "+f"(value)::"memory"); }
  static __forceinline__ __device__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
  static __forceinline__ __device__ void keep(int32_t& value) { asm volatile("" : "+r"(value)::"memory"); }
  template <class Element, int COUNT>
  static __forceinline__ __device__ void keep(Element (&elements)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) keep(elements[i]);  // by number: nvcc does not always unroll a range
  }
};

// Needed before a product whose accumulators or A registers this thread has read or written since their last product,
// or that have had none: these are the registers to name, as arrays.
template <class... Registers>
__device__ __forceinline__ void wgmma_fence(Registers&... registers) {
  needs_sm_90a();
  (WgmmaRegisters::keep(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes a group of all products that this warp has issued since the last commit; the group may be empty.
__device__ __forceinline__ void wgmma_commit() {
  needs_sm_90a();
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the PENDING youngest groups are still in flight, and names the arrays of registers that are not
// any more. What these products have read of shared memory may be overwritten, by whoever this thread then tells.
template <int PENDING, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... registers) {
  needs_sm_90a();
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  (WgmmaRegisters::keep(registers), ...);
}

// ---- products ------------------------------------------------------------------------------------------------------

// The operands of one instruction: N / 2 accumulators, as text and as constraints. N = 8 N_TILES.
#define WGMMA_TEXT_8 "%0, %1, %2, %3"
#define WGMMA_TEXT_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_TEXT_64                                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_TEXT_96 WGMMA_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_TEXT_128 WGMMA_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_TEXT_136 WGMMA_TEXT_128 ", %64, %65, %66, %67"
#define WGMMA_TEXT_176                                                                                          \
  WGMMA_TEXT_128                                                                                                \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
  "%85, %86, %87"
#define WGMMA_TEXT_192 WGMMA_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_TEXT_256                                                                                         \
  WGMMA_TEXT_192                                                                                               \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_TILE(t) "+f"(d[t][0]), "+f"(d[t][1]), "+f"(d[t][2]), "+f"(d[t][3])
#define WGMMA_TILE_S32(t) "+r"(d[t][0]), "+r"(d[t][1]), "+r"(d[t][2]), "+r"(d[t][3])
#define WGMMA_TILES_S32(t) WGMMA_TILE_S32(t), WGMMA_TILE_S32(t + 1), WGMMA_TILE_S32(t + 2), WGMMA_TILE_S32(t + 3)
#define WGMMA_TILES(t) WGMMA_TILE(t), WGMMA_TILE(t + 1), WGMMA_TILE(t + 2), WGMMA_TILE(t + 3)
#define WGMMA_D_8 WGMMA_TILE(0)
#define WGMMA_D_32 WGMMA_TILES(0)
#define WGMMA_D_64 WGMMA_TILES(0), WGMMA_TILES(4)
#define WGMMA_D_96 WGMMA_D_64, WGMMA_TILES(8)
#define WGMMA_D_128 WGMMA_D_96, WGMMA_TILES(12)
#define WGMMA_D_136 WGMMA_D_128, WGMMA_TILE(16)
#define WGMMA_D_176 WGMMA_D_128, WGMMA_TILES(16), WGMMA_TILE(20), WGMMA_TILE(21)
#define WGMMA_D_192 WGMMA_D_176, WGMMA_TILE(22), WGMMA_TILE(23)
#define WGMMA_D_256 WGMMA_D_192, WGMMA_TILES(24), WGMMA_TILES(28)
// The numbers are those of the operands after the accumulators, N / 2 and following.
#define WGMMA_SS(TYPE, N, A, B, ACCUMULATE, TRANS)                                                       \
  if constexpr (8 * N_TILES == N)                                                                        \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #ACCUMULATE                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##N \
               "}, %" #A ", %" #B ", accumulate, 1, 1, 0, %" #TRANS ";\n}"                               \
               : WGMMA_D_##N                                                                             \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TRANS_B))
#define WGMMA_RS(TYPE, N, A0, A1, A2, A3, B, ACCUMULATE, TRANS)                                          \
  if constexpr (8 * N_TILES == N)                                                                        \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #ACCUMULATE                        \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##N \
               "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", accumulate, 1, 1, %" #TRANS ";\n}" \
               : WGMMA_D_##N                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TRANS_B))
// That of N = 8 N_TILES. Who asks for another N is told so: an end of the list that says nothing would be a product without an
// instruction.
#define WGMMA_NONE static_assert(N_TILES < 0, "no operand list for this N")
#define WGMMA_SS_OF(TYPE)                       \
  WGMMA_SS(TYPE, 8, 4, 5, 6, 7);                \
  else WGMMA_SS(TYPE, 32, 16, 17, 18, 19);      \
  else WGMMA_SS(TYPE, 64, 32, 33, 34, 35);      \
  else WGMMA_SS(TYPE, 96, 48, 49, 50, 51);      \
  else WGMMA_SS(TYPE, 128, 64, 65, 66, 67);     \
  else WGMMA_SS(TYPE, 176, 88, 89, 90, 91);     \
  else WGMMA_SS(TYPE, 192, 96, 97, 98, 99);     \
  else WGMMA_SS(TYPE, 256, 128, 129, 130, 131); \
  else WGMMA_NONE
#define WGMMA_RS_OF(TYPE)                                      \
  WGMMA_RS(TYPE, 8, 4, 5, 6, 7, 8, 9, 10);                     \
  else WGMMA_RS(TYPE, 32, 16, 17, 18, 19, 20, 21, 22);         \
  else WGMMA_RS(TYPE, 64, 32, 33, 34, 35, 36, 37, 38);         \
  else WGMMA_RS(TYPE, 96, 48, 49, 50, 51, 52, 53, 54);         \
  else WGMMA_RS(TYPE, 128, 64, 65, 66, 67, 68, 69, 70);        \
  else WGMMA_RS(TYPE, 176, 88, 89, 90, 91, 92, 93, 94);        \
  else WGMMA_RS(TYPE, 192, 96, 97, 98, 99, 100, 101, 102);     \
  else WGMMA_RS(TYPE, 256, 128, 129, 130, 131, 132, 133, 134); \
  else WGMMA_NONE

// D[64 x N] += A[64 x 16] B[16 x N], or without `accumulate` D = A B: f16 operands, f32 accumulation. N = 8 N_TILES is
// 8, 32, 64, 96, 128, 176, 192 or 256: 8 columns are the fewest, 176 keys are FlashAttention-3's tile, 32 rows are what two warpgroups each take of a
// gradient's 64 (84), and 256 columns a whole head (53, 57). Warp w of the warpgroup holds rows 16w to 16w + 15, as FragmentC
// for every eight columns. A is K-major in shared memory, B K-major (its rows are the columns of D) or, with TRANS_B,
// MN-major (its rows are k).
template <bool TRANS_B = false, int N_TILES>
__device__ __forceinline__ void wgmma_ss(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true) {
  needs_sm_90a();
  WGMMA_SS_OF("f16");
}

// The same with A in registers: of each warp its 16 rows, as FragmentA.
template <bool TRANS_B = false, int N_TILES>
__device__ __forceinline__ void wgmma_rs(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b,
                                         bool accumulate = true) {
  needs_sm_90a();
  WGMMA_RS_OF("f16");
}

// Both in bf16: the same tiles and layouts.
template <bool TRANS_B = false, int N_TILES>
__device__ __forceinline__ void wgmma_ss_bf16(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true) {
  needs_sm_90a();
  WGMMA_SS_OF("bf16");
}
template <bool TRANS_B = false, int N_TILES>
__device__ __forceinline__ void wgmma_rs_bf16(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b,
                                              bool accumulate = true) {
  needs_sm_90a();
  WGMMA_RS_OF("bf16");
}

// The same of operands of 8 bits, which have no word for what is transposed.
#define WGMMA_BYTES(N, A_TEXT, B, ACCUMULATE, ...)                                               \
  if constexpr (8 * N_TILES == N)                                                                \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #ACCUMULATE                \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_TEXT_##N \
               "}, " A_TEXT ", %" #B ", accumulate, 1, 1;\n}"                                    \
               : WGMMA_D_##N                                                                     \
               : __VA_ARGS__, "l"(b), "r"(static_cast<int>(accumulate)))
#define WGMMA_BYTES_SS(N, A, B, ACCUMULATE) WGMMA_BYTES(N, "%" #A, B, ACCUMULATE, "l"(a))
#define WGMMA_BYTES_RS(N, A0, A1, A2, A3, B, ACCUMULATE) \
  WGMMA_BYTES(N, "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}", B, ACCUMULATE, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))

// And in e4m3: D[64 x N] += A[64 x 32] B[32 x N], rows of 32 bytes again, B K-major, N = 8, 64, 128 or 256, with A
// in registers 136, too. A register of A holds four elements of a row where FragmentA has two. What is kept of a sum are 14 bits: docs/adder.md.
template <int N_TILES>
__device__ __forceinline__ void wgmma_ss_e4m3(float (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true) {
  needs_sm_90a();
  WGMMA_BYTES_SS(8, 4, 5, 6);
  else WGMMA_BYTES_SS(64, 32, 33, 34);
  else WGMMA_BYTES_SS(128, 64, 65, 66);
  else WGMMA_BYTES_SS(256, 128, 129, 130);
  else WGMMA_NONE;
}
template <int N_TILES>
__device__ __forceinline__ void wgmma_rs_e4m3(float (&d)[N_TILES][4], const uint32_t (&a)[4], uint64_t b,
                                              bool accumulate = true) {
  needs_sm_90a();
  WGMMA_BYTES_RS(8, 4, 5, 6, 7, 8, 9);
  else WGMMA_BYTES_RS(64, 32, 33, 34, 35, 36, 37);
  else WGMMA_BYTES_RS(128, 64, 65, 66, 67, 68, 69);
  else WGMMA_BYTES_RS(136, 68, 69, 70, 71, 72, 73);
  else WGMMA_BYTES_RS(256, 128, 129, 130, 131, 132, 133);
  else WGMMA_NONE;
}

// And in int8, with sums in int32: exact, as no row is so long that one would leave them. N = 64 or 128; the sums of more do not
// fit beside others.
#define WGMMA_S8_SS(N, A, B, ACCUMULATE, ...)                                                                   \
  if constexpr (8 * N_TILES == N)                                                                               \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #ACCUMULATE                               \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_TEXT_##N "}, %" #A ", %" #B \
                                                                                             ", accumulate;\n}" \
               : __VA_ARGS__                                                                                    \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))
template <int N_TILES>
__device__ __forceinline__ void wgmma_ss_s8(int32_t (&d)[N_TILES][4], uint64_t a, uint64_t b, bool accumulate = true) {
  needs_sm_90a();
  WGMMA_S8_SS(64, 32, 33, 34, WGMMA_TILES_S32(0), WGMMA_TILES_S32(4));
  else WGMMA_S8_SS(128, 64, 65, 66, WGMMA_TILES_S32(0), WGMMA_TILES_S32(4), WGMMA_TILES_S32(8), WGMMA_TILES_S32(12));
  else WGMMA_NONE;
}

#undef WGMMA_S8_SS
#undef WGMMA_TILE_S32
#undef WGMMA_TILES_S32
#undef WGMMA_BYTES
#undef WGMMA_BYTES_SS
#undef WGMMA_BYTES_RS
#undef WGMMA_TEXT_8
#undef WGMMA_TEXT_32
#undef WGMMA_TEXT_64
#undef WGMMA_TEXT_96
#undef WGMMA_TEXT_128
#undef WGMMA_TEXT_136
#undef WGMMA_TEXT_176
#undef WGMMA_TEXT_192
#undef WGMMA_TEXT_256
#undef WGMMA_TILE
#undef WGMMA_TILES
#undef WGMMA_D_8
#undef WGMMA_D_32
#undef WGMMA_D_64
#undef WGMMA_D_96
#undef WGMMA_D_128
#undef WGMMA_D_136
#undef WGMMA_D_176
#undef WGMMA_D_192
#undef WGMMA_D_256
#undef WGMMA_SS
#undef WGMMA_RS
#undef WGMMA_SS_OF
#undef WGMMA_RS_OF
#undef WGMMA_NONE

// ---- who has how many registers ------------------------------------------------------------------------------------

// Gives registers of every thread of this warpgroup back to the block's pool, or takes some from it and waits until
// there are enough: from now on each thread has COUNT, a multiple of 8 from 24 to 256. All four warps execute it. A
// kernel starts with what ptxas has given it, which __launch_bounds__ must fix, and warpgroups together never have more
// than at the start. New registers hold nothing yet.
// Source: PTX ISA, "Miscellaneous Instructions: setmaxnreg".
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
  needs_sm_90a();
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256);
  needs_sm_90a();
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace ptx
