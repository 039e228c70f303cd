// d25_tokens. A cache of bytes with a scale for each key of each head: K's multiplies a column of S, and V's a column
// of P. So a new token brings its scales along, and nobody needs to know how large it would be.
// Before:  d13_bytes has one scale for a head, and a token that is larger than those before it is cut off.
// Tile:    16x32 for each of 8 warps, 16x16 where keys are few, or 32x16 where there are more rows; a block on an SM.
//          Shared: 198 KiB (a warp 24.75: K, V and their scales 3 x 8.25, or 6 x 4.125).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] bytes, or with a table
//          [pages, kv_heads, page_size, d], in any strides; their scales the same without d: f32, none below 0.
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
constexpr int SCALES_BYTES = 8;                                   // of a key: K's, and V's

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
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES + BC * SCALES_BYTES;  // K; V behind it, and the scales
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

// Two numbers of Q as f16.
__device__ __forceinline__ uint32_t to_f16x2(uint32_t two, f16) {
  return two;
}
__device__ __forceinline__ uint32_t to_f16x2(uint32_t two, bf16) {
  return pack_f16x2(to_float(bf16{uint16_t(two)}), to_float(bf16{uint16_t(two >> 16)}));
}

// What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  using Byte = typename C::Byte;
  static constexpr int M_TILES = C::BR / 16, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[M_TILES][QK_K_TILES][4];
  int query_of[M_TILES][2];  // [group][half]: a lane has two rows of 16, 8 apart
  float scale_log2, max[M_TILES][2], sum[M_TILES][2];
  float O_frag[M_TILES][PV_N_TILES][4];

  // LOAD  Q goes to registers, as f16. A product does not ask in which order columns come, only that Q and K have the
  //       same: of four lanes that share a row each has 32 that stand side by side, four of each slice.
  __device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence) {
    const uint32_t lane = threadIdx.x % 32;
    scale_log2 = p.softmax_scale * LOG2E;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int half = 0; half < 2; ++half) {
        max[group][half] = forward::NO_KEY, sum[group][half] = 0;
        const int row = group * 16 + FragmentC::row(lane, 2 * half), query = rows.query(row);
        query_of[group][half] = query;
        const int column = lane % 4 * 32;
        const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch +
                           rows.head(row) * p.Q_strides.head + query * p.Q_strides.row + column;
        for (int eight = 0; eight < 4; ++eight) {
          uint4 four = {0, 0, 0, 0};
          if (rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8);
          const uint32_t twos[4] = {four.x, four.y, four.z, four.w};
          for (int i = 0; i < 4; ++i) Q_frag[group][eight * 2 + i / 2][i % 2 * 2 + half] = to_f16x2(twos[i], T());
        }
      }
      for (auto& tile : O_frag[group]) {
        for (float& each : tile) each = 0;
      }
    }
  }
  // A row's maximum, over its four lanes, and the sum and O that are relative to it.
  __device__ __forceinline__ void raise_max(int group, int half, float to) {
    to = fmaxf(quad_max(to), max[group][half]);
    const float correction = ex2_approx(max[group][half] - to);
    max[group][half] = to, sum[group][half] *= correction;
    for (auto& tile : O_frag[group]) tile[2 * half] *= correction, tile[2 * half + 1] *= correction;
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

    // SOFTMAX  A lane has two columns of each tile of S: two keys. A score is multiplied by its key's scale and
    //          rounded, and then compared: so what is largest is as far from the maximum as all others, even if huge.
    float V_scales[QK_N_TILES][2];
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 of = ld_shared_v4(smem_K + 2 * C::TILE_BYTES + (key_tile * 8 + lane % 4 * 2) * SCALES_BYTES);
      const float K_scales[2] = {__uint_as_float(of.x) * scale_log2, __uint_as_float(of.z) * scale_log2};
      for (int i = 0; i < M_TILES * 4; ++i) S_frag[i / 4][key_tile][i % 4] *= K_scales[i % 2];
      V_scales[key_tile][0] = __uint_as_float(of.y), V_scales[key_tile][1] = __uint_as_float(of.w);
    }
    // A weight times V's scale has to fit into f16, and so the maximum is that of both together.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int row = 0; row < M_TILES * 2; ++row) {
      const int group = row / 2, half = row % 2;
      if (is_masked && half == 0) decoding::hide_unseen(S_frag[group], seen, query_of[group], first_key);
      float weights = 0, scaled = 0;
      const auto weigh = [&] {
        weights = scaled = 0;
        for (int tile = 0; tile < QK_N_TILES; ++tile) {
          const float low = ex2_approx(S_frag[group][tile][2 * half] - max[group][half]);
          const float high = ex2_approx(S_frag[group][tile][2 * half + 1] - max[group][half]);
          weights += low + high;
          scaled += low * V_scales[tile][0] + high * V_scales[tile][1];
          P_frag[group][tile / 2][tile % 2 * 2 + half] = pack_f16x2(low * V_scales[tile][0], high * V_scales[tile][1]);
        }
      };
      weigh();
      if (vote_any(!(fmaxf(scaled, weights * LEAST) <= MOST))) {
        float to = forward::NO_KEY;
        for (int i = 0; i < QK_N_TILES * 2; ++i)
          to = fmaxf(to, S_frag[group][i / 2][2 * half + i % 2] + exponent(V_scales[i / 2][i % 2]));
        raise_max(group, half, to - BELOW);
        weigh();
      }
      sum[group][half] += weights;
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

// And a lane the scales of a key.
template <class C, class Keys>
__device__ __forceinline__ void load_scales(uint32_t scales, const TokenScaleParams& p, int64_t first, const Keys& keys,
                                            int first_key) {
  const int lane = threadIdx.x % 32, key = first_key + lane;
  const int64_t at = first + keys.offset(p.scale_strides, {key, lane});
  if (lane >= C::BC) return;
  cp_async_4(scales + lane * SCALES_BYTES, p.K_scales + at, key < keys.n_k ? 4 : 0);
  cp_async_4(scales + lane * SCALES_BYTES + 4, p.V_scales + at, key < keys.n_k ? 4 : 0);
}

template <class C, class Keys>
__device__ __forceinline__ void attend(const TokenScaleParams& p, Keys keys, int shares) {
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
  const int64_t scales = keys.begin(p.scale_strides, sequence) + kv_head * p.scale_strides.head;
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile<C>(smem_K + stage, K, p.K_strides, keys, first_key, p.d);
      load_tile<C>(smem_V + stage, V, p.V_strides, keys, first_key, p.d);
      load_scales<C>(smem_V + C::TILE_BYTES + stage, p, scales, keys, first_key);
      keys.look_up(first_key + STEP);
    }
    cp_async_commit();
  };
  keys.look_up(begin * STEP + warp * BC);
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);

  WarpRows<C> mine;
  mine.load_Q(p, rows, sequence);
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>();  // this lane's part of the tile has landed
    __syncwarp();                 // safe to read it: all lanes' parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    const int first_key = step * STEP + warp * BC;
    mine.multiply(smem_K + (step - begin) % STAGES * C::STAGE_BYTES, seen, first_key,
                  whole.template cuts<C>(first_key));
  }

  // STORE  As in d04. Of 16 columns of a row a lane has four that stand side by side.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < C::BR / 16; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(mine.sum[group][half]);
      const int row = group * 16 + FragmentC::row(lane, 2 * half);
      for (int chunk = 0; chunk < ROW_CHUNKS; ++chunk) {
        const float *const even = &mine.O_frag[group][chunk * 2][2 * half], *const odd = even + 4;
        const auto known = [&](float found) { return sum != 0 ? __float_as_uint(found) : 0; };
        st_shared_v4(decoding::part_at<C>(warp, row).four + chunk * 64 + lane % 4 * 16,
                     {known(even[0]), known(odd[0]), known(even[1]), known(odd[1])});
      }
      if (lane % 4 == 0)
        st_shared_v2(decoding::part_at<C>(warp, row).numbers,
                     {__float_as_uint(mine.max[group][half]), __float_as_uint(sum)});
    }
  }
  __syncthreads();  // safe to read what the other warps have found
  for (int row = warp; row < C::BR && rows.has(row); row += WARPS) {
    float O[4] = {};
    const auto all =
        decoding::join_warps<WARPS>(O, [&](int of_warp) { return decoding::part_at<C>(of_warp, row, lane); });
    share.template leave<typename C::Element>(p, row, O, all);
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(TokenScaleParams p, int shares) {
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
void start(Device& device, const TokenScaleParams& p) {
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
void run(Device& device, const TokenScaleParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  if (decoding::rows_per_kv_head(p) > C::BR) return start<typename C::Wide>(device, p);
  is_short<C>(int64_t(p.kv_heads) * p.batch, p.n_k, multiprocessors(device)) ? start<typename C::Short>(device, p)
                                                                             : start<C>(device, p);
}

}  // namespace
