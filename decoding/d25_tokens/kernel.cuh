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
#include "common/words/decoding_bytes.cuh"

namespace {

// d13_bytes spells out a cache of bytes, d17_nibbles how scales come with keys, d04_warps a share and what is left of
// it, d06_pages where keys stand and how blocks start.
using decoding::HEAD_DIM, decoding::Rows, decoding::Seen, decoding::bits::load_scales, decoding::bits::SCALES_BYTES;
using decoding::bytes::add_bytes, decoding::bytes::ByteTile, decoding::bytes::E4m3, decoding::bytes::Int8;
using decoding::bytes::is_short, decoding::bytes::leave_row, decoding::bytes::load_tile, decoding::bytes::ROW_BYTES;
using decoding::bytes::ROW_CHUNKS, decoding::bytes::score_bytes, decoding::bytes::start_for;
using decoding::bytes::to_f16x2;
using forward::LOG2E;

template <class T, class Byte>
struct Config : ByteTile<T, Byte, 16, 32, 8, 3, SCALES_BYTES> {};

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

    // QK
    float S_frag[M_TILES][QK_N_TILES][4] = {};
    score_bytes<Byte>(S_frag, Q_frag, smem_K);

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

    // PV
    add_bytes<Byte>(O_frag, P_frag, smem_K + C::TILE_BYTES);
  }
};

template <class C, class Keys>
__device__ __forceinline__ void attend(const TokenScaleParams& p, Keys keys, int shares) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warp * C::STAGES * C::STAGE_BYTES, smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_base(), C::SMEM_BYTES, "K and V", ROW_BYTES);
  const Rows rows = Rows::of_block<C>(p, shares);
  const Seen seen(p, p.n_q, keys.n_k);
  const auto share = decoding::BlockShare::of<C>(rows, seen, shares);
  const auto whole = decoding::Whole::of<C>(rows, seen);

  // LOAD  As in d04, and a lane the scales of a key.
  const auto source = [&](const void* tensor, const ForwardParams::Strides& strides) {
    return static_cast<const uint8_t*>(tensor) + keys.begin(strides, share.sequence) + share.kv_head * strides.head +
           lane % ROW_CHUNKS * 16;
  };
  const uint8_t *const K = source(p.K, p.K_strides), *const V = source(p.V, p.V_strides);
  const int64_t scales = keys.begin(p.scale_strides, share.sequence) + share.kv_head * p.scale_strides.head;
  const auto load = [&](uint32_t stage, int first_key) {
    load_tile<C>(smem_K + stage, K, p.K_strides, keys, first_key, p.d);
    load_tile<C>(smem_V + stage, V, p.V_strides, keys, first_key, p.d);
    load_scales<C>(smem_V + C::TILE_BYTES + stage, p, scales, keys, first_key);
  };
  WarpRows<C> mine;
  const auto begin = [&] { mine.load_Q(p, rows, share.sequence); };
  const auto multiply = [&](uint32_t stage, int first_key, bool) {
    mine.multiply(smem_K + stage, seen, first_key, whole.template cuts<C>(first_key));
  };
  decoding::walk_share<C>(share, warp, keys, load, begin, multiply);

  // STORE  As in d04.
  __syncthreads();  // safe to overwrite K and V: all warps have read their last ones
#pragma unroll
  for (int group = 0; group < C::BR / 16; ++group) {
    for (int half = 0; half < 2; ++half)
      leave_row<C>(group * 16 + FragmentC::row(lane, 2 * half), mine.O_frag[group], half, mine.max[group][half],
                   quad_sum(mine.sum[group][half]));
  }
  __syncthreads();  // safe to read what the other warps have found
  decoding::leave_rows<C>(p, share);
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
  start_for<C>(device, p, [&]<class Tile>() { start<Tile>(device, p); });
}

}  // namespace
