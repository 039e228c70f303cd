// 81_relay: three threads take turns at adding to dQ: one waits for its turn while another's sums are on their way.
// Before:  in 80_sameorder one thread adds a half of each tile: it waits for its turn, adds, waits for the sums, passes
//          the turn on, and all that takes longer than a tile.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d = 128, n % BC == 0, sm_90a.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16 or bf16.   LSE: [batch * heads, n] f32.
//          In the workspace, for each head: the sum of dQ, n * d f32 as lanes hold them, and -LSE and -D by tiles,
//          [n / BR, 2, BR] f32;
//          behind all heads for each the turns, [n / BR, 2] u32, and how many numbers have been drawn.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward.cuh"

namespace {

using namespace backward::heads;

constexpr int ADDERS = 3;  // warps of the four that copy and add

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 0, ADDERS, 4> {  // 4 B more: its number
  using Head = int;
  static constexpr bool BEGUN = true;  // S and dP begin with -LSE and -D
};

// How many blocks have added to each half of a tile; and behind these, how many of the heads that begin together have
// begun.
__device__ __forceinline__ uint32_t* turns_of(const GradientParams& p, int head) {
  return reinterpret_cast<uint32_t*>(dQ_sum_of(p, p.batch_heads)) + size_t(head) * (p.n_q / 32 + 1);
}

// -LSE in units of Q K^T, -D[query] = -dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ and who
// comes when.
// Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(GradientParams p) {
  uint32_t* const turns = turns_of(p, blockIdx.y);
  if (threadIdx.x < 2) st_global_b32(turns + 2 * blockIdx.x + threadIdx.x, 0);
  if (threadIdx.x == 2 && blockIdx.x == 0) st_global_b32(turns + p.n_q / 32, 0);
  prepare_tile<C>(p);
}

// What a warpgroup does: dK and dV of its 64 keys, and half of the columns of what the block adds to dQ.
template <class C>
__device__ __forceinline__ void differentiate(const GradientParams& p, const Smem<C>& smem, int head, int first_key,
                                              int tiles, const TensorMap& dK_map, const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * (ADDERS + 1) * 8,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4], dV_frag[COLUMN_TILES][4];

  const auto hand_over_dQ = [&](int tile) {
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to hand over: all lanes have stored
    if (lane == 0) mbarrier_arrive(full_dQ + tile % ADDERS * 8);
    __syncwarp();  // products take whole warps
  };
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem.rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE, and dP^T = V dO^T - D
    smem.ring.wait_full(tile);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice) {
      const uint32_t four = rows + (query_slice * 16 + lane % 4 * 4) * 4;
      begin_with(S_frag[2 * query_slice], S_frag[2 * query_slice + 1], ld_shared_v4(four));
      begin_with(dP_frag[2 * query_slice], dP_frag[2 * query_slice + 1], ld_shared_v4(four + BR * 4));
    }
    wgmma_fence(S_frag, dP_frag);
    issue_scores<T, HEAD_DIM, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    issue_scores<T, HEAD_DIM, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    if (tile > 0) hand_over_dQ(tile - 1);  // of the tile before
    wgmma_wait<1>(S_frag);                 // safe to read S: its products are done, those of dP may go on
    const int above = tiles - 1 - tile;    // so many tiles lie between the block's first one, on the diagonal, and this
    if (p.causal && above < BC / BR) hide_later_keys(S_frag, warp * 16, above * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh<T>(S_frag, P_frag, scale_log2);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, buffer, K_panel);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<T>(dK_frag, dS_frag, Q_here, tile > 0);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);  // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + ADDERS * 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
  }

  hand_over_dQ(tiles - 1);

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  const uint32_t warp_rows = warp * 16 * ROW_BYTES;
  if (lane == 0) {
    const int key = first_key + warp * 16;
    cp_async_bulk_tensor_store_4d(dV_map, 0, key, 0, head, smem.V + warp_rows);
    cp_async_bulk_tensor_store_4d(dK_map, 0, key, 0, head, smem.K + warp_rows);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  }
}

// STORE  dQ of a tile whenever a warpgroup has stored its half: 16 KiB in the order of its registers, here and
//        there. One thread's of several.
template <class C>
__device__ __forceinline__ void add_dQ(const GradientParams& p, const Smem<C>& smem, uint32_t adder, int head,
                                       uint32_t turn, int first_tile, int tiles) {
  constexpr int BR = C::BR;
  for (int half = adder; half < 2 * tiles; half += ADDERS) {
    const int tile = half / 2, group = half % 2, q_tile = first_tile + tiles - 1 - tile;
    const uint32_t full = smem.dQ_barriers + group * (ADDERS + 1) * 8, empty = full + ADDERS * 8;
    uint32_t* const turns = turns_of(p, head) + 2 * q_tile + group;
    float* const sum = dQ_sum_of(p, head) + size_t(q_tile) * BR * HEAD_DIM + group * BR * PANEL_COLS;
    mbarrier_wait_parity(full + tile % ADDERS * 8, tile / ADDERS % 2);  // safe to read dQ: its warps have stored it
    ld_acquire_wait_u32(turns, turn);  // safe to add: all blocks before have, and their sums are there
    cp_reduce_async_bulk_add_f32(sum, smem.dQ + group * C::dQ_BYTES, C::dQ_BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read
    mbarrier_arrive(empty);
    cp_async_bulk_wait<0>();        // safe to hand over: not only read, the sums are there
    red_release_add_u32(turns, 1);  // whoever sees this sees the sums, too
  }
}

// dK and dV of BC keys, over all tiles of queries, and what these keys add to dQ.
// Grid (heads together, keys / BC, groups of them).
// To each tile of dQ the blocks of lower keys add first. CUDA does not say which blocks begin first, so a block draws
// its number among those of its group when it begins, and the number says its keys. Whoever waits, waits for lower
// numbers, which have begun; the lowest that has not ended waits for nobody. So somebody always goes on, on however few
// SMs.
template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(GradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Smem<C> smem;
  const uint32_t smem_number = smem.full_K + C::BARRIERS * 8;
  smem.name();
  smem_name(smem_number, 4, "number");
  if (threadIdx.x == 0) {
    st_shared_b32(smem_number, atom_global_add_u32(turns_of(p, blockIdx.z * gridDim.x) + p.n_q / 32, 1));
    smem.init();
  }
  __syncthreads();  // safe to use the barriers, and to read the number

  const uint32_t number = ld_shared_b32(smem_number), turn = number / gridDim.x;
  const int head = blockIdx.z * gridDim.x + number % gridDim.x, first_key = turn * BC;
  const int first_tile = p.causal ? first_key / BR : 0;  // queries before these see none of the block's keys
  const int tiles = p.n_q / BR - first_tile;

  // LOAD  K and V once; then a tile of queries whenever a stage is empty. All begin with the last queries, which every
  //       key is seen by: so a block comes to a tile right behind the one before.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<true>(p, smem, Q_map, K_map, V_map, dO_map, BlockAt{head, first_key}, first_tile, tiles);
    if (warp > WARPS && lane == 0) add_dQ<C>(p, smem, warp - WARPS - 1, head, turn, first_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<C>(p, smem, head, first_key, tiles, dK_map, dV_map);
}

// LAUNCH  D and zeros first, dQ last. The pointers of `p` belong to the device; n is a multiple of BC.
template <class C>
void run(Device& device, const GradientParams& p) {
  using T = typename C::T;
  const dim3 rows_grid(p.n_q / C::BR, p.batch_heads);
  // Numbers go to heads first, then to keys: under a mask the longest walks begin first, and those that begin at the
  // same time are of as many heads as possible, for within a head they wait for each other. Of so many at a time that
  // what they walk over, Q, dO and the sum of dQ, 8 B an element, stays in the L2 cache.
  const int together = heads_together(p, true);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  launch(device, gradients<C>, dim3(together, p.n_k / C::BC, p.batch_heads / together), dim3(C::THREADS), C::SMEM_BYTES,
         p, tile_map<T>(device, p, p.Q, p.n_q, C::BR), tile_map<T>(device, p, p.K, p.n_k, C::BC),
         tile_map<T>(device, p, p.V, p.n_k, C::BC), tile_map<T>(device, p, p.dO, p.n_q, C::BR),
         tile_map<T>(device, p, p.dK, p.n_k, 16), tile_map<T>(device, p, p.dV, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
