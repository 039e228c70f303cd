// Parts of kernels of decoding/ whose cache has a byte for each number: what d13_bytes spells out, and later rungs say.
#pragma once
#include "common/words/decoding_bits.cuh"

namespace decoding::bytes {
namespace {

constexpr int ROW_BYTES = HEAD_DIM, ROW_CHUNKS = ROW_BYTES / 16;  // of a head; 16 B = 16 elements

// d13_bytes. Four bytes as two times two f16: of bytes 0, 1 and 2, 3, or APART of 0, 2 and 1, 3.
struct E4m3 {
  template <bool APART>
  __device__ __forceinline__ static void unpack(uint32_t four, uint32_t (&two)[2]) {
    if (APART) four = prmt_b32(four, 0, 0x3120);
    two[0] = unpack_e4m3x2(uint16_t(four)), two[1] = unpack_e4m3x2(uint16_t(four >> 16));
  }
};
// d13_bytes. Below a byte 0x64, a byte u is the f16 1024 + u; and u, counted from -128, is 128 more than the number.
struct Int8 {
  template <bool APART>
  __device__ __forceinline__ static void unpack(uint32_t four, uint32_t (&two)[2]) {
    constexpr uint32_t FIRST = APART ? 0x4240 : 0x4140, SECOND = APART ? 0x4341 : 0x4342, F16_1152 = 0x6480;
    for (int i = 0; i < 2; ++i)
      two[i] = sub_f16x2(prmt_b32(four ^ 0x80808080, 0x64, i == 0 ? FIRST : SECOND), F16_1152 * 0x10001);
  }
};

// d13_bytes. A warp's tile, with SCALES_BYTES behind V for each key.
template <class T, class Byte_, int BR_, int BC_, int WARPS_, int STAGES_, int SCALES_BYTES = 0>
struct ByteTile {
  using Element = T;  // of Q and O
  using Byte = Byte_;
  using Wide = ByteTile<T, Byte, 32, BC_ / 2, WARPS_, 2 * STAGES_, SCALES_BYTES>;  // for more rows than 16
  using Short = ByteTile<T, Byte, 16, 16, WARPS_, 6, SCALES_BYTES>;                // for few keys
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = 1;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES + BC * SCALES_BYTES;  // K; V behind it, and scales
  // At its end a warp leaves there what it has found: rows of O in f32, which 64 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 64, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static constexpr uint32_t SMEM_BYTES = WARPS * STAGES * STAGE_BYTES;
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && BR % 16 == 0 && BC % 16 == 0 && BC <= 32);
};

// d13_bytes. Byte offset of a chunk within a tile.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// d13_bytes. Two numbers of Q as f16.
__device__ __forceinline__ uint32_t to_f16x2(uint32_t two, f16) {
  return two;
}
__device__ __forceinline__ uint32_t to_f16x2(uint32_t two, bf16) {
  return pack_f16x2(to_float(bf16{uint16_t(two)}), to_float(bf16{uint16_t(two >> 16)}));
}

// d13_bytes. QK of a tile whose K is at `smem_K`: 16 B of a key are a lane's part of four slices.
template <class Byte, int M_TILES, int QK_N_TILES, int QK_K_TILES>
__device__ __forceinline__ void score_bytes(float (&S_frag)[M_TILES][QK_N_TILES][4],
                                            const uint32_t (&Q_frag)[M_TILES][QK_K_TILES][4],
                                            uint32_t smem_K LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_K = smem_K + chunk_offset(lane / 4, lane % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 K = ld_shared_v4((lane_K ^ (half * 16)) + key_tile * 8 * ROW_BYTES LADDER_SITE);
      const uint32_t fours[4] = {K.x, K.y, K.z, K.w};
      for (int i = 0; i < 4; ++i) {
        uint32_t K_frag[2];
        Byte::template unpack<false>(fours[i], K_frag);
        for (int group = 0; group < M_TILES; ++group)
          mma<f16>(S_frag[group][key_tile], Q_frag[group][half * 4 + i], K_frag[0], K_frag[1] LADDER_SITE);
      }
    }
  }
}

// d13_bytes. PV of a tile whose V is at `smem_V`. What is transposed is pairs of columns: a register has two of one key
// and two of the next one. Of 16 columns the even ones are a tile, and the odd ones.
template <class Byte, int M_TILES, int PV_N_TILES, int PV_K_TILES>
__device__ __forceinline__ void add_bytes(float (&O_frag)[M_TILES][PV_N_TILES][4],
                                          const uint32_t (&P_frag)[M_TILES][PV_K_TILES][4],
                                          uint32_t smem_V LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_V = smem_V + chunk_offset(lane % 16, lane / 16);
#pragma unroll
  for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
    for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
      uint32_t V_pairs[4];  // [chunk][half of the keys]
      ldmatrix_x4_trans(V_pairs, (lane_V ^ (chunk * 16)) + key_slice * 16 * ROW_BYTES LADDER_SITE);
      for (int of_two = 0; of_two < 2; ++of_two) {
        uint32_t V_frag[2][2];  // [half of the keys][even, odd]
        for (int half = 0; half < 2; ++half) Byte::template unpack<true>(V_pairs[of_two * 2 + half], V_frag[half]);
        for (int odd = 0; odd < 2; ++odd) {
          for (int group = 0; group < M_TILES; ++group)
            mma<f16>(O_frag[group][(chunk + of_two) * 2 + odd], P_frag[group][key_slice], V_frag[0][odd],
                     V_frag[1][odd] LADDER_SITE);
        }
      }
    }
  }
}

// d13_bytes. A quarter of a warp copies a row. What is behind the last key, or behind d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS, lane_chunk = lane % ROW_CHUNKS;
#pragma unroll
  for (int row = 0; row < C::BC; row += 32 / ROW_CHUNKS) {
    const int of_tile = row + lane_row, key = first_key + of_tile;
    cp_async_16(tile + chunk_offset(of_tile, lane_chunk), from + keys.offset(strides, {key, of_tile}),
                key < keys.n_k && int(lane_chunk * 16) < d ? 16 : 0 LADDER_SITE);
  }
}

// d13_bytes. Where a row of 16 of this warp's rows of O goes, of which a lane has columns [tile][4] of two rows: beside
// its maximum and sum.
template <class C, int PV_N_TILES>
__device__ __forceinline__ void leave_row(int row, const float (&O_frag)[PV_N_TILES][4], int half, float max,
                                          float sum LADDER_SITE_PARAMETER) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int chunk = 0; chunk < ROW_CHUNKS; ++chunk) {  // of 16 columns of a row a lane has four that stand side by side
    const float *const even = &O_frag[chunk * 2][2 * half], *const odd = even + 4;
    const auto known = [&](float found) { return sum != 0 ? __float_as_uint(found) : 0; };
    st_shared_v4(part_at<C>(warp, row).four + chunk * 64 + lane % 4 * 16,
                 {known(even[0]), known(odd[0]), known(even[1]), known(odd[1])} LADDER_SITE);
  }
  if (lane % 4 == 0)
    st_shared_v2(part_at<C>(warp, row).numbers, {__float_as_uint(max), __float_as_uint(sum)} LADDER_SITE);
}

// d13_bytes. Of a text so short that a block has a step and half of all SMs nothing, steps are half as long.
template <class C>
bool is_short(int64_t heads_of_keys, int n_k, int multiprocessors) {
  return 2 * heads_of_keys * ((n_k + C::STEP - 1) / C::STEP) <= multiprocessors;
}
// d13_bytes. start.template operator()<C>() with the tile for so many rows and keys.
template <class C, class Start, class Params>
void start_for(Device& device, const Params& p, Start start) {
  if (rows_per_kv_head(p) > C::BR) return start.template operator()<typename C::Wide>();
  is_short<C>(int64_t(p.kv_heads) * p.batch, p.n_k, multiprocessors(device))
      ? start.template operator()<typename C::Short>()
      : start.template operator()<C>();
}

}  // namespace
}  // namespace decoding::bytes
