// d22_smallest. Four bits are a number as they stand: below a sign and an exponent of zero they are one of f16's
// smallest, u * 2^-24. So V's are not converted. That they count from 8 is taken from sums, which are few.
// Before:  d21_columns takes eleven instructions for eight numbers, and those are half of all.
// Tile:    8x32 for each of 8 warps, two blocks on an SM; or 16x32 where there are more rows, and one.
//          Shared: 102 KiB (a warp 12.75: K, V and their scales 3 x 4.25).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of 4 bits, the even column lower,
//          or with a table [pages, kv_heads, page_size, d], in any strides; their scales the same without d: f32, none
//          below 0. LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding_bits.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps a share and its end, d06_pages where keys stand,
// d17_nibbles how four bits lie in shared memory, and d21_columns what a block does.
namespace bits = decoding::bits;
using bits::chunk_offset, bits::ROW_BYTES, bits::ROW_CHUNKS, bits::SCALES_BYTES;
using decoding::HEAD_DIM;
using decoding::Rows;
using decoding::Seen;
using forward::LOG2E;

// Eight numbers of four bits as four times two f16: 0 and 4, 1 and 5, 2 and 6, 3 and 7. With its highest bit turned a
// number is 8 more and has no sign: u. Where it stands lowest that is u * 2^-24, and four bits higher u * 2^-20. Below
// ABOVE, 1024 in f16, it is 1024 + u or 1024 + 16 u.
template <uint32_t ABOVE = 0>
__device__ __forceinline__ void unpack(uint32_t eight, uint32_t (&two)[4]) {
  constexpr int A_AND_B_XOR_C = 0x6A;
  for (int i = 0; i < 4; ++i) {
    const uint32_t at = i % 2 == 0 ? 1 : 16;
    two[i] = lop3_b32<A_AND_B_XOR_C>(i < 2 ? eight : eight >> 8, 0x000f000f * at, ABOVE + 0x00080008 * at);
  }
}
// With their signs and an exponent, times 1 and 16. A tensor core takes a number without one for 2^-14, and of a sum it
// keeps what is 2^-25 of its largest product: so ten bits of a score would go.
__device__ __forceinline__ void unpack_signed(uint32_t eight, uint32_t (&two)[4]) {
  constexpr uint32_t ABOVE = 0x64006400;
  unpack<ABOVE>(eight, two);
  for (int i = 0; i < 4; ++i) two[i] = sub_f16x2(two[i], ABOVE + 0x00080008 * (i % 2 == 0 ? 1 : 16));
}
constexpr float LOW = 0x1p-24f, HIGH = 0x1p-20f;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : bits::ColumnTile<T, BR, BC, WARPS, STAGES> {};

// What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  static constexpr int EIGHTS = C::BR / 8, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_M_TILES = HEAD_DIM / 16, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[QK_K_TILES][4];
  int query_of[2];  // a lane has two rows of 16, 8 apart
  float scale_log2[EIGHTS], max[EIGHTS], sum[EIGHTS];
  float O_frag[PV_M_TILES][EIGHTS][4];  // of O with columns as rows: 16 of them, and eight rows
  float O_of_zeros[EIGHTS][4];

  // LOAD  In the order of d17, as f16, a row times a power of two that brings its largest number below 2^15: what is
  //       lost is 2^-36 of that. What meets K's higher four bits is 16 times less. Rows from 8 on are zeros where there
  //       are only eight.
  __device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence) {
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
        if (half < EIGHTS && rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8);
        twos[eight * 4] = four.x, twos[eight * 4 + 1] = four.y, twos[eight * 4 + 2] = four.z,
                     twos[eight * 4 + 3] = four.w;
      }
      for (const uint32_t two : twos) largest = fmaxf(largest, fmaxf(fabsf(number(two, 0)), fabsf(number(two, 1))));
      // By its exponent, and no further than f32 goes.
      const uint32_t up = min(127 + 14 + 127 - (__float_as_uint(quad_max(largest)) >> 23), 253u);
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
  __device__ __forceinline__ void raise_max(int half, float to) {
    to = fmaxf(quad_max(to), max[half]);
    const float correction = ex2_approx(max[half] - to);
    max[half] = to, sum[half] *= correction;
    for (int i = 0; i < 2; ++i) {
      const float of_row = __uint_as_float(shfl(__float_as_uint(correction), row_of_O(i) * 4));
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

  // A tile of keys that begins with `first_key`, whose K and V are at `smem_K` and behind it.
  __device__ __forceinline__ void multiply(uint32_t smem_K, const Seen& seen, int first_key, bool is_masked) {
    const uint32_t lane = threadIdx.x % 32;

    // QK  As in d17: 16 B of a key are a lane's part of all eight slices.
    const uint32_t lane_K = smem_K + chunk_offset(lane / 4, lane % 4);
    float S_frag[QK_N_TILES][4] = {};
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 K = ld_shared_v4(lane_K + key_tile * 8 * ROW_BYTES);
      const uint32_t eights[4] = {K.x, K.y, K.z, K.w};
      for (int i = 0; i < 4; ++i) {
        uint32_t K_frag[4];
        unpack_signed(eights[i], K_frag);
        for (int of_two = 0; of_two < 2; ++of_two)
          mma<f16>(S_frag[key_tile], Q_frag[i * 2 + of_two], K_frag[of_two * 2], K_frag[of_two * 2 + 1]);
      }
    }

    // SOFTMAX  A score is multiplied by its key's scale and rounded, and then compared: so what is largest is as far
    //          from the maximum as all others, however huge it is.
    float V_scales[QK_N_TILES][2];
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 scales = ld_shared_v4(smem_K + 2 * C::TILE_BYTES + (key_tile * 8 + lane % 4 * 2) * SCALES_BYTES);
      for (int half = 0; half < EIGHTS; ++half) {
        S_frag[key_tile][2 * half] *= __uint_as_float(scales.x) * scale_log2[half];
        S_frag[key_tile][2 * half + 1] *= __uint_as_float(scales.z) * scale_log2[half];
      }
      V_scales[key_tile][0] = __uint_as_float(scales.y), V_scales[key_tile][1] = __uint_as_float(scales.w);
    }
    if (is_masked) decoding::hide_unseen(S_frag, seen, query_of, first_key);
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
      if (vote_any(!(fmaxf(scaled, weights * LEAST) <= MOST))) {
        float to = forward::NO_KEY;
        for (int i = 0; i < QK_N_TILES * 2; ++i)
          to = fmaxf(to, S_frag[i / 2][2 * half + i % 2] + exponent(V_scales[i / 2][i % 2]));
        raise_max(half, to - BELOW);
        weigh();
      }
      sum[half] += weights;
    }

    // PV  What is transposed is fours of columns, as in d17: a register has four of one key and the same four of the
    //     next one. Two of the four are 16 rows of V with columns as rows.
    const uint32_t lane_V = smem_K + C::TILE_BYTES + chunk_offset(lane % 16, lane / 16);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      // What a column of zeros would get.
      uint32_t zeros[4];
      unpack(0, zeros);
      const uint32_t zero_rows[4] = {zeros[0], zeros[1], zeros[0], zeros[1]};
      for (int half = 0; half < EIGHTS; ++half)
        mma<f16>(O_of_zeros[half], zero_rows, P_frag[key_slice][half][0], P_frag[key_slice][half][1]);
      for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
        uint32_t V_fours[4];  // [chunk][half of the keys]
        ldmatrix_x4_trans(V_fours, (lane_V ^ (chunk * 16)) + key_slice * 16 * ROW_BYTES);
        for (int of_two = 0; of_two < 2; ++of_two) {
          uint32_t V_frag[2][4];  // [half of the keys][which of four columns]
          for (int half = 0; half < 2; ++half) unpack(V_fours[of_two * 2 + half], V_frag[half]);
          for (int two = 0; two < 2; ++two) {
            const uint32_t V_rows[4] = {V_frag[0][two * 2], V_frag[0][two * 2 + 1], V_frag[1][two * 2],
                                        V_frag[1][two * 2 + 1]};
            for (int half = 0; half < EIGHTS; ++half)
              mma<f16>(O_frag[(chunk + of_two) * 2 + two][half], V_rows, P_frag[key_slice][half][0],
                       P_frag[key_slice][half][1]);
          }
        }
      }
    }
  }
};

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(TokenScaleParams p, int shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  // LOAD     Four lanes copy a row, as d21 spells out, and so it is when that becomes
  // QK       scores,
  // SOFTMAX  weights,
  // PV       and sums with V.
  // STORE    What warps have found is joined.
  if constexpr (IN_PAGES) {
    bits::attend_by_columns<C, WarpRows<C>>(p, decoding::LanePages(p, blockIdx.z, n_k), shares);
  } else {
    bits::attend_by_columns<C, WarpRows<C>>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d06. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const TokenScaleParams& p) {
  decoding::start_shares<C>(device, p, [&](dim3 grid, int shares) {
    launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, grid,
           dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  });
}

template <class C>
void run(Device& device, const TokenScaleParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
