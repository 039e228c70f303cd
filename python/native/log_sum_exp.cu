// log_sum_exp: half of attention. Scores by mma.sync, and of each row the logarithm of its weights' sum; no values.
// Tile:   64 queries, 4 warps, against 64 keys at a time.  Shared: 32 KiB (Q, K).
// Shapes: log_sum_exp.hpp
#include "common/gpu.cuh"
#include "python/native/log_sum_exp.hpp"

namespace {

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, D_SLICES = HEAD_DIM / 16;
constexpr int BR = 64, BC = 64, WARPS = BR / 16, THREADS = WARPS * 32, KEY_TILES = BC / 8;
constexpr uint32_t TILE_BYTES = BR * ROW_BYTES;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float NO_KEY = -0x1p100f;  // a lane's maximum before its first key; in log2 units

// Byte offset of a 16-byte chunk within a tile of 256-byte rows, swizzled: 02_swizzle.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// Rows `first` to first + 63 of n; behind the last one that one again.
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source, int64_t row_stride, int first, int n) {
  const uint32_t chunk = threadIdx.x % ROW_CHUNKS;
  for (int row = threadIdx.x / ROW_CHUNKS; row < BR; row += THREADS / ROW_CHUNKS) {
    const uint4 eight_halves = ld_global_v4(source + min(first + row, n - 1) * row_stride + chunk * 8);
    st_shared_v4(tile + chunk_offset(row, chunk), eight_halves);
  }
}

__global__ void __launch_bounds__(THREADS) sums_of_rows(LogSumExpParams p) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t sequence = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  const f16* const Q = p.Q + sequence * p.Q_strides.batch + head * p.Q_strides.head;
  const f16* const K = p.K + sequence * p.K_strides.batch + head * p.K_strides.head;
  const int first_query = blockIdx.x * BR, last_query = min(first_query + BR, p.n_q) - 1;
  const auto keys_of = [&](int query) { return p.causal ? min(query + 1 + p.n_k - p.n_q, p.n_k) : p.n_k; };
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + TILE_BYTES, warp_Q = smem_Q + warp * 16 * ROW_BYTES;
  smem_name(smem_Q, TILE_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, TILE_BYTES, "K", ROW_BYTES);
  const float scale_log2 = p.softmax_scale * LOG2E;
  // [lane_row]: a lane has a quarter of two queries' scores, and knows its own maximum of them.
  float max[2] = {NO_KEY, NO_KEY}, sum[2] = {0.0f, 0.0f};

  load_tile(smem_Q, Q, p.Q_strides.row, first_query, p.n_q);
  for (int first_key = 0; first_key < keys_of(last_query); first_key += BC) {
    // LOAD
    __syncthreads();  // safe to overwrite K: every warp has read the tile before
    load_tile(smem_K, K, p.K_strides.row, first_key, p.n_k);
    __syncthreads();  // safe to read all of it: every thread has stored its part

    // QK
    float S_frag[KEY_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < D_SLICES; ++d_slice) {
      const uint32_t offset = chunk_offset(lane % 16, d_slice * 2 + lane / 16);
      uint32_t Q_frag[4];
      ldmatrix_x4(Q_frag, warp_Q + offset);
      for (int key_tile = 0; key_tile < KEY_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, smem_K + key_tile * 8 * ROW_BYTES + offset);
        mma_m16n8k16(S_frag[key_tile], Q_frag, K_frag[0], K_frag[2]);
        mma_m16n8k16(S_frag[key_tile + 1], Q_frag, K_frag[1], K_frag[3]);
      }
    }

    // SOFTMAX
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int keys = keys_of(first_query + warp * 16 + FragmentC::row(lane, 2 * lane_row)) - first_key;
      float largest = max[lane_row];
#pragma unroll
      for (int key_tile = 0; key_tile < KEY_TILES; ++key_tile) {
        for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i) {
          float& score = S_frag[key_tile][i];
          score = key_tile * 8 + FragmentC::col(lane, i) < keys ? score * scale_log2 : -INFINITY;
          largest = fmaxf(largest, score);
        }
      }
      sum[lane_row] *= ex2_approx(max[lane_row] - largest);
      max[lane_row] = largest;
#pragma unroll
      for (int key_tile = 0; key_tile < KEY_TILES; ++key_tile) {
        for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i)
          sum[lane_row] += ex2_approx(S_frag[key_tile][i] - largest);
      }
    }
  }

  // STORE  Four lanes join what they know of a row.
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    for (int mask = 1; mask <= 2; mask *= 2) {
      const float other = shfl_xor(max[lane_row], mask), other_sum = shfl_xor(sum[lane_row], mask);
      const float largest = fmaxf(max[lane_row], other);
      sum[lane_row] = sum[lane_row] * ex2_approx(max[lane_row] - largest) + other_sum * ex2_approx(other - largest);
      max[lane_row] = largest;
    }
    const int query = first_query + warp * 16 + FragmentC::row(lane, 2 * lane_row);
    if (lane % 4 == 0 && query < p.n_q)  // log(0) is -infinity
      st_global_f32(p.LSE + size_t(blockIdx.y) * p.n_q + query, max[lane_row] / LOG2E + logf(sum[lane_row]));
  }
}

}  // namespace

void log_sum_exp(Device& device, const LogSumExpParams& p) {
  launch(device, sums_of_rows, dim3((p.n_q + BR - 1) / BR, uint32_t(p.batch) * p.heads), dim3(THREADS), 2 * TILE_BYTES,
         p);
}
