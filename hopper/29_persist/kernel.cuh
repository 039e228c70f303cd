// 29_persist: a block stays on its SM and goes on with other queries, which are copied while it works on these.
// Before:     28 starts 16384 blocks (256 heads, n = 8192), and each begins by waiting for its queries.
// Tile:       128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 96 B.
//             Needs d = 128, n % BR == 0, n % BC == 0, sm_90a.
// Shapes:     Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8 while a warp is careful
constexpr float SUM_LIMIT = 30000.0f;  // of a lane's weights of a row and tile: f16, in which P is, ends at 65504
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8;  // and mbarriers
};

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel.
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + 2 * Q_BYTES, smem_V = smem_K + STAGES * TILE_BYTES;
  // One mbarrier of 8 B per stage of K, of V, and of the two of Q: it is full, it is empty.
  const uint32_t full_K = smem_V + STAGES * TILE_BYTES, empty_K = full_K + STAGES * 8;
  const uint32_t full_V = empty_K + STAGES * 8, empty_V = full_V + STAGES * 8;
  const uint32_t full_Q = empty_V + STAGES * 8, empty_Q = full_Q + 2 * 8;
  smem_name(smem_Q, 2 * Q_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_K, STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(full_K, (4 * STAGES + 4) * 8, "barriers");
  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem_Q + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem_K), V_tiles = wgmma_descriptor(smem_V, BC * PANEL_ROW_BYTES);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[PV_N_TILES][4];   // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[2], row_sum[2];  // [lane_row]: a lane has a share of two rows; in log2 units

  // The block's work is every gridDim.x-th tile of queries, of all heads one after another. Tiles of K or V are
  // numbered since the block began; the number of the first one for these queries is `first`.
  const int kv_tiles = p.n / BC, q_tiles = p.n / BR, all_q_tiles = q_tiles * p.batch_heads;
  int first = 0, round = 0, head = 0;
  // LOAD  Requests a tile of K or V. Number t lies in stage t % STAGES; each use of a stage is one phase of its two
  //       barriers, and a wait names the parity of its phase. Before the first use a new barrier lets parity 1 through.
  const auto request = [&](const TensorMap& map, uint32_t smem, uint32_t full, uint32_t empty, int tile) {
    if (tile >= first + kv_tiles) return;
    const uint32_t stage = tile % STAGES, parity = (tile / STAGES) % 2;
    mbarrier_wait_parity(empty + stage * 8, parity ^ 1);  // safe to overwrite: both warpgroups have read it
    mbarrier_arrive_expect_tx(full + stage * 8, TILE_BYTES);
    cp_async_bulk_tensor_3d(smem + stage * TILE_BYTES, map, 0, head * p.n + (tile - first) * BC, 0, full + stage * 8);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      for (const uint32_t full : {full_K, full_V})
        mbarrier_init(full + stage * 8, 1);  // landed: the producer says how much
      for (const uint32_t empty : {empty_K, empty_V}) mbarrier_init(empty + stage * 8, WARPS / 4);  // read: a warpgroup
    }
    for (int stage = 0; stage < 2; ++stage) {
      mbarrier_init(full_Q + stage * 8, 1);
      mbarrier_init(empty_Q + stage * 8, WARPS);  // stored: a warp
    }
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
  }
  __syncthreads();  // safe to use the barriers

  if (warp >= WARPS) {  // LOAD  K is asked for a tile ahead of V, as it is read.
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x != WARPS * 32) return;
    for (int q_tile = blockIdx.x; q_tile < all_q_tiles; q_tile += gridDim.x, first += kv_tiles, ++round) {
      const uint32_t stage = round % 2, parity = (round / 2) % 2;
      head = q_tile / q_tiles;
      mbarrier_wait_parity(empty_Q + stage * 8, parity ^ 1);  // safe to overwrite: O of two rounds ago has left
      mbarrier_arrive_expect_tx(full_Q + stage * 8, Q_BYTES);
      cp_async_bulk_tensor_3d(smem_Q + stage * Q_BYTES, Q_map, 0, q_tile * BR, 0, full_Q + stage * 8);
      for (int tile = first - 1; tile < first + kv_tiles; ++tile) {
        request(K_map, smem_K, full_K, empty_K, tile + 1);
        if (tile >= first) request(V_map, smem_V, full_V, empty_V, tile);
      }
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  float S_frag[QK_N_TILES][4], correction[2];
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other
  using Weights = uint32_t(&)[PV_K_TILES][4];
  const auto start_QK = [&](int tile) {
    const uint32_t here = tile % STAGES, parity = (tile / STAGES) % 2;
    const uint64_t Q_here = wgmma_advance(Q_rows, round % 2 * Q_BYTES),
                   K_here = wgmma_advance(K_tiles, here * TILE_BYTES);
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    mbarrier_wait_parity(full_K + here * 8, parity);  // safe to read K[tile]: it has landed
    wgmma_fence(S_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice)
      wgmma_ss(S_frag, wgmma_advance(Q_here, slices_on<BR>(d_slice)), wgmma_advance(K_here, slices_on<BC>(d_slice)),
               d_slice > 0);  // the first overwrites S
    wgmma_commit();
  };
  const auto release = [&](uint32_t empty, int tile) {  // this warpgroup has read the tile
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + tile % STAGES * 8);
  };

  const auto make_weights = [&](Weights P_frag, float scale, const float(&base)[2], float(&tile_sum)[2]) {
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) S_frag[key_tile][i] = S_frag[key_tile][i] * scale - base[i / 2];
    }
    // PV  The weights first. Two C fragments side by side hold exactly the elements of one A fragment, and wgmma takes
    //     A from registers: P needs no exchange, only rounding.
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
        const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
        const float low = ex2_approx(S_frag[key_tile][2 * lane_row]);
        const float high = ex2_approx(S_frag[key_tile][2 * lane_row + 1]);
        tile_sum[lane_row] += low + high;
        P_frag[key_slice][reg] = pack_f16x2(low, high);
      }
    }
  };
  bool careful;  // the whole warp or none of it
  const auto largest = [&](int lane_row) {
    float score = -INFINITY;
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile)
      score = fmaxf(score, fmaxf(S_frag[key_tile][2 * lane_row], S_frag[key_tile][2 * lane_row + 1]));
    return score;
  };
  const auto raise_max = [&](float(&growth)[2], bool is_first) {  // by the growth of the row, over its four lanes
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      growth[lane_row] = fmaxf(growth[lane_row], shfl_xor(growth[lane_row], 1));
      growth[lane_row] = fmaxf(growth[lane_row], shfl_xor(growth[lane_row], 2));
      correction[lane_row] = ex2_approx(-fmaxf(growth[lane_row], 0.0f));  // 1 where nothing has grown
      if (!is_first) growth[lane_row] = fmaxf(growth[lane_row], 0.0f);
      row_max[lane_row] += growth[lane_row];
      row_sum[lane_row] *= correction[lane_row];
    }
  };
  const auto softmax = [&](Weights P_frag, bool is_first) {
    // SOFTMAX  S becomes relative to row_max, the same in a row's four lanes. A careful warp looks first whether a
    //          score has outgrown it, and so does every warp on the first tile. Otherwise the sum of the weights tells:
    //          too large or infinite, and they are made again. The whole warp does all of it: an exchange needs it.
    const bool looks = careful || is_first;
    bool rescale = false;
    float tile_sum[2];
    if (looks) {
      float growth[2] = {largest(0) * scale_log2 - row_max[0], largest(1) * scale_log2 - row_max[1]};
      rescale = vote_any(is_first || fmaxf(growth[0], growth[1]) > RESCALE_ABOVE);
      if (rescale) raise_max(growth, is_first);
    }
    make_weights(P_frag, scale_log2, row_max, tile_sum);
    if (!looks && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT)) {
      rescale = careful = true;  // from now on; and S is relative by now, in log2 units
      float growth[2] = {largest(0), largest(1)};
      raise_max(growth, false);
      make_weights(P_frag, 1, growth, tile_sum);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) row_sum[lane_row] += tile_sum[lane_row];
    return rescale;
  };

  const auto start_PV = [&](int tile, Weights P_frag) {
    const uint32_t here = tile % STAGES, parity = (tile / STAGES) % 2;
    const uint64_t V_here = wgmma_advance(V_tiles, here * TILE_BYTES);
    mbarrier_wait_parity(full_V + here * 8, parity);  // safe to read V[tile]: it has landed
    wgmma_fence(O_frag, P_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice)  // 16 keys are 16 rows of V
      wgmma_rs<true>(O_frag, P_frag[key_slice], wgmma_advance(V_here, key_slice * 16 * PANEL_ROW_BYTES));
    wgmma_commit();
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here) {
    start_QK(tile);
    start_PV(tile - 1, P_before);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(empty_K, tile);
    const bool rescale = softmax(P_here, false);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(empty_V, tile - 1);
#pragma unroll
    for (int column_tile = 0; rescale && column_tile < PV_N_TILES; ++column_tile) {
      for (int i = 0; i < 4; ++i) O_frag[column_tile][i] *= correction[i / 2];
    }
  };
  const auto finish = [&](Weights P_last) {
    start_PV(first + kv_tiles - 1, P_last);
    wgmma_wait<0>(O_frag, P_last);  // safe to touch O: the last PV is done
    release(empty_V, first + kv_tiles - 1);
  };

  const auto store = [&](int q_tile) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them. Lane l addresses row
    //        l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, two C fragments.
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      row_sum[lane_row] += shfl_xor(row_sum[lane_row], 1);
      row_sum[lane_row] += shfl_xor(row_sum[lane_row], 2);
    }
    const float normalise[2] = {1.0f / row_sum[0], 1.0f / row_sum[1]};
    const uint32_t warp_O = smem_Q + round % 2 * Q_BYTES + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q: the four warps' last product has read it
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
      uint32_t matrices[4];
      for (int i = 0; i < 4; ++i) {
        const float* const two = &O_frag[column_tile + i / 2][2 * (i % 2)];
        matrices[i] = pack_f16x2(two[0] * normalise[i % 2], two[1] * normalise[i % 2]);
      }
      const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
      stmatrix_x4(lane_O + panel * BR * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices);
    }
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, 0, q_tile % q_tiles * BR + warp * 16, panel, q_tile / q_tiles,
                                      warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
      cp_async_bulk_wait_read<0>();  // safe to overwrite or to end: shared memory has been read
      mbarrier_arrive(empty_Q + round % 2 * 8);
    }
    __syncwarp();
  };

  for (int q_tile = blockIdx.x; q_tile < all_q_tiles; q_tile += gridDim.x, first += kv_tiles, ++round) {
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
      for (int i = 0; i < 4; ++i) O_frag[column_tile][i] = 0;
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) row_max[lane_row] = row_sum[lane_row] = 0;
    careful = false;
    mbarrier_wait_parity(full_Q + round % 2 * 8, (round / 2) % 2);  // safe to read Q
    start_QK(first);
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
    release(empty_K, first);
    softmax(P_even, true);
    for (int tile = 1; tile < kv_tiles; tile += 2) {
      step(first + tile, P_even, P_odd);
      if (tile + 1 < kv_tiles) step(first + tile + 1, P_odd, P_even);
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if (kv_tiles % 2 == 0) {
      finish(P_odd);
    } else {
      finish(P_even);
    }
    store(q_tile);
  }
}

// LAUNCH  As many blocks as run at the same time, one per SM, or fewer where there is less to do. The pointers of
//         `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const auto tile_map = [&](const f16* tensor, uint32_t tile_rows) {  // [panel][row, of all heads][column of the panel]
    return tensor_map_3d(device, tensor, {PANEL_COLS, uint64_t(p.batch_heads) * p.n, PANELS},
                         {ROW_BYTES, PANEL_ROW_BYTES}, {PANEL_COLS, tile_rows, PANELS});
  };
  const TensorMap O_map =  // [head][panel][row][column of the panel]; the rows of a warp, of one panel
      tensor_map_4d(device, p.O, {PANEL_COLS, uint64_t(p.n), PANELS, uint64_t(p.batch_heads)},
                    {ROW_BYTES, PANEL_ROW_BYTES, uint64_t(p.n) * ROW_BYTES}, {PANEL_COLS, 16, 1, 1});
  const uint32_t q_tiles = p.n / C::BR * p.batch_heads, sms = multiprocessors(device);
  launch(device, flash_attention<C>, dim3(q_tiles < sms ? q_tiles : sms), dim3(C::THREADS), C::SMEM_BYTES, p,
         tile_map(p.Q, C::BR), tile_map(p.K, C::BC), tile_map(p.V, C::BC), O_map);
}

}  // namespace
