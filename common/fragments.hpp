// Which matrix element a lane of a warp holds in which register of an mma.sync.m16n8k16 operand.
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
// `lane` is 0..31; `i` is the element's index within the lane. Two consecutive f16 share one 32-bit register.
#pragma once

#ifdef __CUDACC__
#define LADDER_HOST_DEVICE __host__ __device__
#else
#define LADDER_HOST_DEVICE
#endif

// A: 16 x 16 (m x k) f16, i = 0..7, register i / 2.
struct FragmentA {
  static constexpr int ROWS = 16, COLS = 16, ELEMENTS = 8;
  LADDER_HOST_DEVICE static constexpr int row(int lane, int i) { return lane / 4 + (i / 2 % 2) * 8; }
  LADDER_HOST_DEVICE static constexpr int col(int lane, int i) { return lane % 4 * 2 + i % 2 + (i / 4) * 8; }
};

// B: 16 x 8 (k x n) f16, i = 0..3, register i / 2. The row is the k index: a lane's pair lies along k.
struct FragmentB {
  static constexpr int ROWS = 16, COLS = 8, ELEMENTS = 4;
  LADDER_HOST_DEVICE static constexpr int row(int lane, int i) { return lane % 4 * 2 + i % 2 + (i / 2) * 8; }
  LADDER_HOST_DEVICE static constexpr int col(int lane, int) { return lane / 4; }
};

// C and D: 16 x 8 (m x n) f32, i = 0..3, register i. Registers 0, 1 and registers 2, 3 are two rows, 8 apart.
struct FragmentC {
  static constexpr int ROWS = 16, COLS = 8, ELEMENTS = 4;
  LADDER_HOST_DEVICE static constexpr int row(int lane, int i) { return lane / 4 + (i / 2) * 8; }
  LADDER_HOST_DEVICE static constexpr int col(int lane, int i) { return lane % 4 * 2 + i % 2; }
};

#undef LADDER_HOST_DEVICE
