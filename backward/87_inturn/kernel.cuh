// 87_inturn: 72's turns in what models ask: a tile's turns begin with the first keys that it sees, and a walk goes over
//            the heads of a group before the next tile. Two runs give the same bits.
// Before:  in 82_nearby who comes first adds first to dQ, and sums of f32 in another order have other last bits.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32; behind all of these for each tile and head
//          whose turn it is, [2] u32, and how many blocks have begun.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 0, 1, 4> {  // 4 B more: its number
  static constexpr bool IN_TURN = true;
};

// Three numbers for each tile of queries and head: which tile of keys is the next one to add to each half of it; and at
// a sequence's first tile, how many have begun of the blocks that take turns with that head.
template <class C>
__device__ __forceinline__ uint32_t* turns_of(const ModelGradientParams& p, int tile, int head) {
  const int tiles = all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q);
  return reinterpret_cast<uint32_t*>(dQ_sum_of<C>(p, tiles, 0)) + (size_t(tile) * p.heads + head) * 3;
}

// What prepares a tile, and who adds to it first: of the tiles of keys that its queries see, the first. Each one behind
// it adds, too, up to the last, so a turn passes from one to the next.
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  const QueryTile<C> tile(p, blockIdx.x);
  if (threadIdx.x < 3) {
    const int query = (blockIdx.x - first_tile_of<C>(p, tile.sequence)) * C::BR, n_q = query + tile.rows;
    const int k_begin = begin_of(p.cu_seqlens_k, tile.sequence, p.n_k),
              k_end = begin_of(p.cu_seqlens_k, tile.sequence + 1, p.n_k);
    const SeersNearby seers(p, n_q, k_end - k_begin);
    const int first_key = max(query - seers.last_query(0), 0);
    st_global_b32(turns_of<C>(p, blockIdx.x, blockIdx.y) + threadIdx.x, threadIdx.x < 2 ? first_key / C::BC : 0);
  }
  prepare_tile(p, tile, blockIdx.x, blockIdx.y);
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              const SeersNearby& seers, int group, int end_tile, int tiles,
                                              const TensorMap& dK_map, const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  mbarrier_wait_parity(smem.full_K, 0);                                // safe to read K and V: they have landed
  int q_tile = end_tile - 1, heads = 0;
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
    if (tile > 0) hand_over(full_dQ);  // of the tile before
    wgmma_wait<1>(S_frag);             // safe to read S: its products are done, those of dP may go on
    seers.hide<C>(S_frag, keys.first_key, q_tile * BR);

    // SOFTMAX
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
    weigh<T>(S_frag, P_frag, scale_log2);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_PV<T>(dV_frag, P_frag, dO_here);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    multiply<T>(dS_frag, S_frag, dP_frag);

    // PV  dS goes to shared memory, queries as rows.
    store_transposed<BR>(smem.dS + buffer, dS_frag);
    fence_proxy_async_shared();            // wgmma will find what this lane has stored
    named_barrier_sync(1, C::WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
    issue_dQ<T, BC, BR>(dQ_frag, dS_tiles, buffer, K_panel);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
    issue_PV<T>(dK_frag, dS_frag, Q_here);
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);            // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    store_lanes(lane_dQ, dQ_frag);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.ring.empty_of(tile));
    if (++heads == group) heads = 0, --q_tile;
  }
  hand_over(full_dQ);  // of the last tile; where there was none, nobody waits for it

  seers.clear_unseen<C>(dK_frag, dV_frag, keys.first_key);

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  stage_gradients(p, smem, dV_frag, dK_frag);
  copy_gradients<VARLEN>(smem, dV_map, dK_map, keys);
}

// STORE  dQ of a tile whenever a warpgroup has stored its half, and the block's turn has come. One thread's for each
//        half.
template <class C>
__device__ __forceinline__ void add_dQ(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half,
                                       const Keys<C>& keys, int group, int end_tile, int tiles) {
  const uint32_t full = smem.dQ_barriers + half * 16, empty = full + 8;
  int head = keys.kv_head * group, q_tile = keys.sequence.first_tile + end_tile - 1;
#pragma unroll 1  // as the copies
  for (int tile = 0; tile < tiles; ++tile) {
    uint32_t* const turns = turns_of<C>(p, q_tile, head) + half;
    mbarrier_wait_parity(full, tile % 2);                // safe to read dQ: its warps have stored it
    ld_acquire_wait_u32(turns, keys.first_key / C::BC);  // safe to add: all before have, and their sums are there
    cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, q_tile, head) + half * (C::dQ_BYTES / 4), smem.dQ + half * C::dQ_BYTES,
                                 C::dQ_BYTES);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read
    mbarrier_arrive(empty);
    cp_async_bulk_wait<0>();        // safe to hand over: not only read, the sums are there
    red_release_add_u32(turns, 1);  // whoever sees this sees the sums, too
    if (++head == (keys.kv_head + 1) * group) head -= group, --q_tile;
  }
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads). To each tile of dQ the blocks of lower keys add first. A block draws its number when
// it begins, among those that take turns, as 72_inorder explains: so whoever waits, waits for blocks that have begun.
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  Keys<C> keys;
  if (!keys.find(p)) return;

  const Smem<C> smem;
  const uint32_t smem_number = smem.full_K + C::BARRIERS * 8;
  const int group = p.heads / p.kv_heads;
  smem.name();
  smem_name(smem_number, 4, "number");
  if (threadIdx.x == 0) {
    uint32_t* const begun = turns_of<C>(p, keys.sequence.first_tile, keys.first_head * group) + 2;
    st_shared_b32(smem_number, atom_global_add_u32(begun, 1));
    smem.init();
  }
  __syncthreads();  // safe to use the barriers, and to read the number
  keys.take(ld_shared_b32(smem_number));

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int first_tile = seers.first_tile<C>(keys.first_key), end_tile = seers.end_tile<C>(keys.first_key);
  const int tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty. From the last tile on: under a mask all
  //       begin there, and in a window each block comes to a tile when the one before has left it. And of all heads of
  //       the group before the next tile: under a mask a block has fewer tiles than the one before, and of another head
  //       it would have to wait for it.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<VARLEN, true>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0)
      add_dQ<C>(p, smem, warp - WARPS - 1, keys, group, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate<VARLEN>(p, smem, keys, seers, group, end_tile, tiles, dK_map, dV_map);
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
