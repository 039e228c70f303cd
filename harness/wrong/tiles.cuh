// Wrong kernels once more, in the style of 15_relative: the copy engine brings the tiles, and scores are relative to the
// maximum so far. TileFault::none is right and must be accepted.
// Tile: 32x32, 2 warps.   Shared: 24 KiB (Q, K, V 8 each) and an mbarrier.   Needs d = 128, n % 32 == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

enum class TileFault {
  none,  // right
  // the copy engine
  no_bulk_wait,     // tiles are read before the mbarrier of their copies has been waited for
  short_expect,     // the bytes of V are not expected, so the wait lets through before V has landed
  long_expect,      // the bytes of Q are expected with each tile, but Q comes only once
  no_fence,         // the copy engine is not told of the mbarrier; comes out right by luck
  no_proxy_fence,   // K's room is zeroed first, and the copy engine not told of that; comes out right by luck
  copied_map,       // the copy engine is handed a copy of a tensor map that lies among the thread's own variables
  early_request,    // the next tile is requested before the barrier behind which nobody reads this one
  unswizzled_read,  // chunks are read as if the copy engine had left them in their places
  one_panel,        // columns 64 to 127 are read where columns 0 to 63 lie
  // scores relative to the maximum
  unshifted_S,     // a new maximum is taken out of what comes later, and not of the scores that revealed it
  half_a_maximum,  // a new maximum is taken out of the even columns of what comes later
  no_first_shift,  // the first maximum is taken out only if it is large: the weights of rows far below 0 are all 0
  never_rescales   // the first maximum stays for ever: the weights of what outgrows it overflow f16
};

namespace tiles {

constexpr int HEAD_DIM = 128, BR = 32, BC = 32, WARPS = 2, THREADS = WARPS * 32, PANELS = 2;
constexpr int PANEL_ROW_BYTES = 128, TILE_BYTES = PANELS * BC * PANEL_ROW_BYTES;  // of Q, of K and of V alike
constexpr uint32_t SMEM_BYTES = 3 * TILE_BYTES + 8;
constexpr int QK_N_TILES = BC / 8, PV_N_TILES = HEAD_DIM / 8;
constexpr float LOG2E = 1.44269504088896341f, RESCALE_ABOVE = 8.0f;

// The address of a chunk of 8 of a row's 128 columns: panel 1 lies behind all rows of panel 0.
template <TileFault FAULT>
__device__ __forceinline__ uint32_t chunk_address(uint32_t tile, uint32_t row, uint32_t chunk) {
  const uint32_t panel = FAULT == TileFault::one_panel ? 0 : chunk / 8;
  const uint32_t place = FAULT == TileFault::unswizzled_read ? chunk % 8 : (chunk ^ row) % 8;
  return tile + panel * BC * PANEL_ROW_BYTES + row * PANEL_ROW_BYTES + place * 16;
}

template <TileFault FAULT>
__global__ void __launch_bounds__(THREADS)
    wrong_tiles(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                const __grid_constant__ TensorMap V_map) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_row = blockIdx.y * p.n, block_row = head_row + blockIdx.x * BR, kv_tiles = p.n / BC;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + TILE_BYTES, smem_V = smem_K + TILE_BYTES;
  const uint32_t landed = smem_V + TILE_BYTES;
  const auto request = [&](int tile) {
    const bool with_Q = tile == 0 || FAULT == TileFault::long_expect;
    const int expected = FAULT == TileFault::short_expect ? TILE_BYTES : 2 * TILE_BYTES;
    mbarrier_arrive_expect_tx(landed, expected + (with_Q ? TILE_BYTES : 0));
    if (tile == 0) cp_async_bulk_tensor_3d(smem_Q, Q_map, 0, block_row, 0, landed);
    if constexpr (FAULT == TileFault::copied_map) {
      const TensorMap own_map = K_map;
      cp_async_bulk_tensor_3d(smem_K, own_map, 0, head_row + tile * BC, 0, landed);
    } else {
      cp_async_bulk_tensor_3d(smem_K, K_map, 0, head_row + tile * BC, 0, landed);
    }
    cp_async_bulk_tensor_3d(smem_V, V_map, 0, head_row + tile * BC, 0, landed);
  };

  const float scale_log2 = p.softmax_scale * LOG2E, outgrown = RESCALE_ABOVE / scale_log2;
  float O_frag[PV_N_TILES][4] = {}, minus_max[4] = {}, row_sum[2] = {};
  if constexpr (FAULT == TileFault::no_proxy_fence) {
    for (int i = threadIdx.x; i < TILE_BYTES / 16; i += THREADS) st_shared_v4(smem_K + i * 16, {});
    __syncthreads();  // every thread has stored
  }
  if (threadIdx.x == 0) {
    mbarrier_init(landed, 1);
    if (FAULT != TileFault::no_fence) fence_mbarrier_init();
    request(0);
  }
  __syncthreads();  // safe to use the mbarrier

  for (int tile = 0; tile < kv_tiles; ++tile) {
    if (FAULT != TileFault::no_bulk_wait) mbarrier_wait_parity(landed, tile % 2);

    // QK  Sums begin at minus the old maximum.
    float S_frag[QK_N_TILES][4];
    for (auto& S : S_frag)
      for (int i = 0; i < 4; ++i) S[i] = minus_max[i];
    for (int k = 0; k < HEAD_DIM / 16; ++k) {
      uint32_t Q_frag[4];
      ldmatrix_x4(Q_frag, chunk_address<FAULT>(smem_Q, warp * 16 + lane % 16, k * 2 + lane / 16));
      for (int n = 0; n < QK_N_TILES; n += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, chunk_address<FAULT>(smem_K, n * 8 + lane % 16, k * 2 + lane / 16));
        mma_m16n8k16(S_frag[n], Q_frag, K_frag[0], K_frag[2]);
        mma_m16n8k16(S_frag[n + 1], Q_frag, K_frag[1], K_frag[3]);
      }
    }

    // SOFTMAX
    const bool first = tile == 0 && FAULT != TileFault::no_first_shift;
    bool rescale = first;
    for (const auto& S : S_frag)
      for (const float score : S) rescale |= score > outgrown;
    if (FAULT == TileFault::never_rescales) rescale = first;
    if (vote_any(rescale)) {
      for (int r = 0; r < 2; ++r) {
        float tile_max = -INFINITY;
        for (const auto& S : S_frag) tile_max = fmaxf(tile_max, fmaxf(S[2 * r], S[2 * r + 1]));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));
        const float growth = fmaxf(tile_max, 0.0f), shift = first ? tile_max : growth;
        const float correction = ex2_approx(-growth * scale_log2);
        minus_max[2 * r] -= shift;
        if (FAULT != TileFault::half_a_maximum) minus_max[2 * r + 1] -= shift;
        row_sum[r] *= correction;
        for (auto& O : O_frag) O[2 * r] *= correction, O[2 * r + 1] *= correction;
        if (FAULT == TileFault::unshifted_S) continue;
        for (auto& S : S_frag) S[2 * r] -= shift, S[2 * r + 1] -= shift;
      }
    }

    // PV
    for (int k = 0; k < BC / 16; ++k) {
      uint32_t P_frag[4];
      for (int i = 0; i < 4; ++i) {
        const float* S = S_frag[2 * k + i / 2] + i % 2 * 2;
        const float low = ex2_approx(S[0] * scale_log2), high = ex2_approx(S[1] * scale_log2);
        row_sum[i % 2] += low + high;
        P_frag[i] = pack_f16x2(low, high);
      }
      for (int n = 0; n < PV_N_TILES; ++n) {
        uint32_t V_frag[2];
        ldmatrix_x2_trans(V_frag, chunk_address<FAULT>(smem_V, k * 16 + lane % 16, n));
        mma_m16n8k16(O_frag[n], P_frag, V_frag[0], V_frag[1]);
      }
    }

    const bool requests = threadIdx.x == 0 && tile + 1 < kv_tiles;
    if (FAULT == TileFault::early_request && requests) request(tile + 1);
    __syncthreads();  // safe to overwrite K and V: both warps have read them
    if (FAULT != TileFault::early_request && requests) request(tile + 1);
  }

  // STORE
  for (int r = 0; r < 2; ++r) {
    row_sum[r] += shfl_xor(row_sum[r], 1);
    row_sum[r] += shfl_xor(row_sum[r], 2);
    const int row = block_row + static_cast<int>(warp) * 16 + FragmentC::row(lane, 2 * r);
    f16* O_row = p.O + size_t(row) * HEAD_DIM + FragmentC::col(lane, 0);
    for (int n = 0; n < PV_N_TILES; ++n) {
      st_global_b32(O_row + n * 8, pack_f16x2(O_frag[n][2 * r] / row_sum[r], O_frag[n][2 * r + 1] / row_sum[r]));
    }
  }
}

template <TileFault FAULT>
void launch_wrong(Device& device, const AttentionParams& p) {
  const auto map = [&](const f16* tensor) {
    return tensor_map_3d(device, tensor, {64, uint64_t(p.batch_heads) * p.n, PANELS}, {HEAD_DIM * 2, PANEL_ROW_BYTES},
                         {64, BC, PANELS});
  };
  launch(device, wrong_tiles<FAULT>, dim3(p.n / BR, p.batch_heads), dim3(THREADS), SMEM_BYTES, p, map(p.Q), map(p.K),
         map(p.V));
}

}  // namespace tiles
}  // namespace
