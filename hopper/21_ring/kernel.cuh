// 21_ring: K and V have rings of stages of their own, and a tile is requested as soon as its stage has been read.
// Before:  in 20 a tile is requested when the one before it is half done, and then PV alone covers its way.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries.  Shared: 160 KiB (Q 32, K and V 2 x 32 each) and 72 B.
//          Needs d = 128, n % BR == 0, n % BC == 0, sm_90a.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8, and f16 ends just below 2^16

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * STAGES * BC) * ROW_BYTES + (4 * STAGES + 1) * 8;  // and mbarriers
};

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel.
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

// Eight warps fit on an SM with 255 registers per thread, in one block.
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  const int head_row = blockIdx.y * p.n, block_row = head_row + blockIdx.x * BR;  // of K and V, of Q and O
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + STAGES * TILE_BYTES;
  // One mbarrier of 8 B per stage of K and of V: it is full, it is empty. And one for Q.
  const uint32_t full_K = smem_V + STAGES * TILE_BYTES, empty_K = full_K + STAGES * 8;
  const uint32_t full_V = empty_K + STAGES * 8, empty_V = full_V + STAGES * 8, full_Q = empty_V + STAGES * 8;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_K, STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(full_K, (4 * STAGES + 1) * 8, "barriers");
  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem_Q + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem_K), V_tiles = wgmma_descriptor(smem_V, BC * PANEL_ROW_BYTES);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};  // [lane_row]: a lane has a share of two rows

  const int kv_tiles = p.n / BC;
  // LOAD  Requests a tile of K or V. Tile t lies in stage t % STAGES; each use of a stage is one phase of its two
  //       barriers, and a wait names the parity of its phase. Before the first use a new barrier lets parity 1 through.
  const auto request = [&](const TensorMap& map, uint32_t smem, uint32_t full, uint32_t empty, int tile) {
    if (threadIdx.x != 0 || tile >= kv_tiles) return;
    const uint32_t stage = tile % STAGES, parity = (tile / STAGES) % 2;
    mbarrier_wait_parity(empty + stage * 8, parity ^ 1);  // safe to overwrite: both warpgroups have read it
    mbarrier_arrive_expect_tx(full + stage * 8, TILE_BYTES);
    cp_async_bulk_tensor_3d(smem + stage * TILE_BYTES, map, 0, head_row + tile * BC, 0, full + stage * 8);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      for (const uint32_t full : {full_K, full_V})
        mbarrier_init(full + stage * 8, 1);  // landed: thread 0 says how much
      for (const uint32_t empty : {empty_K, empty_V}) mbarrier_init(empty + stage * 8, WARPS / 4);  // read: a warpgroup
    }
    mbarrier_init(full_Q, 1);
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
    mbarrier_arrive_expect_tx(full_Q, BR * ROW_BYTES);
    cp_async_bulk_tensor_3d(smem_Q, Q_map, 0, block_row, 0, full_Q);
    for (int tile = 0; tile < STAGES; ++tile) {
      request(K_map, smem_K, full_K, empty_K, tile);
      request(V_map, smem_V, full_V, empty_V, tile);
    }
  }
  __syncthreads();                  // safe to use the barriers
  mbarrier_wait_parity(full_Q, 0);  // safe to read Q

  for (int tile = 0; tile < kv_tiles; ++tile) {
    const uint32_t here = tile % STAGES, parity = (tile / STAGES) % 2;
    const uint64_t K_here = wgmma_advance(K_tiles, here * TILE_BYTES),
                   V_here = wgmma_advance(V_tiles, here * TILE_BYTES);

    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    float S_frag[QK_N_TILES][4];
    mbarrier_wait_parity(full_K + here * 8, parity);  // safe to read K[tile]: it has landed
    wgmma_fence(S_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice)
      wgmma_ss(S_frag, wgmma_advance(Q_rows, slices_on<BR>(d_slice)), wgmma_advance(K_here, slices_on<BC>(d_slice)),
               d_slice > 0);  // the first overwrites S
    wgmma_commit();
    if (tile > 0) request(V_map, smem_V, full_V, empty_V, tile - 1 + STAGES);  // PV of tile - 1 has read its stage
    __syncwarp();           // products and waits take whole warps, and lane 0 may have waited
    wgmma_wait<0>(S_frag);  // safe to read S, and to let go of K: QK is done
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty_K + here * 8);  // this warpgroup has read K[tile]

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum. Its sum stays
    //          spread: every lane adds up its own weights, and the lanes meet after the last tile.
    float correction[2];
    bool rescale = false;
#pragma unroll
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      float tile_max = -INFINITY;
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile)
        tile_max = fmaxf(tile_max, fmaxf(S_frag[key_tile][2 * lane_row], S_frag[key_tile][2 * lane_row + 1]));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2)) * scale_log2;  // row_max is in log2 units

      const bool grown = tile_max > row_max[lane_row] + RESCALE_ABOVE;  // true on the first tile
      const float new_max = grown ? tile_max : row_max[lane_row];
      correction[lane_row] = ex2_approx(row_max[lane_row] - new_max);  // 0 on the first tile, 1 where nothing has grown
      row_max[lane_row] = new_max;
      rescale |= grown;
    }
    if (vote_any(rescale)) {  // by the whole warp or not at all
#pragma unroll
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        row_sum[lane_row] *= correction[lane_row];
        for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
          O_frag[column_tile][2 * lane_row] *= correction[lane_row];
          O_frag[column_tile][2 * lane_row + 1] *= correction[lane_row];
        }
      }
    }

    request(K_map, smem_K, full_K, empty_K, tile + STAGES);  // QK has read the stage of this tile

    // PV  The weights first. Two C fragments side by side hold exactly the elements of one A fragment, and wgmma takes
    //     A from registers: P needs no exchange, only rounding.
    uint32_t P_frag[PV_K_TILES][4];
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
        const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
        const float low = ex2_approx(S_frag[key_tile][2 * lane_row] * scale_log2 - row_max[lane_row]);
        const float high = ex2_approx(S_frag[key_tile][2 * lane_row + 1] * scale_log2 - row_max[lane_row]);
        row_sum[lane_row] += low + high;
        P_frag[key_slice][reg] = pack_f16x2(low, high);
      }
    }
    mbarrier_wait_parity(full_V + here * 8, parity);  // safe to read V[tile]: it has landed
    __syncwarp();                                     // the same for what follows: lane 0 may have waited above
    wgmma_fence(O_frag, P_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice)  // 16 keys are 16 rows of V
      wgmma_rs<true>(O_frag, P_frag[key_slice], wgmma_advance(V_here, key_slice * 16 * PANEL_ROW_BYTES));
    wgmma_commit();
    wgmma_wait<0>(O_frag, P_frag);  // safe to touch O and P, and to let go of V: PV is done
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty_V + here * 8);  // this warpgroup has read V[tile]
  }

  // STORE  Two exchanges complete a row's sum. Each lane writes two halves per fragment and row, 4 lanes together 16 B.
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    row_sum[lane_row] += shfl_xor(row_sum[lane_row], 1);
    row_sum[lane_row] += shfl_xor(row_sum[lane_row], 2);
    const float normalise = 1.0f / row_sum[lane_row];
    const int row = warp * 16 + FragmentC::row(lane, 2 * lane_row);
    f16* O_row = p.O + size_t(block_row + row) * HEAD_DIM + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
      const float low = O_frag[column_tile][2 * lane_row] * normalise;
      const float high = O_frag[column_tile][2 * lane_row + 1] * normalise;
      st_global_b32(O_row + column_tile * 8, pack_f16x2(low, high));
    }
  }
}

// LAUNCH  One block per BR queries of a head. The pointers of `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const auto tile_map = [&](const f16* tensor, uint32_t tile_rows) {  // [panel][row, of all heads][column of the panel]
    return tensor_map_3d(device, tensor, {PANEL_COLS, uint64_t(p.batch_heads) * p.n, PANELS},
                         {ROW_BYTES, PANEL_ROW_BYTES}, {PANEL_COLS, tile_rows, PANELS});
  };
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p,
         tile_map(p.Q, C::BR), tile_map(p.K, C::BC), tile_map(p.V, C::BC));
}

}  // namespace
