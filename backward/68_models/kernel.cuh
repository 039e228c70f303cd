// 68_models: what models ask for: bf16, any lengths of both sides, heads of queries that share keys, rows in any
//            strides.
// Before:  66_ahead takes f16, as many keys as queries, a multiple of 128, and all of them in a row.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] bf16, in any strides; a
//          gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          In the workspace, for each head, with n_q rounded up to
//          whole tiles: the sum of dQ, n_q * d f32 as lanes hold them, and LSE and D by tiles, [n_q / BR, 2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward.cuh"

namespace {

using namespace backward;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;

template <int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<bf16, HEAD_DIM, BR, BC, WARPS, STAGES> {};

// Of a head, all heads of all sequences numbered.
template <class C>
__device__ __forceinline__ size_t padded(const ModelGradientParams& p) {  // rows: whole tiles
  return size_t(p.n_q + C::BR - 1) / C::BR * C::BR;
}
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const ModelGradientParams& p, int head) {
  return static_cast<float*>(p.workspace) + head * padded<C>(p) * (HEAD_DIM + 2);
}
template <class C>
__device__ __forceinline__ float* rows_of(const ModelGradientParams& p, int head) {  // LSE and D
  return dQ_sum_of<C>(p, head) + padded<C>(p) * HEAD_DIM;
}
__device__ __forceinline__ int64_t offset_of(const ModelGradientParams::Strides& strides, int head, int heads,
                                             int row) {
  return head / heads * strides.batch + head % heads * strides.head + row * strides.row;
}

// Each lane writes two numbers per fragment and row, of those rows that exist; 4 lanes together write 16 B of a row.
__device__ __forceinline__ void store_rows(bf16* warp_rows, int64_t row_stride, int rows,
                                           const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32;
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const int row = FragmentC::row(lane, 2 * lane_row);
    if (row >= rows) continue;
    bf16* const columns = warp_rows + row * row_stride + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile) {
      const float low = C_frag[column_tile][2 * lane_row] * factor,
                  high = C_frag[column_tile][2 * lane_row + 1] * factor;
      st_global_b32(columns + column_tile * 8, pack_bf16x2(low, high));
    }
  }
}

// LSE in log2 units, D[query] = dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ. Queries past
// the end, and those that see no key, get infinity and 0: all their weights are 0, and so is dS.
// Grid (tiles of queries, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  const int head = blockIdx.y;
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int row = blockIdx.x * C::BR + tile_row, query = min(row, p.n_q - 1);
    const int64_t from = offset_of(p.O_strides, head, p.heads, query);
    const float D = row_dot<HEAD_DIM, 1, bf16>(p.O, p.dO, from);
    if (threadIdx.x % 8 == 0) {
      float* const tile_rows = rows_of<C>(p, head) + blockIdx.x * 2 * C::BR;
      const float LSE = ld_global_f32(p.LSE + size_t(head) * p.n_q + query);
      const bool sees = row < p.n_q && LSE != -INFINITY;
      st_global_f32(tile_rows + tile_row, sees ? LSE * LOG2E : INFINITY);
      st_global_f32(tile_rows + C::BR + tile_row, sees ? D : 0.0f);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(dQ_sum_of<C>(p, head) + size_t(row) * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, int first_key,
                                              int first_tile, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  const int q_tiles = (p.n_q + BR - 1) / BR, later = p.n_q - p.n_k;

  const Operands<C> operands(smem, warpgroup);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4], dV_frag[COLUMN_TILES][4], S_frag[BR / 8][4];

  // QK  S^T[64 keys x BR queries] = K Q^T
  const auto start_S = [&](int tile) {
    const uint64_t Q_here = wgmma_advance(operands.Q_tiles, tile % STAGES * C::Q_BYTES);
    smem.ring.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<bf16, HEAD_DIM, BC, BR>(S_frag, operands.K_rows, Q_here);
    wgmma_commit();
  };
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  start_S(0);
  wgmma_wait<0>(S_frag);  // safe to read S
  const auto step = [&](int tile, int q_tile, bool is_last) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(operands.Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(operands.dO_tiles, stage * C::Q_BYTES);
    float dP_frag[BR / 8][4];

    // QK  dP^T = V dO^T
    wgmma_fence(dP_frag);
    issue_QK<bf16, HEAD_DIM, BC, BR>(dP_frag, operands.V_rows, dO_here);
    wgmma_commit();
    const int first_query = q_tile * BR;
    if (first_key + BC > p.n_k || (p.causal && first_key + BC > first_query + 1 - later)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Of the tile's queries, the first that sees this lane's key.
        const int key = first_key + warp * 16 + FragmentC::row(lane, i);
        const int from = key >= p.n_k ? BR : p.causal ? key + later - first_query : 0;
#pragma unroll
        for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
          if (query_tile * 8 + FragmentC::col(lane, i) < from) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh_less<bf16>(S_frag, P_frag, scale_log2, [&](int query_tile) {
      return ld_shared_v2(rows + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<bf16>(dV_frag, P_frag, dO_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply_less<bf16>(dS_frag, S_frag, dP_frag, [&](int query_tile) {
      return ld_shared_v2(rows + (BR + query_tile * 8 + FragmentC::col(lane, 0)) * 4);
    });

    // PV  dK += dS^T Q. And dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<bf16>(dK_frag, dS_frag, Q_here, tile > 0);
    wgmma_commit();
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<bf16, BC, BR>(dQ_frag, operands.dS_tiles, buffer, operands.K_panel);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    if (is_last) {
      wgmma_wait<0>(dQ_frag);  // safe to read dQ
    } else {
      start_S(tile + 1);
      wgmma_wait<1>(dQ_frag);  // safe to read dQ: its products are done, those of S may go on
    }
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    hand_over(full_dQ);
    wgmma_wait<0>(S_frag);  // safe to read the next S. ptxas would not let it be in flight where the loop comes around
  };
  int q_tile = first_tile;
  for (int tile = 0; tile + 1 < tiles; ++tile) {
    step(tile, q_tile, false);
    if (++q_tile == q_tiles) q_tile = first_tile;  // of the next head
  }
  step(tiles - 1, q_tile, true);

  // STORE
  const int warp_key = first_key + warp * 16, rows = p.n_k - warp_key;
  const int64_t dK_rows = offset_of(p.K_strides, blockIdx.y, p.kv_heads, warp_key),
                dV_rows = offset_of(p.V_strides, blockIdx.y, p.kv_heads, warp_key);
  store_rows(static_cast<bf16*>(p.dK) + dK_rows, p.K_strides.row, rows, dK_frag, p.softmax_scale);
  store_rows(static_cast<bf16*>(p.dV) + dV_rows, p.V_strides.row, rows, dV_frag, 1.0f);
}

// LOAD  K and V once; then a tile of queries whenever a stage is empty. One thread's.
template <class C>
__device__ __forceinline__ void load(const ModelGradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                     int first_key, int first_head, int group, int first_tile, int q_tiles, int tiles) {
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  mbarrier_arrive_expect_tx(smem.full_K, 2 * C::K_BYTES);
  const int sequence = blockIdx.y / p.kv_heads, kv_head = blockIdx.y % p.kv_heads;
  for (int panel = 0; panel < PANELS; ++panel) {
    const uint32_t panel_bytes = panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d(smem.K + panel_bytes, K_map, panel * PANEL_COLS, first_key, kv_head, sequence, smem.full_K);
    cp_async_bulk_tensor_4d(smem.V + panel_bytes, V_map, panel * PANEL_COLS, first_key, kv_head, sequence, smem.full_K);
  }
  int head = 0, q_tile = first_tile;  // of the group
#pragma unroll 1                      // unrolled, it would not fit into the registers of a thread that copies
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, full = smem.ring.full_of(tile);
    smem.ring.claim(tile);
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t target = stage * C::Q_BYTES + panel * BR * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_4d(smem.Q + target, Q_map, panel * PANEL_COLS, q_tile * BR, kv_head * group + head, sequence,
                              full);
      cp_async_bulk_tensor_4d(smem.dO + target, dO_map, panel * PANEL_COLS, q_tile * BR, kv_head * group + head,
                              sequence, full);
    }
    cp_async_bulk(smem.rows + stage * C::ROWS_BYTES, rows_of<C>(p, first_head + head) + q_tile * 2 * BR, C::ROWS_BYTES,
                  full);
    if (++q_tile == q_tiles) q_tile = first_tile, ++head;
  }
}

// STORE  dQ of a tile whenever a warpgroup has stored its half: 16 KiB in the order of its registers, here and
//        there. One thread's for each half.
template <class C>
__device__ __forceinline__ void add_dQ(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half, int first_head,
                                       int first_tile, int q_tiles, int tiles) {
  constexpr int BR = C::BR;
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  int head = 0, q_tile = first_tile;
  for (int tile = 0; tile < tiles; ++tile) {
    mbarrier_wait_parity(full, tile % 2);  // safe to read dQ: its warps have stored it
    cp_reduce_async_bulk_add_f32(
        dQ_sum_of<C>(p, first_head + head) + (size_t(q_tile) * HEAD_DIM + half * PANEL_COLS) * BR,
        smem.dQ + half * C::dQ_BYTES, C::dQ_BYTES);
    if (++q_tile == q_tiles) q_tile = first_tile, ++head;
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
    mbarrier_arrive(empty);
  }
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys, batch * kv_heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles see none of the block's keys. Where none does, the last tile is taken, and all of it
  // masked.
  const int first_key = blockIdx.x * BC, q_tiles = (p.n_q + BR - 1) / BR, later = p.n_q - p.n_k;
  const int first_tile = p.causal ? min(max(first_key + later, 0) / BR, q_tiles - 1) : 0;
  const int group = p.heads / p.kv_heads, first_head = blockIdx.y * group;  // in all sequences
  const int head_tiles = q_tiles - first_tile, tiles = group * head_tiles;

  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load(p, smem, Q_map, K_map, V_map, dO_map, first_key, first_head, group, first_tile, q_tiles, tiles);
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ<C>(p, smem, warp - WARPS - 1, first_head, first_tile, q_tiles, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<C>(p, smem, first_key, first_tile, tiles);
}

// dQ, from the sum, when all blocks have added to it. Eight columns of a tile's rows r and r + 8 are 16 numbers of four
// lanes, side by side: a thread has these, and eight threads have 64 columns.   Grid (tiles of queries, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ModelGradientParams p) {
  const int head = blockIdx.y;
  for (int i = threadIdx.x; i < C::BR * ROW_CHUNKS / 2; i += ROW_THREADS) {
    const int column_tile = i % 8, four_lanes = i / 8 % 32, panel = i / 256;  // of a warpgroup: its 32 times four lanes
    const float* const from = dQ_sum_of<C>(p, head) + (size_t(blockIdx.x) * HEAD_DIM + panel * PANEL_COLS) * C::BR +
                              column_tile * 512 + four_lanes * 16;
    uint32_t pairs[2][4];  // [lane_row]
    load_lanes<bf16>(pairs, from, p.softmax_scale);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = blockIdx.x * C::BR + four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8;
      if (row >= p.n_q) continue;
      const float LSE = ld_global_f32(rows_of<C>(p, head) + blockIdx.x * 2 * C::BR + row % C::BR);
      const uint32_t(&four)[4] = pairs[lane_row];  // without any key the sum is 0 times K, which may be NaN
      st_global_v4(
          static_cast<bf16*>(p.dQ) + offset_of(p.Q_strides, head, p.heads, row) + panel * PANEL_COLS + column_tile * 8,
          LSE == INFINITY ? uint4{0, 0, 0, 0} : uint4{four[0], four[1], four[2], four[3]});
    }
  }
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as are
//         strides. A map tells the copy engine where rows end: what it asks for behind is zeros.
template <class C>
void run(Device& device, const ModelGradientParams& p) {
  const uint32_t batch = p.batch;
  const auto tile_map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                            uint32_t rows) {
    return tensor_map_4d(device, static_cast<const bf16*>(tensor), {HEAD_DIM, uint32_t(n), uint32_t(heads), batch},
                         {uint64_t(strides.row) * 2, uint64_t(strides.head) * 2, uint64_t(strides.batch) * 2},
                         {PANEL_COLS, rows, 1, 1});
  };
  const dim3 rows_grid((p.n_q + C::BR - 1) / C::BR, batch * p.heads);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.n_k > 0)
    launch(device, gradients<C>, dim3((p.n_k + C::BC - 1) / C::BC, batch * p.kv_heads), dim3(C::THREADS), C::SMEM_BYTES,
           p, tile_map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR), tile_map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC),
           tile_map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), tile_map(p.dO, p.O_strides, p.heads, p.n_q, C::BR));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
