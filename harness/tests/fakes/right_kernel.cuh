// A right attention kernel for tests of those who judge kernels, with a log-sum-exp and a causal mask.
// Tile: 64x32, 4 warps.   Shared: 32 KiB (Q 16, K 8, V 8).   Needs d = 128, n % 64 == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128, BR = 64, BC = 32, WARPS = 4, THREADS = WARPS * 32;
constexpr int ROW_BYTES = HEAD_DIM * 2;
constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES;
constexpr float LOG2E = 1.44269504088896341f;

__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ row % 8) * 16;
}

__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source, int rows) {
  const uint32_t row = threadIdx.x / 16, chunk = threadIdx.x % 16;
  for (int pass = 0; pass < rows; pass += THREADS / 16)
    cp_async_16(tile + chunk_offset(row + pass, chunk), source + (row + pass) * HEAD_DIM + chunk * 8);
}

__global__ void __launch_bounds__(THREADS) right_kernel(AttentionParams p) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM, block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  float O_frag[HEAD_DIM / 8][4] = {}, row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};
  load_tile(smem_Q, p.Q + block_rows, BR);

  const int first_query = blockIdx.x * BR + warp * 16, kv_tiles = p.causal ? (blockIdx.x + 1) * BR / BC : p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile) {
    __syncthreads();  // safe to overwrite K and V: every warp has finished PV
    load_tile(smem_K, p.K + head + size_t(tile) * BC * HEAD_DIM, BC);
    load_tile(smem_V, p.V + head + size_t(tile) * BC * HEAD_DIM, BC);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // safe to read: everybody's part has landed

    float S_frag[BC / 8][4] = {};
    for (int d_slice = 0; d_slice < HEAD_DIM / 16; ++d_slice) {
      uint32_t Q_frag[4], K_frag[4];
      ldmatrix_x4(Q_frag, smem_Q + warp * 16 * ROW_BYTES + chunk_offset(lane % 16, d_slice * 2 + lane / 16));
      for (int key_tile = 0; key_tile < BC / 8; key_tile += 2) {
        ldmatrix_x4(K_frag, smem_K + key_tile * 8 * ROW_BYTES + chunk_offset(lane % 16, d_slice * 2 + lane / 16));
        mma_m16n8k16(S_frag[key_tile], Q_frag, K_frag[0], K_frag[2]);
        mma_m16n8k16(S_frag[key_tile + 1], Q_frag, K_frag[1], K_frag[3]);
      }
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      float tile_max = -INFINITY, tile_sum = 0.0f;
      const int query = first_query + FragmentC::row(lane, 2 * lane_row);
      for (int i = 0; i < BC / 4; ++i) {
        const int key = tile * BC + i / 2 * 8 + FragmentC::col(lane, i % 2);
        float& score = S_frag[i / 2][2 * lane_row + i % 2];
        score = p.causal && key > query ? -INFINITY : score * p.softmax_scale;
        tile_max = fmaxf(tile_max, score);
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));
      const float new_max = fmaxf(row_max[lane_row], tile_max);
      const float correction = ex2_approx((row_max[lane_row] - new_max) * LOG2E);
      row_max[lane_row] = new_max;
      for (int i = 0; i < BC / 4; ++i) {
        float& score = S_frag[i / 2][2 * lane_row + i % 2];
        score = ex2_approx((score - new_max) * LOG2E);
        tile_sum += score;
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      row_sum[lane_row] = row_sum[lane_row] * correction + tile_sum;
      for (auto& O : O_frag) O[2 * lane_row] *= correction, O[2 * lane_row + 1] *= correction;
    }
    for (int key_slice = 0; key_slice < BC / 16; ++key_slice) {
      const auto &left = S_frag[2 * key_slice], &right = S_frag[2 * key_slice + 1];
      const uint32_t P_frag[4] = {pack_f16x2(left[0], left[1]), pack_f16x2(left[2], left[3]),
                                  pack_f16x2(right[0], right[1]), pack_f16x2(right[2], right[3])};
      for (int column_tile = 0; column_tile < HEAD_DIM / 8; ++column_tile) {
        uint32_t V_frag[2];
        ldmatrix_x2_trans(V_frag, smem_V + key_slice * 16 * ROW_BYTES + chunk_offset(lane % 16, column_tile));
        mma_m16n8k16(O_frag[column_tile], P_frag, V_frag[0], V_frag[1]);
      }
    }
  }
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const int row = static_cast<int>(warp) * 16 + FragmentC::row(lane, 2 * lane_row);
    if (lane % 4 == 0)
      st_global_f32(p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x * BR + row,
                    row_max[lane_row] + logf(row_sum[lane_row]));
    f16* O_row = p.O + block_rows + row * HEAD_DIM + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < HEAD_DIM / 8; ++column_tile) {
      const float* O = O_frag[column_tile] + 2 * lane_row;
      st_global_b32(O_row + column_tile * 8, pack_f16x2(O[0] / row_sum[lane_row], O[1] / row_sum[lane_row]));
    }
  }
}

void run_right(Device& device, const AttentionParams& p) {
  launch(device, right_kernel, dim3(p.n / BR, p.batch_heads), dim3(THREADS), SMEM_BYTES, p);
}

}  // namespace
