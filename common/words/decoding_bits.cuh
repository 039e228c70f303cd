// Parts of kernels of decoding/ whose cache has 8 or 4 bits for a number: what d13_bytes, d17_nibbles, d21_columns and
// d22_smallest spell out, and later rungs say. Of 4 bits two stand in a byte, the even column lower.
#pragma once
#include "common/words/decoding.cuh"

namespace decoding {
namespace {

// d13_bytes. As Pages, but a tile may have a key for each lane.
struct LanePages : Pages {
  using Pages::Pages;
  __device__ __forceinline__ void look_up(int first_key LADDER_SITE_PARAMETER) {
    const int key = first_key + threadIdx.x % 32, number = key / size;
    row = key - number * size;
    page = key < n_k ? ld_global_s32(table + number LADDER_SITE) : 0;
  }
};

}  // namespace
}  // namespace decoding

namespace decoding::bits {
namespace {

// ---- four bits, and a scale for each key ----------------------------------------------------------------------------

constexpr int ROW_BYTES = HEAD_DIM / 2, ROW_CHUNKS = ROW_BYTES / 16;  // of a head; 16 B = 32 numbers
constexpr int SCALES_BYTES = 8;                                       // of a key: K's, and V's

// d17_nibbles. Below 0x430 four bits u are the bf16 128 + u, and below 0x640 the f16 1024 + u. Here u is 8, twice.
__device__ __forceinline__ uint32_t eight_above(bf16) {
  return 0x43084308;
}
__device__ __forceinline__ uint32_t eight_above(f16) {
  return 0x64086408;
}
__device__ __forceinline__ uint32_t less(uint32_t two, uint32_t by, bf16) {
  return sub_bf16x2(two, by);
}
__device__ __forceinline__ uint32_t less(uint32_t two, uint32_t by, f16) {
  return sub_f16x2(two, by);
}
// d17_nibbles. Eight numbers of four bits as four times two of T: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
// With its highest bit turned such a number is 8 more, and has no sign.
template <class T>
__device__ __forceinline__ void unpack(uint32_t eight, uint32_t (&two)[4]) {
  constexpr int A_AND_B_XOR_C = 0x6A;
  for (int i = 0; i < 4; ++i) {
    const uint32_t above = lop3_b32<A_AND_B_XOR_C>(eight >> 4 * i, 0x000f000f, eight_above(T()));
    two[i] = less(above, eight_above(T()), T());
  }
}

// d17_nibbles. Byte offset of a chunk within a tile: two rows are a pass over the banks.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row / 2 % 4)) * 16;
}

// d17_nibbles. LOAD  A lane copies the scales of a key.
template <class C, class Keys>
__device__ __forceinline__ void load_scales(uint32_t scales, const TokenScaleParams& p, int64_t first, const Keys& keys,
                                            int first_key LADDER_SITE_PARAMETER) {
  const int lane = threadIdx.x % 32, key = first_key + lane;
  const int64_t at = first + keys.offset(p.scale_strides, {key, lane} LADDER_SITE);
  if (lane >= C::BC) return;
  cp_async_4(scales + lane * SCALES_BYTES, p.K_scales + at, key < keys.n_k ? 4 : 0 LADDER_SITE);
  cp_async_4(scales + lane * SCALES_BYTES + 4, p.V_scales + at, key < keys.n_k ? 4 : 0 LADDER_SITE);
}

// ---- rows of queries as columns -------------------------------------------------------------------------------------

// d21_columns. A warp's tile, and the block's shared memory.
template <class T, int BR_, int BC_, int WARPS_, int STAGES_>
struct ColumnTile {
  using Element = T;                                     // of Q and O
  using Wide = ColumnTile<T, 16, BC_, WARPS_, STAGES_>;  // for more rows than 8
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32;
  static constexpr int PER_SM = 16 / BR;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES + BC * SCALES_BYTES;  // K; V behind it, and the scales
  // At its end a warp leaves there what it has found: rows of O in f32, which 16 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 16, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static constexpr uint32_t SMEM_BYTES = WARPS * STAGES * STAGE_BYTES;
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && (BR == 8 || BR == 16) && BC % 16 == 0 && BC <= 32);
};

// d21_columns. The strides of a tensor of four bits, in bytes.
__device__ __forceinline__ ForwardParams::Strides in_bytes(const ForwardParams::Strides& strides) {
  return {strides.batch / 2, strides.head / 2, strides.row / 2};
}

// d21_columns. LOAD  Four lanes copy a row of a tensor whose strides are in bytes. What is behind the last key, or d,
// is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d LADDER_SITE_PARAMETER) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS, lane_chunk = lane % ROW_CHUNKS;
  const int end = int(lane_chunk * 32) < d ? keys.n_k : 0;
#pragma unroll
  for (int row = 0; row < C::BC; row += 32 / ROW_CHUNKS) {
    const int of_tile = row + lane_row;
    cp_async_16(tile + chunk_offset(of_tile, lane_chunk),
                from + keys.offset(strides, {first_key + of_tile, of_tile} LADDER_SITE),
                first_key + of_tile < end ? 16 : 0 LADDER_SITE);
  }
}

// d21_columns. STORE  What a warp has found, with columns of O as rows, to its place in shared memory. Of 32 columns of
// a row a lane has four that stand side by side: mine.found(half, chunk, of_four, i), i of its two rows.
template <class C, class WarpRows>
__device__ __forceinline__ void store_columns(const WarpRows& mine, uint32_t warp,
                                              uint32_t lane LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int half = 0; half < C::BR / 8; ++half) {
    const float sum = quad_sum(mine.sum[half] LADDER_SITE);
    for (int i = 0; i < 2; ++i) {
      const int of_eight = mine.row_of_O(i), row = half * 8 + of_eight;
      const bool has_keys = __uint_as_float(shfl(__float_as_uint(sum), of_eight * 4 LADDER_SITE)) != 0;
      for (int chunk = 0; chunk < ROW_CHUNKS; ++chunk) {
        const auto found = [&](int of_four) {
          const float number = mine.found(half, chunk, of_four, i);
          return has_keys ? __float_as_uint(number) : 0;
        };
        st_shared_v4(part_at<C>(warp, row).four + chunk * 128 + lane / 4 * 16,
                     {found(0), found(1), found(2), found(3)} LADDER_SITE);
      }
    }
    if (lane % 4 == 0)
      st_shared_v2(part_at<C>(warp, half * 8 + lane / 4).numbers,
                   {__float_as_uint(mine.max[half]), __float_as_uint(sum)} LADDER_SITE);
  }
}

// d21_columns. All that a block does.
template <class C, class WarpRows, class Keys>
__device__ __forceinline__ void attend_by_columns(const TokenScaleParams& p, Keys keys,
                                                  int shares LADDER_SITE_PARAMETER) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * C::STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p, p.n_q, keys.n_k);
  const BlockShare share = BlockShare::of<C>(rows, seen, shares);
  const Whole whole = Whole::of<C>(share.rows, seen);

  const ForwardParams::Strides K_strides = in_bytes(p.K_strides), V_strides = in_bytes(p.V_strides);
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, share.sequence) + share.kv_head * strides.head +
           lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, K_strides), *const V = source(p.V, V_strides);
  const int64_t scales = keys.begin(p.scale_strides, share.sequence) + share.kv_head * p.scale_strides.head;
  const auto load = [&](uint32_t stage, int first_key) {
    load_tile<C>(smem_K + stage, K, K_strides, keys, first_key, p.d LADDER_SITE);
    load_tile<C>(smem_V + stage, V, V_strides, keys, first_key, p.d LADDER_SITE);
    load_scales<C>(smem_V + C::TILE_BYTES + stage, p, scales, keys, first_key LADDER_SITE);
  };
  WarpRows mine;
  const auto begin = [&] { mine.load_Q(p, share.rows, share.sequence); };
  const auto multiply = [&](uint32_t stage, int first_key, bool) {
    mine.multiply(smem_K + stage, seen, first_key, whole.template cuts<C>(first_key));
  };
  walk_share<C>(share, warp, keys, load, begin, multiply LADDER_SITE);
  __syncthreads(LADDER_SITE_ALONE);  // safe to overwrite K and V: all warps have read their last ones
  store_columns<C>(mine, warp, lane LADDER_SITE);
  __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warps have found
  leave_rows<C>(p, share LADDER_SITE);
}

// ---- four bits as numbers of f16 ------------------------------------------------------------------------------------

// d22_smallest. Eight numbers of four bits as four times two f16: 0 and 4, 1 and 5, 2 and 6, 3 and 7. With its highest
// bit turned a number is 8 more and has no sign: u. Where it stands lowest that is u * 2^-24, and four bits higher
// u * 2^-20. Below ABOVE, 1024 in f16, it is 1024 + u or 1024 + 16 u.
template <uint32_t ABOVE = 0>
__device__ __forceinline__ void unpack_smallest(uint32_t eight, uint32_t (&two)[4]) {
  constexpr int A_AND_B_XOR_C = 0x6A;
  for (int i = 0; i < 4; ++i) {
    const uint32_t at = i % 2 == 0 ? 1 : 16;
    two[i] = lop3_b32<A_AND_B_XOR_C>(i < 2 ? eight : eight >> 8, 0x000f000f * at, ABOVE + 0x00080008 * at);
  }
}
// d22_smallest. With their signs and an exponent, times 1 and 16. A tensor core takes a number without one for 2^-14,
// and of a sum it keeps what is 2^-25 of its largest product: so ten bits of a score would go.
__device__ __forceinline__ void unpack_smallest_signed(uint32_t eight, uint32_t (&two)[4]) {
  constexpr uint32_t ABOVE = 0x64006400;
  unpack_smallest<ABOVE>(eight, two);
  for (int i = 0; i < 4; ++i) two[i] = sub_f16x2(two[i], ABOVE + 0x00080008 * (i % 2 == 0 ? 1 : 16));
}
constexpr float LOW = 0x1p-24f, HIGH = 0x1p-20f;

// d22_smallest. What a warp has in registers: Q, and what it has found about these rows among its keys. C says of
// how many heads a row of a tile is, HEADS, how long it is, and where a chunk of it lies, chunk_offset(row, chunk).
template <class C>
struct SmallestRows {
  using T = typename C::Element;
  static constexpr int EIGHTS = C::BR / 8, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_M_TILES = HEAD_DIM / 16, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[QK_K_TILES][4];
  int query_of[2];  // a lane has two rows of 16, 8 apart
  float scale_log2[EIGHTS], max[EIGHTS], sum[EIGHTS];
  float O_frag[PV_M_TILES][EIGHTS][4];  // of O with columns as rows: 16 of them, and eight rows
  float O_of_zeros[EIGHTS][4];

  // LOAD  Q in the order of d17, as f16, a row times a power of two that brings its largest number below 2^15: what is
  //       lost is 2^-36 of that. What meets K's higher four bits is 16 times less. Rows from 8 on are zeros where there
  //       are only eight.
  __device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32;
    for (int half = 0; half < 2; ++half) {
      const int row = FragmentC::row(lane, 2 * half), query = rows.query(row), column = lane % 4 * 32;
      query_of[half] = query;
      const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch + rows.head(row) * p.Q_strides.head +
                         query * p.Q_strides.row + column;
      uint32_t twos[16];
      float largest = 0;
      for (int eight = 0; eight < 4; ++eight) {
        uint4 four = {0, 0, 0, 0};
        if (half < EIGHTS && rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8 LADDER_SITE);
        twos[eight * 4] = four.x, twos[eight * 4 + 1] = four.y, twos[eight * 4 + 2] = four.z,
                     twos[eight * 4 + 3] = four.w;
      }
      for (const uint32_t two : twos) largest = fmaxf(largest, fmaxf(fabsf(number(two, 0)), fabsf(number(two, 1))));
      // By its exponent, and no further than f32 goes.
      const uint32_t up = min(127 + 14 + 127 - (__float_as_uint(quad_max(largest LADDER_SITE)) >> 23), 253u);
      const float by = __uint_as_float(up << 23);
      if (half < EIGHTS) scale_log2[half] = p.softmax_scale * LOG2E * __uint_as_float((254 - up) << 23);
      for (int i = 0; i < 16; ++i) {
        const uint32_t low = twos[i / 4 * 4 + i % 4 / 2], high = twos[i / 4 * 4 + i % 4 / 2 + 2];
        const float times = i % 2 == 0 ? by : by * (LOW / HIGH);
        Q_frag[i / 2][i % 2 * 2 + half] = pack_f16x2(number(low, i % 2) * times, number(high, i % 2) * times);
      }
    }
    for (int half = 0; half < EIGHTS; ++half) {
      max[half] = forward::NO_KEY, sum[half] = 0;
      for (float& each : O_of_zeros[half]) each = 0;
      for (auto& tile : O_frag) {
        for (float& each : tile[half]) each = 0;
      }
    }
  }
  __device__ __forceinline__ static float number(uint32_t two, int i) { return to_float(T{uint16_t(two >> 16 * i)}); }
  // A row's maximum, over its four lanes, and the sums and O that are relative to it. A lane's columns of O belong to
  // other rows than its row of S.
  __device__ __forceinline__ void raise_max(int half, float to LADDER_SITE_PARAMETER) {
    to = fmaxf(quad_max(to LADDER_SITE), max[half]);
    const float correction = ex2_approx(max[half] - to);
    max[half] = to, sum[half] *= correction;
    for (int i = 0; i < 2; ++i) {
      const float of_row = __uint_as_float(shfl(__float_as_uint(correction), row_of_O(i) * 4 LADDER_SITE));
      for (auto& tile : O_frag) tile[half][i] *= of_row, tile[half][2 + i] *= of_row;
      O_of_zeros[half][i] *= of_row, O_of_zeros[half][2 + i] *= of_row;
    }
  }
  __device__ __forceinline__ static int row_of_O(int i) { return threadIdx.x % 4 * 2 + i; }
  // Of O, without what a column of zeros has got; which of two numbers of a register it was says how large.
  __device__ __forceinline__ float found(int half, int chunk, int of_four, int i) const {
    const int at = of_four % 2 * 2 + i;
    return (O_frag[chunk * 2 + of_four / 2][half][at] - O_of_zeros[half][at]) * (1 / (of_four % 2 == 0 ? LOW : HIGH));
  }
  // The largest weight times V's scale is 2^BELOW to 2^(BELOW + 1) at first, and a lane's sum of them at most MOST.
  // Where scales are nearly 0 weights are huge instead: a lane's sum of these is at most MOST / LEAST. Beside scores of
  // 10^9 f32 has steps of 128, and what is less than half of one is not taken away at all: so no more than 63.
  static constexpr float BELOW = 7, MOST = 0x1p15f, LEAST = 0x1p-60f;
  __device__ __forceinline__ static float exponent(float scale) {
    return float(::max(int(__float_as_uint(scale) >> 23) - 127, -56));
  }

  // A tile of keys that begins with `first_key`, whose K and V are at `smem_K` and behind it, of C::HEADS heads side by
  // side, a warp's each.
  __device__ __forceinline__ void multiply(uint32_t smem_K, const Seen& seen, int first_key,
                                           bool is_masked LADDER_SITE_PARAMETER) {
    const uint32_t lane = threadIdx.x % 32, head = threadIdx.x / 32 % C::HEADS;

    // QK  As in d17: 16 B of a key are a lane's part of all eight slices.
    const uint32_t lane_K = smem_K + C::chunk_offset(lane / 4, head * ROW_CHUNKS + lane % 4);
    float S_frag[QK_N_TILES][4] = {};
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 K = ld_shared_v4(lane_K + key_tile * 8 * C::ROW_BYTES LADDER_SITE);
      const uint32_t eights[4] = {K.x, K.y, K.z, K.w};
      for (int i = 0; i < 4; ++i) {
        uint32_t K_frag[4];
        unpack_smallest_signed(eights[i], K_frag);
        for (int of_two = 0; of_two < 2; ++of_two)
          mma<f16>(S_frag[key_tile], Q_frag[i * 2 + of_two], K_frag[of_two * 2], K_frag[of_two * 2 + 1] LADDER_SITE);
      }
    }

    // SOFTMAX  A score is multiplied by its key's scale and rounded, and then compared: so what is largest is as far
    //          from the maximum as all others, however huge it is.
    float V_scales[QK_N_TILES][2];
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 scales = ld_shared_v4(smem_K + 2 * C::TILE_BYTES +
                                        (head * C::BC + key_tile * 8 + lane % 4 * 2) * SCALES_BYTES LADDER_SITE);
      for (int half = 0; half < EIGHTS; ++half) {
        S_frag[key_tile][2 * half] *= __uint_as_float(scales.x) * scale_log2[half];
        S_frag[key_tile][2 * half + 1] *= __uint_as_float(scales.z) * scale_log2[half];
      }
      V_scales[key_tile][0] = __uint_as_float(scales.y), V_scales[key_tile][1] = __uint_as_float(scales.w);
    }
    if (is_masked) hide_unseen(S_frag, seen, query_of, first_key);
    // Of S a lane's two columns of eight are two rows of what is now on the right: P needs no exchange. A weight times
    // V's scale has to fit into f16, and so the maximum is that of both together.
    uint32_t P_frag[PV_K_TILES][EIGHTS][2];
#pragma unroll
    for (int half = 0; half < EIGHTS; ++half) {
      float weights = 0, scaled = 0;
      const auto weigh = [&] {
        weights = scaled = 0;
        for (int tile = 0; tile < QK_N_TILES; ++tile) {
          const float low = ex2_approx(S_frag[tile][2 * half] - max[half]);
          const float high = ex2_approx(S_frag[tile][2 * half + 1] - max[half]);
          weights += low + high;
          scaled += low * V_scales[tile][0] + high * V_scales[tile][1];
          P_frag[tile / 2][half][tile % 2] = pack_f16x2(low * V_scales[tile][0], high * V_scales[tile][1]);
        }
      };
      weigh();
      if (vote_any(!(fmaxf(scaled, weights * LEAST) <= MOST) LADDER_SITE)) {
        float to = forward::NO_KEY;
        for (int i = 0; i < QK_N_TILES * 2; ++i)
          to = fmaxf(to, S_frag[i / 2][2 * half + i % 2] + exponent(V_scales[i / 2][i % 2]));
        raise_max(half, to - BELOW LADDER_SITE);
        weigh();
      }
      sum[half] += weights;
    }

    // PV  What is transposed is fours of columns, as in d17: a register has four of one key and the same four of the
    //     next one. Two of the four are 16 rows of V with columns as rows.
    const uint32_t lane_V = smem_K + C::TILE_BYTES + C::chunk_offset(lane % 16, head * ROW_CHUNKS + lane / 16);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      // What a column of zeros would get.
      uint32_t zeros[4];
      unpack_smallest(0, zeros);
      const uint32_t zero_rows[4] = {zeros[0], zeros[1], zeros[0], zeros[1]};
      for (int half = 0; half < EIGHTS; ++half)
        mma<f16>(O_of_zeros[half], zero_rows, P_frag[key_slice][half][0], P_frag[key_slice][half][1] LADDER_SITE);
      for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
        uint32_t V_fours[4];  // [chunk][half of the keys]
        ldmatrix_x4_trans(V_fours, (lane_V ^ (chunk * 16)) + key_slice * 16 * C::ROW_BYTES LADDER_SITE);
        for (int of_two = 0; of_two < 2; ++of_two) {
          uint32_t V_frag[2][4];  // [half of the keys][which of four columns]
          for (int half = 0; half < 2; ++half) unpack_smallest(V_fours[of_two * 2 + half], V_frag[half]);
          for (int two = 0; two < 2; ++two) {
            const uint32_t V_rows[4] = {V_frag[0][two * 2], V_frag[0][two * 2 + 1], V_frag[1][two * 2],
                                        V_frag[1][two * 2 + 1]};
            for (int half = 0; half < EIGHTS; ++half)
              mma<f16>(O_frag[(chunk + of_two) * 2 + two][half], V_rows, P_frag[key_slice][half][0],
                       P_frag[key_slice][half][1] LADDER_SITE);
          }
        }
      }
    }
  }
};

}  // namespace
}  // namespace decoding::bits
