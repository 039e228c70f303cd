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
#include "common/words/decoding_bytes.cuh"

namespace {

// d13_bytes spells out a cache of bytes, d04_warps a share and what is left of it, d06_pages where keys stand and how
// blocks start.
using decoding::HEAD_DIM, decoding::Rows, decoding::Seen;
using decoding::bytes::add_bytes, decoding::bytes::ByteTile, decoding::bytes::E4m3, decoding::bytes::Int8;
using decoding::bytes::is_short, decoding::bytes::leave_row, decoding::bytes::load_tile, decoding::bytes::ROW_BYTES;
using decoding::bytes::ROW_CHUNKS, decoding::bytes::score_bytes, decoding::bytes::start_for;
using forward::LOG2E;

template <class T, class Byte>
struct Config : ByteTile<T, Byte, 16, 32, 8, 3> {};

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
    // QK
    float S_frag[M_TILES][QK_N_TILES][4] = {};
    score_bytes<Byte>(S_frag, Q_frag, smem_K);

    // SOFTMAX  In a masked tile a row may meet its first key.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (is_masked) decoding::hide_unseen(S_frag[group], seen, query_of[group], first_key);
      softmax[group].weigh(S_frag[group], P_frag[group], is_first, is_masked);
      if (softmax[group].rescale) scale_rows(O_frag[group], softmax[group].correction);
    }

    // PV
    add_bytes<Byte>(O_frag, P_frag, smem_K + C::TILE_BYTES);
  }
};

template <class C, class Keys>
__device__ __forceinline__ void attend(const ByteParams& p, Keys keys, int shares) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * C::STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p, p.n_q, keys.n_k);
  const auto share = decoding::BlockShare::of<C>(rows, seen, shares);
  const auto whole = decoding::Whole::of<C>(rows, seen);

  // LOAD  As in d04.
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, share.sequence) + share.kv_head * strides.head +
           lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, p.K_strides), *const V = source(p.V, p.V_strides);
  const auto load = [&](uint32_t stage, int first_key) {
    load_tile<C>(smem_K + stage, K, p.K_strides, keys, first_key, p.d);
    load_tile<C>(smem_V + stage, V, p.V_strides, keys, first_key, p.d);
  };
  const int64_t scales = share.sequence * p.scale_strides.batch + share.kv_head * p.scale_strides.head;
  WarpRows<C> mine;
  const auto begin = [&] { mine.load_Q(p, rows, share.sequence, p.K_scales + scales); };
  const auto multiply = [&](uint32_t stage, int first_key, bool is_first) {
    mine.multiply(smem_K + stage, seen, first_key, is_first, whole.template cuts<C>(first_key));
  };
  decoding::walk_share<C>(share, warp, keys, load, begin, multiply);

  // STORE  As in d04, and each column times V's scale of it.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < C::BR / 16; ++group) {
    for (int half = 0; half < 2; ++half)
      leave_row<C>(group * 16 + FragmentC::row(lane, 2 * half), mine.O_frag[group], half,
                   mine.softmax[group].largest(half), quad_sum(mine.softmax[group].sum[half]));
  }
  const FourScales V_scales(p.V_scales + scales, lane * 4, p.d);
  __syncthreads();  // safe to read what the other warps have found
  for (int row = warp; row < C::BR && rows.has(row); row += C::WARPS) {
    float O[4] = {};
    const auto all =
        decoding::join_warps<C::WARPS>(O, [&](int of_warp) { return decoding::part_at<C>(of_warp, row, lane); });
    for (int i = 0; i < 4; ++i) O[i] *= V_scales.of[i];
    share.template leave<typename C::Element>(p, row, O, all);
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(ByteParams p, int shares) {
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
void start(Device& device, const ByteParams& p) {
  decoding::start_shares<C>(device, p, [&](dim3 grid, int shares) {
    launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, grid,
           dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  });
}

template <class C>
void run(Device& device, const ByteParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  start_for<C>(device, p, [&]<class Tile>() { start<Tile>(device, p); });
}

}  // namespace
