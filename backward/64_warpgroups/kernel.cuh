// 64_warpgroups: all five products by wgmma. Two warpgroups have 64 keys each of a block's 128, a warp of a third
//          copies queries ahead, and dS alone changes hands: a warpgroup needs that of all keys, with queries as rows.
// Before:  63_onewalk multiplies by mma.sync, which a Hopper card does at two thirds of wgmma's rate; and warps that
//          copy do not compute.
// Tile:    64x128, 8 warps and 4 that copy.  Shared: 161 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16).
//          Needs d = 128, n % BC == 0, sm_90a.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, [n, d] f32, and LSE and D by tiles, [n / BR, 2, BR] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;
constexpr int ROW_THREADS = 256;  // of a block of the kernels that go through rows, before and after
constexpr float LOG2E = 1.44269504088896341f;
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's BC keys, BR queries at a time, by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr uint32_t K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES, ROWS_BYTES = 2 * BR * 4;  // LSE and D
  static constexpr uint32_t STAGE_BYTES = 2 * Q_BYTES + ROWS_BYTES, dS_BYTES = BR * BC * 2;
  static constexpr uint32_t SMEM_BYTES =
      2 * K_BYTES + STAGES * STAGE_BYTES + 2 * dS_BYTES + (2 * STAGES + 1) * 8;  // and mbarriers
  static_assert(BC == 16 * WARPS && WARPS == 8, "two warpgroups have 64 keys each, and 64 columns of dQ");
  static_assert(BR == 64 && BC % BR == 0, "dQ has 64 rows; BC / BR tiles are on the diagonal");
};

// Of this block's head.
__device__ __forceinline__ float* dQ_sum_of(const GradientParams& p) {
  return static_cast<float*>(p.workspace) + size_t(blockIdx.y) * p.n_q * (HEAD_DIM + 2);
}
__device__ __forceinline__ float* rows_of(const GradientParams& p) {  // LSE and D
  return dQ_sum_of(p) + size_t(p.n_q) * HEAD_DIM;
}

// Each lane writes two halves per fragment and row; 4 lanes together write 16 B of a row.
__device__ __forceinline__ void store_rows(f16* rows, const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32;
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    f16* row = rows + FragmentC::row(lane, 2 * lane_row) * HEAD_DIM + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile) {
      const float low = C_frag[column_tile][2 * lane_row] * factor,
                  high = C_frag[column_tile][2 * lane_row + 1] * factor;
      st_global_b32(row + column_tile * 8, pack_f16x2(low, high));
    }
  }
}

// LSE in log2 units, D[query] = dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(GradientParams p) {
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int row = blockIdx.x * C::BR + tile_row;
    const size_t query = size_t(blockIdx.y) * p.n_q + row;
    float sum = 0.0f;
    for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
      const uint4 O = ld_global_v4(p.O + query * HEAD_DIM + chunk * 8);
      const uint4 dO = ld_global_v4(p.dO + query * HEAD_DIM + chunk * 8);
      const uint32_t O_pairs[4] = {O.x, O.y, O.z, O.w}, dO_pairs[4] = {dO.x, dO.y, dO.z, dO.w};
      for (int i = 0; i < 8; ++i)
        sum += to_float(f16{static_cast<uint16_t>(O_pairs[i / 2] >> (i % 2 * 16))}) *
               to_float(f16{static_cast<uint16_t>(dO_pairs[i / 2] >> (i % 2 * 16))});
    }
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    sum += shfl_xor(sum, 4);
    if (threadIdx.x % 8 == 0) {
      float* const tile_rows = rows_of(p) + blockIdx.x * 2 * C::BR;
      st_global_f32(tile_rows + tile_row, ld_global_f32(p.LSE + query) * LOG2E);
      st_global_f32(tile_rows + C::BR + tile_row, sum);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of(p) + size_t(row) * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel.
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

// Where all of it lies in shared memory, as addresses.
template <class C>
struct Smem {
  uint32_t K = smem_base(), V = K + C::K_BYTES, Q = V + C::K_BYTES, dO = Q + C::STAGES * C::Q_BYTES,
           dS = dO + C::STAGES * C::Q_BYTES, rows = dS + 2 * C::dS_BYTES, full_K = rows + C::STAGES * C::ROWS_BYTES;
  Ring<C::STAGES, C::STAGE_BYTES> ring{full_K + 8};

  __device__ __forceinline__ void name() const {
    smem_name(K, C::K_BYTES, "K", PANEL_ROW_BYTES);
    smem_name(V, C::K_BYTES, "V", PANEL_ROW_BYTES);
    smem_name(Q, C::STAGES * C::Q_BYTES, "Q", PANEL_ROW_BYTES);
    smem_name(dO, C::STAGES * C::Q_BYTES, "dO", PANEL_ROW_BYTES);
    smem_name(dS, 2 * C::dS_BYTES, "dS", PANEL_ROW_BYTES);
    smem_name(rows, C::STAGES * C::ROWS_BYTES, "LSE, D");
    smem_name(full_K, (2 * C::STAGES + 1) * 8, "barriers");
  }
  __device__ __forceinline__ void init() const {  // one thread's
    mbarrier_init(full_K, 1);
    ring.init(C::WARPS / 4);  // a warpgroup has read it
    fence_mbarrier_init();    // safe to name them to the copy engine, which knows them now
  }
};

// LOAD  K and V once; then a tile of queries whenever a stage is empty. One thread's.
template <class C>
__device__ __forceinline__ void load(const GradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     int first_tile, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  cp_async_bulk_tensor_4d(smem.K, K_map, 0, blockIdx.x * BC, 0, blockIdx.y, smem.full_K);
  cp_async_bulk_tensor_4d(smem.V, V_map, 0, blockIdx.x * BC, 0, blockIdx.y, smem.full_K);
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, full = smem.ring.full_of(tile);
    const int q_tile = first_tile + tile;
    smem.ring.claim(tile);
    cp_async_bulk_tensor_4d(smem.Q + stage * C::Q_BYTES, Q_map, 0, q_tile * BR, 0, blockIdx.y, full);
    cp_async_bulk_tensor_4d(smem.dO + stage * C::Q_BYTES, dO_map, 0, q_tile * BR, 0, blockIdx.y, full);
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of(p) + q_tile * 2 * BR, C::ROWS_BYTES, full);
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const GradientParams& p, const Smem<C>& smem, int first_tile, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of Q and dO are columns of S^T and dP^T (K-major), and the k dimension of dK and dV (MN-major),
  // for which the distance from one panel to the next is told. Rows of K are those of S^T, and the k dimension of dQ,
  // of which a warpgroup has the columns of a panel.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float dK_frag[COLUMN_TILES][4], dV_frag[COLUMN_TILES][4];

  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T, and dP^T = V dO^T
    smem.ring.wait_full(tile);
    wgmma_fence(S_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < D_SLICES; ++d_slice)
      wgmma_ss(S_frag, wgmma_advance(K_rows, slices_on<BC>(d_slice)), wgmma_advance(Q_here, slices_on<BR>(d_slice)),
               d_slice > 0);  // the first overwrites S
    wgmma_commit();
    wgmma_fence(dP_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < D_SLICES; ++d_slice)
      wgmma_ss(dP_frag, wgmma_advance(V_rows, slices_on<BC>(d_slice)), wgmma_advance(dO_here, slices_on<BR>(d_slice)),
               d_slice > 0);
    wgmma_commit();
    wgmma_wait<1>(S_frag);  // safe to read S: its products are done, those of dP may go on
    if (p.causal && tile < BC / BR) {
#pragma unroll
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        for (int i = 0; i < 4; ++i) {
          const int key = warp * 16 + FragmentC::row(lane, i),
                    query = tile * BR + query_tile * 8 + FragmentC::col(lane, i);
          if (key > query) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

    // SOFTMAX  A lane has two keys, and two neighbouring queries of every eight. Two C fragments side by side hold
    //          exactly the elements of one A fragment, and wgmma takes A from registers.
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      const uint2 LSE = ld_shared_v2(rows + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
      for (int i = 0; i < 4; ++i)
        S_frag[query_tile][i] =
            ex2_approx(S_frag[query_tile][i] * scale_log2 - __uint_as_float(i % 2 == 0 ? LSE.x : LSE.y));
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        P_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] =
            pack_f16x2(S_frag[query_tile][2 * lane_row], S_frag[query_tile][2 * lane_row + 1]);
    }

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      wgmma_rs<true>(dV_frag, P_frag[query_slice], wgmma_advance(dO_here, query_slice * 16 * PANEL_ROW_BYTES),
                     query_slice > 0 || tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      const uint2 D = ld_shared_v2(rows + (BR + query_tile * 8 + FragmentC::col(lane, 0)) * 4);
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        dS_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] = pack_f16x2(
            S_frag[query_tile][2 * lane_row] * (dP_frag[query_tile][2 * lane_row] - __uint_as_float(D.x)),
            S_frag[query_tile][2 * lane_row + 1] * (dP_frag[query_tile][2 * lane_row + 1] - __uint_as_float(D.y)));
    }

    // PV  dK += dS^T Q. And dS goes to shared memory, queries as rows: stmatrix transposes it. Lane l addresses query l
    //     % 8, of the second eight from lane 16 on; the chunk is one of the warp's two eights of keys.
    const uint32_t lane_query = lane / 16 * 8 + lane % 8, chunk = warp % 4 * 2 + lane / 8 % 2;
    const uint32_t lane_dS =
        smem.dS + buffer + warpgroup * BR * PANEL_ROW_BYTES + lane_query * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16;
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      stmatrix_x4_trans(lane_dS + query_slice * 16 * PANEL_ROW_BYTES, dS_frag[query_slice]);
    wgmma_fence(dK_frag, dS_frag);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      wgmma_rs<true>(dK_frag, dS_frag[query_slice], wgmma_advance(Q_here, query_slice * 16 * PANEL_ROW_BYTES),
                     query_slice > 0 || tile > 0);
    wgmma_commit();
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < KEY_SLICES; ++key_slice)
      wgmma_ss<true>(dQ_frag, wgmma_advance(dS_tiles, buffer + slices_on<BR>(key_slice)),
                     wgmma_advance(K_panel, key_slice * 16 * PANEL_ROW_BYTES), key_slice > 0);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    wgmma_wait<0>(dQ_frag);  // safe to read dQ
    float* const warp_sum =
        dQ_sum_of(p) + (size_t(first_tile + tile) * BR + warp % 4 * 16) * HEAD_DIM + warpgroup * PANEL_COLS;
#pragma unroll
    for (int column_tile = 0; column_tile < PANEL_COLS / 8; ++column_tile) {
      for (int i = 0; i < 4; ++i)
        red_global_add_f32(warp_sum + FragmentC::row(lane, i) * HEAD_DIM + column_tile * 8 + FragmentC::col(lane, i),
                           dQ_frag[column_tile][i]);
    }
    __syncwarp();  // products take whole warps
  }

  // STORE
  const size_t warp_rows = (size_t(blockIdx.y) * p.n_k + blockIdx.x * BC + warp * 16) * HEAD_DIM;
  store_rows(p.dK + warp_rows, dK_frag, p.softmax_scale);
  store_rows(p.dV + warp_rows, dV_frag, 1.0f);
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(GradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  const int first_tile = p.causal ? blockIdx.x * (BC / BR) : 0;  // queries before these see none of the block's keys
  const int tiles = p.n_q / BR - first_tile;

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load(p, smem, Q_map, K_map, V_map, dO_map, first_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate(p, smem, first_tile, tiles);
}

// dQ, from the sum, when all blocks have added to it: eight columns a thread.   Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(GradientParams p) {
  for (int chunk = threadIdx.x; chunk < C::BR * ROW_CHUNKS; chunk += ROW_THREADS) {
    const size_t column = size_t(blockIdx.x) * C::BR * HEAD_DIM + chunk * 8;
    uint32_t pairs[4];
    for (int half = 0; half < 2; ++half) {
      const uint4 four = ld_global_v4(dQ_sum_of(p) + column + half * 4);
      pairs[2 * half] =
          pack_f16x2(__uint_as_float(four.x) * p.softmax_scale, __uint_as_float(four.y) * p.softmax_scale);
      pairs[2 * half + 1] =
          pack_f16x2(__uint_as_float(four.z) * p.softmax_scale, __uint_as_float(four.w) * p.softmax_scale);
    }
    st_global_v4(p.dQ + size_t(blockIdx.y) * p.n_q * HEAD_DIM + column, {pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  const auto tile_map = [&](const f16* tensor, int n, uint32_t rows) {  // [head][panel][row][column of the panel]
    return tensor_map_4d(device, tensor, {PANEL_COLS, uint32_t(n), PANELS, uint32_t(p.batch_heads)},
                         {ROW_BYTES, PANEL_ROW_BYTES, uint64_t(n) * ROW_BYTES}, {PANEL_COLS, rows, PANELS, 1});
  };
  const dim3 rows_grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  launch(device, gradients<C>, dim3(p.n_k / C::BC, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p,
         tile_map(p.Q, p.n_q, C::BR), tile_map(p.K, p.n_k, C::BC), tile_map(p.V, p.n_k, C::BC),
         tile_map(p.dO, p.n_q, C::BR));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
