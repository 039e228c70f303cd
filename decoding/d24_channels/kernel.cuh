// d24_channels. A cache of bytes with a scale for each column of a head. A column's scale of K goes into Q while it is
// loaded, one of V into O while it is stored: the loop is d13's, line by line.
// Before:  d13_bytes has one scale for a head, so one large column makes the steps of all others coarse.
// Tile:    16x32 for each of 8 warps, 16x16 where keys are few, or 32x16 where there are more rows; a block on an SM.
//          Shared: 192 KiB (a warp 24: K, V 3 x 4 each, or 6 x 2).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] bytes, or with a table
//          [pages, kv_heads, page_size, d], in any strides; their scales: [batch, kv_heads, d] f32, none below 0.
//          LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps a share and what is left of it, and d06_pages where keys
// stand and how blocks start.
using decoding::HEAD_DIM;
using decoding::Rows;
using decoding::Seen;
using forward::LOG2E;

constexpr int ROW_BYTES = HEAD_DIM, ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 16 elements

// Four bytes as two times two f16: of bytes 0, 1 and 2, 3, or APART of 0, 2 and 1, 3.
struct E4m3 {
  template <bool APART>
  __device__ __forceinline__ static void unpack(uint32_t four, uint32_t (&two)[2]) {
    if (APART) four = prmt_b32(four, 0, 0x3120);
    two[0] = unpack_e4m3x2(uint16_t(four)), two[1] = unpack_e4m3x2(uint16_t(four >> 16));
  }
};
// Below a byte 0x64, a byte u is the f16 1024 + u; and u, counted from -128, is 128 more than the number.
struct Int8 {
  template <bool APART>
  __device__ __forceinline__ static void unpack(uint32_t four, uint32_t (&two)[2]) {
    constexpr uint32_t FIRST = APART ? 0x4240 : 0x4140, SECOND = APART ? 0x4341 : 0x4342, F16_1152 = 0x6480;
    for (int i = 0; i < 2; ++i)
      two[i] = sub_f16x2(prmt_b32(four ^ 0x80808080, 0x64, i == 0 ? FIRST : SECOND), F16_1152 * 0x10001);
  }
};

template <class T, class Byte_, int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  using Element = T;  // of Q and O
  using Byte = Byte_;
  using Wide = Config<T, Byte, 32, BC_ / 2, WARPS_, 2 * STAGES_>;  // for more rows than 16
  using Short = Config<T, Byte, 16, 16, WARPS_, 6>;                // for few keys
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = 1;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // K; and V behind it
  // At its end a warp leaves there what it has found: rows of O in f32, which 64 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 64, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static constexpr uint32_t SMEM_BYTES = WARPS * STAGES * STAGE_BYTES;
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && BR % 16 == 0 && BC % 16 == 0 && BC <= 32);
};

// Byte offset of a chunk within a tile.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// As in d06, but a tile may have a key for each lane.
struct Pages : decoding::Pages {
  using decoding::Pages::Pages;
  __device__ __forceinline__ void look_up(int first_key) {
    const int key = first_key + threadIdx.x % 32, number = key / size;
    row = key - number * size;
    page = key < n_k ? ld_global_s32(table + number) : 0;
  }
};

// The scales of four columns of a head, zeros behind d.
struct FourScales {
  float of[4] = {};
  __device__ __forceinline__ FourScales(const float* scales, int column, int d) {
    if (column >= d) return;
    const uint4 four = ld_global_v4(scales + column);
    of[0] = __uint_as_float(four.x), of[1] = __uint_as_float(four.y);
    of[2] = __uint_as_float(four.z), of[3] = __uint_as_float(four.w);
  }
};

// What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  using Byte = typename C::Byte;
  static constexpr int M_TILES = C::BR / 16, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[M_TILES][QK_K_TILES][4];
  int query_of[M_TILES][2];  // [group][half]: a lane has two rows of 16, 8 apart
  forward::Softmax<f16, C::BC> softmax[M_TILES];
  float O_frag[M_TILES][PV_N_TILES][4];

  // LOAD  Q goes to registers, as f16, in the order of d13, and each column times K's scale of it. These are relative
  //       to a power of two above the largest, so no number of Q grows, and that power goes into the scale of scores.
  __device__ __forceinline__ void load_Q(const ByteParams& p, const Rows& rows, int sequence, const float* K_scales) {
    const uint32_t lane = threadIdx.x % 32;
    const int column = lane % 4 * 32;
    float scales[32], largest = 0;
#pragma unroll
    for (int four = 0; four < 8; ++four) {
      const FourScales loaded(K_scales, column + four * 4, p.d);
      for (int i = 0; i < 4; ++i) {
        scales[four * 4 + i] = loaded.of[i];
        largest = fmaxf(largest, loaded.of[i]);
      }
    }
    // Of columns of zeros all scales are 0, and hidden scores, -infinity, would be NaN: 2^-80 is the least.
    const uint32_t above = max((__float_as_uint(quad_max(largest)) >> 23) + 1, 127u - 80);
    const float unit = __uint_as_float(above << 23);
    for (float& scale : scales) scale *= __uint_as_float((254 - above) << 23);  // 1 / unit
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      softmax[group].scale_log2 = p.softmax_scale * LOG2E * unit;
      softmax[group].begin();
      for (int half = 0; half < 2; ++half) {
        const int row = group * 16 + FragmentC::row(lane, 2 * half), query = rows.query(row);
        query_of[group][half] = query;
        const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch +
                           rows.head(row) * p.Q_strides.head + query * p.Q_strides.row + column;
        for (int eight = 0; eight < 4; ++eight) {
          uint4 four = {0, 0, 0, 0};
          if (rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8);
          const uint32_t twos[4] = {four.x, four.y, four.z, four.w};
          for (int i = 0; i < 4; ++i) {
            const float* const of = &scales[eight * 8 + i * 2];
            Q_frag[group][eight * 2 + i / 2][i % 2 * 2 + half] =
                pack_f16x2(to_float(T{uint16_t(twos[i])}) * of[0], to_float(T{uint16_t(twos[i] >> 16)}) * of[1]);
          }
        }
      }
      for (auto& tile : O_frag[group]) {
        for (float& each : tile) each = 0;
      }
    }
  }
  // A tile of keys that begins with `first_key`, whose K and V are at `smem_K` and behind it.
  __device__ __forceinline__ void multiply(uint32_t smem_K, const Seen& seen, int first_key, bool is_first,
                                           bool is_masked) {
    const uint32_t lane = threadIdx.x % 32;

    // QK  16 B of a key are a lane's part of four slices.
    const uint32_t lane_K = smem_K + chunk_offset(lane / 4, lane % 4 * 2);
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        const uint4 K = ld_shared_v4((lane_K ^ (half * 16)) + key_tile * 8 * ROW_BYTES);
        const uint32_t fours[4] = {K.x, K.y, K.z, K.w};
        for (int i = 0; i < 4; ++i) {
          uint32_t K_frag[2];
          Byte::template unpack<false>(fours[i], K_frag);
          for (int group = 0; group < M_TILES; ++group)
            mma<f16>(S_frag[group][key_tile], Q_frag[group][half * 4 + i], K_frag[0], K_frag[1]);
        }
      }
    }

    // SOFTMAX  In a masked tile a row may meet its first key.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (is_masked) decoding::hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], is_first, is_masked);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
    }

    // PV  What is transposed is pairs of columns: a register has two of one key and two of the next one. Of 16 columns
    //     the even ones are a tile, and the odd ones.
    const uint32_t lane_V = smem_K + C::TILE_BYTES + chunk_offset(lane % 16, lane / 16);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
        uint32_t V_pairs[4];  // [chunk][half of the keys]
        ldmatrix_x4_trans(V_pairs, (lane_V ^ (chunk * 16)) + key_slice * 16 * ROW_BYTES);
        for (int of_two = 0; of_two < 2; ++of_two) {
          uint32_t V_frag[2][2];  // [half of the keys][even, odd]
          for (int half = 0; half < 2; ++half) Byte::template unpack<true>(V_pairs[of_two * 2 + half], V_frag[half]);
          for (int odd = 0; odd < 2; ++odd) {
            for (int group = 0; group < M_TILES; ++group)
              mma<f16>(O_frag[group][(chunk + of_two) * 2 + odd], P_frag[group][key_slice], V_frag[0][odd],
                       V_frag[1][odd]);
          }
        }
      }
    }
  }
};

// LOAD  A quarter of a warp copies a row. What is behind the last key, or behind d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS, lane_chunk = lane % ROW_CHUNKS;
#pragma unroll
  for (int row = 0; row < C::BC; row += 32 / ROW_CHUNKS) {
    const int of_tile = row + lane_row, key = first_key + of_tile;
    cp_async_16(tile + chunk_offset(of_tile, lane_chunk), from + keys.offset(strides, {key, of_tile}),
                key < keys.n_k && int(lane_chunk * 16) < d ? 16 : 0);
  }
}

template <class C, class Keys>
__device__ __forceinline__ void attend(const ByteParams& p, Keys keys, int shares) {
  constexpr int BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, STEP = C::STEP;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p, p.n_q, keys.n_k);
  const auto share = decoding::BlockShare::of<C>(rows, seen, shares);
  const int sequence = share.sequence, kv_head = share.kv_head, begin = share.begin, end = share.end;
  const auto whole = decoding::Whole::of<C>(rows, seen);

  // LOAD  As in d04.
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, sequence) + kv_head * strides.head +
           lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, p.K_strides), *const V = source(p.V, p.V_strides);
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile<C>(smem_K + stage, K, p.K_strides, keys, first_key, p.d);
      load_tile<C>(smem_V + stage, V, p.V_strides, keys, first_key, p.d);
      keys.look_up(first_key + STEP);
    }
    cp_async_commit();
  };
  keys.look_up(begin * STEP + warp * BC);
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);

  const int64_t scales = sequence * p.scale_strides.batch + kv_head * p.scale_strides.head;
  WarpRows<C> mine;
  mine.load_Q(p, rows, sequence, p.K_scales + scales);
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>();  // this lane's part of the tile has landed
    __syncwarp();                 // safe to read it: all lanes' parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    const int first_key = step * STEP + warp * BC;
    mine.multiply(smem_K + (step - begin) % STAGES * C::STAGE_BYTES, seen, first_key, step == begin,
                  whole.template cuts<C>(first_key));
  }

  // STORE  As in d04, and each column times V's scale of it. Of 16 columns of a row a lane has four that stand side by
  //        side.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < C::BR / 16; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(mine.softmax[group].sum[half]);
      const int row = group * 16 + FragmentC::row(lane, 2 * half);
      for (int chunk = 0; chunk < ROW_CHUNKS; ++chunk) {
        const float *const even = &mine.O_frag[group][chunk * 2][2 * half], *const odd = even + 4;
        const auto known = [&](float found) { return sum != 0 ? __float_as_uint(found) : 0; };
        st_shared_v4(decoding::part_at<C>(warp, row).four + chunk * 64 + lane % 4 * 16,
                     {known(even[0]), known(odd[0]), known(even[1]), known(odd[1])});
      }
      if (lane % 4 == 0)
        st_shared_v2(decoding::part_at<C>(warp, row).numbers,
                     {__float_as_uint(mine.softmax[group].largest(half)), __float_as_uint(sum)});
    }
  }
  const FourScales V_scales(p.V_scales + scales, lane * 4, p.d);
  __syncthreads();  // safe to read what the other warps have found
  for (int row = warp; row < C::BR && rows.has(row); row += WARPS) {
    float O[4] = {};
    const auto all =
        decoding::join_warps<WARPS>(O, [&](int of_warp) { return decoding::part_at<C>(of_warp, row, lane); });
    for (int i = 0; i < 4; ++i) O[i] *= V_scales.of[i];
    share.template leave<typename C::Element>(p, row, O, all);
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(ByteParams p, int shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend<C>(p, Pages(p, blockIdx.z, n_k), shares);
  } else {
    attend<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d06. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const ByteParams& p) {
  decoding::start_shares<C>(device, p, [&](dim3 grid, int shares) {
    launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, grid,
           dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  });
}

// Of a text so short that a block has a step and half of all SMs nothing, steps are half as long.
template <class C>
bool is_short(int64_t heads_of_keys, int n_k, int multiprocessors) {
  return 2 * heads_of_keys * ((n_k + C::STEP - 1) / C::STEP) <= multiprocessors;
}

template <class C>
void run(Device& device, const ByteParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  if (decoding::rows_per_kv_head(p) > C::BR) return start<typename C::Wide>(device, p);
  is_short<C>(int64_t(p.kv_heads) * p.batch, p.n_k, multiprocessors(device)) ? start<typename C::Short>(device, p)
                                                                             : start<C>(device, p);
}

}  // namespace
