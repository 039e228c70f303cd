// d21_columns. The rows of a head's queries are columns of the second product: V is its left side. So eight rows are
// no sixteen any more, a warp has half as much of everything, and there are twice as many warps.
// Before:  d17_nibbles weighs sixteen rows where there are four, and its schedulers have two warps each.
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

// 41_rows spells out no_keys, d02_split the join, d04_warps a share and what is left of it, d06_pages and d13_bytes
// where keys stand, and d17_nibbles how four bits lie in shared memory and what becomes of them.
namespace bits = decoding::bits;
using bits::chunk_offset, bits::ROW_BYTES, bits::ROW_CHUNKS, bits::SCALES_BYTES;
using decoding::HEAD_DIM;
using decoding::Rows;
using decoding::Seen;
using forward::LOG2E;

template <class T, int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  using Element = T;                                 // of Q and O
  using Wide = Config<T, 16, BC_, WARPS_, STAGES_>;  // for more rows than 8
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

// What a warp has in registers: Q, and what it has found about these rows among its keys.
template <class C>
struct WarpRows {
  using T = typename C::Element;
  static constexpr int EIGHTS = C::BR / 8, QK_N_TILES = C::BC / 8, QK_K_TILES = HEAD_DIM / 16;
  static constexpr int PV_M_TILES = HEAD_DIM / 16, PV_K_TILES = C::BC / 16;
  uint32_t Q_frag[QK_K_TILES][4];
  int query_of[2];  // a lane has two rows of 16, 8 apart
  float scale_log2, max[EIGHTS], sum[EIGHTS];
  float O_frag[PV_M_TILES][EIGHTS][4];  // of O with columns as rows: 16 of them, and eight rows

  // LOAD  As in d17. The rows from 8 to 15 are zeros where there are only eight.
  __device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence) {
    const uint32_t lane = threadIdx.x % 32;
    scale_log2 = p.softmax_scale * LOG2E;
    for (int half = 0; half < 2; ++half) {
      const int row = FragmentC::row(lane, 2 * half), query = rows.query(row);
      query_of[half] = query;
      const int column = lane % 4 * 32;
      const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch + rows.head(row) * p.Q_strides.head +
                         query * p.Q_strides.row + column;
      for (int eight = 0; eight < 4; ++eight) {
        uint4 four = {0, 0, 0, 0};
        if (half < EIGHTS && rows.has(row) && column + eight * 8 < p.d) four = ld_global_v4(Q + eight * 8);
        const uint32_t twos[4] = {four.x, four.y, four.z, four.w};
        for (int i = 0; i < 4; ++i)
          Q_frag[eight * 2 + i / 2][i % 2 * 2 + half] =
              prmt_b32(twos[i / 2], twos[i / 2 + 2], i % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
    for (int half = 0; half < EIGHTS; ++half) {
      max[half] = forward::NO_KEY, sum[half] = 0;
      for (auto& tile : O_frag) {
        for (float& each : tile[half]) each = 0;
      }
    }
  }
  // A row's maximum, over its four lanes, and the sum and O that are relative to it. A lane's columns of O belong to
  // other rows than its row of S.
  __device__ __forceinline__ void raise_max(int half, float to) {
    to = fmaxf(quad_max(to), max[half]);
    const float correction = ex2_approx(max[half] - to);
    max[half] = to, sum[half] *= correction;
    for (int i = 0; i < 2; ++i) {
      const float of_row = __uint_as_float(shfl(__float_as_uint(correction), row_of_O(i) * 4));
      for (auto& tile : O_frag) tile[half][i] *= of_row, tile[half][2 + i] *= of_row;
    }
  }
  __device__ __forceinline__ static int row_of_O(int i) { return threadIdx.x % 4 * 2 + i; }

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
        bits::unpack<T>(eights[i], K_frag);
        for (int of_two = 0; of_two < 2; ++of_two)
          mma<T>(S_frag[key_tile], Q_frag[i * 2 + of_two], K_frag[of_two * 2], K_frag[of_two * 2 + 1]);
      }
    }

    // SOFTMAX  A score is multiplied by its key's scale and rounded, and then compared: so what is largest is 0 above
    //          the maximum, however huge it is. The maximum may be 2^8 too low.
    float K_scales[QK_N_TILES][2], V_scales[QK_N_TILES][2];
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      const uint4 scales = ld_shared_v4(smem_K + 2 * C::TILE_BYTES + (key_tile * 8 + lane % 4 * 2) * SCALES_BYTES);
      K_scales[key_tile][0] = __uint_as_float(scales.x) * scale_log2, V_scales[key_tile][0] = __uint_as_float(scales.y);
      K_scales[key_tile][1] = __uint_as_float(scales.z) * scale_log2, V_scales[key_tile][1] = __uint_as_float(scales.w);
    }
    for (int i = 0; i < QK_N_TILES * 4; ++i) S_frag[i / 4][i % 4] *= K_scales[i / 4][i % 2];
    if (is_masked) decoding::hide_unseen(S_frag, seen, query_of, first_key);
    // Of S a lane's two columns of eight are two rows of what is now on the right: P needs no exchange.
    uint32_t P_frag[PV_K_TILES][EIGHTS][2];
#pragma unroll
    for (int half = 0; half < EIGHTS; ++half) {
      const float largest = lane_max(S_frag, half);
      if (vote_any(largest > max[half] + forward::RESCALE_ABOVE)) raise_max(half, largest);
      for (int tile = 0; tile < QK_N_TILES; ++tile) {
        const float weights[2] = {ex2_approx(S_frag[tile][2 * half] - max[half]),
                                  ex2_approx(S_frag[tile][2 * half + 1] - max[half])};
        sum[half] += weights[0] + weights[1];
        P_frag[tile / 2][half][tile % 2] = pack<bf16>(weights[0] * V_scales[tile][0], weights[1] * V_scales[tile][1]);
      }
    }

    // PV  What is transposed is fours of columns, as in d17: a register has four of one key and the same four of the
    //     next one. Two of the four are 16 rows of V with columns as rows.
    const uint32_t lane_V = smem_K + C::TILE_BYTES + chunk_offset(lane % 16, lane / 16);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int chunk = 0; chunk < ROW_CHUNKS; chunk += 2) {
        uint32_t V_fours[4];  // [chunk][half of the keys]
        ldmatrix_x4_trans(V_fours, (lane_V ^ (chunk * 16)) + key_slice * 16 * ROW_BYTES);
        for (int of_two = 0; of_two < 2; ++of_two) {
          uint32_t V_frag[2][4];  // [half of the keys][which of four columns]
          for (int half = 0; half < 2; ++half) bits::unpack<bf16>(V_fours[of_two * 2 + half], V_frag[half]);
          for (int two = 0; two < 2; ++two) {
            const uint32_t V_rows[4] = {V_frag[0][two * 2], V_frag[0][two * 2 + 1], V_frag[1][two * 2],
                                        V_frag[1][two * 2 + 1]};
            for (int half = 0; half < EIGHTS; ++half)
              mma<bf16>(O_frag[(chunk + of_two) * 2 + two][half], V_rows, P_frag[key_slice][half][0],
                        P_frag[key_slice][half][1]);
          }
        }
      }
    }
  }
};

// LOAD  Four lanes copy a row of a tensor whose strides are in bytes. What is behind the last key, or d, is zeros.
template <class C, class Keys>
__device__ __forceinline__ void load_tile(uint32_t tile, const uint8_t* from, const ForwardParams::Strides& strides,
                                          const Keys& keys, int first_key, int d) {
  const uint32_t lane = threadIdx.x % 32, lane_row = lane / ROW_CHUNKS, lane_chunk = lane % ROW_CHUNKS;
  const int end = int(lane_chunk * 32) < d ? keys.n_k : 0;
#pragma unroll
  for (int row = 0; row < C::BC; row += 32 / ROW_CHUNKS) {
    const int of_tile = row + lane_row;
    cp_async_16(tile + chunk_offset(of_tile, lane_chunk), from + keys.offset(strides, {first_key + of_tile, of_tile}),
                first_key + of_tile < end ? 16 : 0);
  }
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
  const auto in_bytes = [](const ForwardParams::Strides& strides) {
    return ForwardParams::Strides{strides.batch / 2, strides.head / 2, strides.row / 2};
  };
  const ForwardParams::Strides K_strides = in_bytes(p.K_strides), V_strides = in_bytes(p.V_strides);
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, sequence) + kv_head * strides.head +
           lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, K_strides), *const V = source(p.V, V_strides);
  const int64_t scales = keys.begin(p.scale_strides, sequence) + kv_head * p.scale_strides.head;
  const auto load = [&](int step) {
    if (step < end) {
      const uint32_t stage = (step - begin) % STAGES * C::STAGE_BYTES;
      const int first_key = step * STEP + warp * BC;
      load_tile<C>(smem_K + stage, K, K_strides, keys, first_key, p.d);
      load_tile<C>(smem_V + stage, V, V_strides, keys, first_key, p.d);
      bits::load_scales<C>(smem_V + C::TILE_BYTES + stage, p, scales, keys, first_key);
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

  // STORE  As in d04. Of 32 columns of a row a lane has four that stand side by side.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int half = 0; half < C::BR / 8; ++half) {
    const float sum = quad_sum(mine.sum[half]);
    for (int i = 0; i < 2; ++i) {
      const int of_eight = mine.row_of_O(i), row = half * 8 + of_eight;
      const bool has_keys = __uint_as_float(shfl(__float_as_uint(sum), of_eight * 4)) != 0;
      for (int chunk = 0; chunk < ROW_CHUNKS; ++chunk) {
        const auto found = [&](int of_four) {
          return has_keys ? __float_as_uint(mine.O_frag[chunk * 2 + of_four / 2][half][of_four % 2 * 2 + i]) : 0;
        };
        st_shared_v4(decoding::part_at<C>(warp, row).four + chunk * 128 + lane / 4 * 16,
                     {found(0), found(1), found(2), found(3)});
      }
    }
    if (lane % 4 == 0)
      st_shared_v2(decoding::part_at<C>(warp, half * 8 + lane / 4).numbers,
                   {__float_as_uint(mine.max[half]), __float_as_uint(sum)});
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
