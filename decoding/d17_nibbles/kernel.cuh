// d17_nibbles. A cache of numbers of four bits, two to a byte, with a scale for each key of each head. In registers
// eight of them become 16 bits each; K's scale multiplies a column of S, and V's a column of P.
// Before:  d13_bytes reads a byte for each number, and reading is what takes time.
// Tile:    16x32 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 136 KiB (a warp 17: K, V and their scales 4 x 4.25, or 8 x 2.125).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of 4 bits, the even column lower,
//          or with a table [pages, kv_heads, page_size, d], in any strides; their scales the same without d: f32, none
//          below 0. LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding_bits.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps a share and what is left of it, d06_pages and d13_bytes
// where keys stand.
using decoding::HEAD_DIM;
using decoding::Rows;
using decoding::Seen;
using forward::LOG2E;

constexpr int ROW_BYTES = HEAD_DIM / 2, ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 32 numbers
constexpr int SCALES_BYTES = 8;                                       // of a key: K's, and V's

// Below 0x430 four bits u are the bf16 128 + u, and below 0x640 the f16 1024 + u. Here u is 8, twice.
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
// Eight numbers of four bits as four times two of T: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
// With its highest bit turned such a number is 8 more, and has no sign.
template <class T>
__device__ __forceinline__ void unpack(uint32_t eight, uint32_t (&two)[4]) {
  constexpr int A_AND_B_XOR_C = 0x6A;
  for (int i = 0; i < 4; ++i) {
    const uint32_t above = lop3_b32<A_AND_B_XOR_C>(eight >> 4 * i, 0x000f000f, eight_above(T()));
    two[i] = less(above, eight_above(T()), T());
  }
}

template <class T, int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  using Element = T;                                         // of Q and O
  using Wide = Config<T, 32, BC_ / 2, WARPS_, 2 * STAGES_>;  // for more rows than 16
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32, PER_SM = 1;
  static constexpr int STEP = WARPS * BC;  // keys that a block's warps take at a time, a tile each
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES + BC * SCALES_BYTES;  // K; V behind it, and the scales
  // At its end a warp leaves there what it has found: rows of O in f32, which 16 B more keep in different banks, and
  // the rows' maxima and sums.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4 + 16, PART_BYTES = BR * (PART_ROW_BYTES + 8);
  static constexpr uint32_t SMEM_BYTES = WARPS * STAGES * STAGE_BYTES;
  static_assert(WARPS * PART_BYTES <= SMEM_BYTES && BR % 16 == 0 && BC % 16 == 0 && BC <= 32);
};

// Byte offset of a chunk within a tile: two rows are a pass over the banks.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row / 2 % 4)) * 16;
}

// What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  static constexpr int M_TILES = C::BR / 16, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[M_TILES][QK_K_TILES][4];
  int query_of[M_TILES][2];  // [group][half]: a lane has two rows of 16, 8 apart
  forward::Softmax<bf16, C::BC> softmax[M_TILES];
  float O_frag[M_TILES][PV_N_TILES][4];

  // LOAD  Q goes to registers. A product does not ask in which order columns come, only that Q and K have the same: of
  //       four lanes that share a row each has 32 that stand side by side, and of eight of these every other four.
  __device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence, float scale) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      softmax[group].scale_log2 = scale * LOG2E;
      softmax[group].begin();
      for (int half = 0; half < 2; ++half) {
        const int row = group * 16 + FragmentC::row(lane, 2 * half), query = rows.query(row);
        query_of[group][half] = query;
        const int column = lane % 4 * 32;
        const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch +
                           rows.head(row) * p.Q_strides.head + query * p.Q_strides.row + column;
        for (int eight = 0; eight < 4; ++eight) {
          uint4 four = {0, 0, 0, 0};
          if (rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8);
          const uint32_t twos[4] = {four.x, four.y, four.z, four.w};
          for (int i = 0; i < 4; ++i)
            Q_frag[group][eight * 2 + i / 2][i % 2 * 2 + half] =
                prmt_b32(twos[i / 2], twos[i / 2 + 2], i % 2 == 0 ? 0x5410 : 0x7632);
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

    // QK  16 B of a key are a lane's part of all eight slices.
    const uint32_t lane_K = smem_K + chunk_offset(lane / 4, lane % 4);
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 K = ld_shared_v4(lane_K + key_tile * 8 * ROW_BYTES);
      const uint32_t eights[4] = {K.x, K.y, K.z, K.w};
      for (int i = 0; i < 4; ++i) {
        uint32_t K_frag[4];
        unpack<T>(eights[i], K_frag);
        for (int of_two = 0; of_two < 2; ++of_two) {
          for (int group = 0; group < M_TILES; ++group)
            mma<T>(S_frag[group][key_tile], Q_frag[group][i * 2 + of_two], K_frag[of_two * 2], K_frag[of_two * 2 + 1]);
        }
      }
    }

    // SOFTMAX  In a masked tile a row may meet its first key. A lane has two columns of each tile of S, whose scales
    //          stand side by side. The sum of a row is of the weights before they are scaled: they are made again.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
    float K_scales[QK_N_TILES][2], V_scales[QK_N_TILES][2];
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 scales = ld_shared_v4(smem_K + 2 * C::TILE_BYTES + (key_tile * 8 + lane % 4 * 2) * SCALES_BYTES);
      K_scales[key_tile][0] = __uint_as_float(scales.x), V_scales[key_tile][0] = __uint_as_float(scales.y);
      K_scales[key_tile][1] = __uint_as_float(scales.z), V_scales[key_tile][1] = __uint_as_float(scales.w);
    }
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int i = 0; i < QK_N_TILES * 4; ++i) S_frag[group][i / 4][i % 4] *= K_scales[i / 4][i % 2];
      if (is_masked) decoding::hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], is_first, is_masked);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
      for (int i = 0; i < PV_K_TILES * 4; ++i) {
        const int tile = i / 2, half = i % 2;  // of S, where by now exponents are
        P_frag[group][i / 4][i % 4] = pack<bf16>(ex2_approx(S_frag[group][tile][2 * half]) * V_scales[tile][0],
                                                 ex2_approx(S_frag[group][tile][2 * half + 1]) * V_scales[tile][1]);
      }
    }

    // PV  What is transposed is fours of columns: a register has four of one key and the same four of the next one. So
    //     of 32 columns every fourth is of a tile.
    const uint32_t lane_V = smem_K + C::TILE_BYTES + chunk_offset(lane % 16, lane / 16);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
        uint32_t V_fours[4];  // [chunk][half of the keys]
        ldmatrix_x4_trans(V_fours, (lane_V ^ (chunk * 16)) + key_slice * 16 * ROW_BYTES);
        for (int of_two = 0; of_two < 2; ++of_two) {
          uint32_t V_frag[2][4];  // [half of the keys][which of four columns]
          for (int half = 0; half < 2; ++half) unpack<bf16>(V_fours[of_two * 2 + half], V_frag[half]);
          for (int of_four = 0; of_four < 4; ++of_four) {
            for (int group = 0; group < M_TILES; ++group)
              mma<bf16>(O_frag[group][(chunk + of_two) * 4 + of_four], P_frag[group][key_slice], V_frag[0][of_four],
                        V_frag[1][of_four]);
          }
        }
      }
    }
  }
};

// LOAD  Four lanes copy a row. What is behind the last key, or behind d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS, lane_chunk = lane % ROW_CHUNKS;
#pragma unroll
  for (int row = 0; row < C::BC; row += 32 / ROW_CHUNKS) {
    const int of_tile = row + lane_row, key = first_key + of_tile;
    cp_async_16(tile + chunk_offset(of_tile, lane_chunk), from + keys.offset(strides, {key, of_tile}) / 2,
                key < keys.n_k && int(lane_chunk * 32) < d ? 16 : 0);
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
    return static_cast<const uint8_t*>(tensor) + (keys.begin(strides, sequence) + kv_head * strides.head) / 2 +
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
  mine.load_Q(p, rows, sequence, p.softmax_scale);
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>();  // this lane's part of the tile has landed
    __syncwarp();                 // safe to read it: all lanes' parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    const int first_key = step * STEP + warp * BC;
    mine.multiply(smem_K + (step - begin) % STAGES * C::STAGE_BYTES, seen, first_key, step == begin,
                  whole.template cuts<C>(first_key));
  }

  // STORE  As in d04. Of 32 columns of a row a lane has eight that stand side by side.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < C::BR / 16; ++group) {
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(mine.softmax[group].sum[half]);
      const int row = group * 16 + FragmentC::row(lane, 2 * half);
      for (int i = 0; i < ROW_CHUNKS * 2; ++i) {
        const auto found = [&](int of_four) {
          const float each = mine.O_frag[group][i / 2 * 4 + of_four][2 * half + i % 2];
          return sum != 0 ? __float_as_uint(each) : 0;
        };
        st_shared_v4(decoding::part_at<C>(warp, row).four + i / 2 * 128 + lane % 4 * 32 + i % 2 * 16,
                     {found(0), found(1), found(2), found(3)});
      }
      if (lane % 4 == 0)
        st_shared_v2(decoding::part_at<C>(warp, row).numbers,
                     {__float_as_uint(mine.softmax[group].largest(half)), __float_as_uint(sum)});
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
    attend<C>(p, decoding::LanePages(p, blockIdx.z, n_k), shares);
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

template <class C>
void run(Device& device, const TokenScaleParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
