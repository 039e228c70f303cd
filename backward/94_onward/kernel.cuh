// 94_onward: a block takes keys after keys: while dK and dV of one tile leave, from where dS and dQ were, the next K and V
//            are on their way.
// Before:  in 76_joined a tile of keys is a block's whole life: it looks its keys up, waits for them, and at its end until
//          its gradients have left. Nothing multiplies meanwhile, and there is no room for a second block.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

constexpr int HEAD_DIM = 128, ROW_BYTES = HEAD_DIM * 2, ROW_CHUNKS = ROW_BYTES / 16, PANELS = HEAD_DIM / PANEL_COLS;

// Products but those of dQ end at column COLUMNS: d is that at most, and what lies behind d is zeros.
template <class T, int BR, int BC, int WARPS, int STAGES, int COLUMNS_UP_TO = HEAD_DIM>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 0, 1, 64> {
  static constexpr int COLUMNS = COLUMNS_UP_TO, COLUMN_TILES = COLUMNS / 8, D_SLICES = COLUMNS / 16;
};

// Behind the barriers, from `empty_K` on: one for when all have done with K and V, and which keys these are.
template <class C>
struct Taken {
  uint32_t empty_K, keys;
  __device__ __forceinline__ explicit Taken(const Smem<C>& smem)
      : empty_K(smem.full_K + C::BARRIERS * 8), keys(empty_K + 24) {}

  // The producer's: keys, or none if that was all.
  __device__ __forceinline__ void tell(const Keys<C>& which, bool some) const {
    const Sequence& s = which.sequence;
    st_shared_v4(keys, {uint32_t(s.number), uint32_t(s.q_begin), uint32_t(s.n_q), uint32_t(s.k_begin)});
    st_shared_v4(keys + 16,
                 {uint32_t(s.n_k), uint32_t(s.first_tile), uint32_t(which.first_key), uint32_t(which.kv_head)});
    st_shared_b32(keys + 32, some);
  }
  // Are there any?
  __device__ __forceinline__ bool hear(Keys<C>& which) const {
    const uint4 first = ld_shared_v4(keys), second = ld_shared_v4(keys + 16);
    which.sequence = {int(first.x), int(first.y), int(first.z), int(first.w), int(second.x), int(second.y), 1, 0};
    which.first_key = second.z, which.kv_head = second.w;
    return ld_shared_b32(keys + 32) != 0;
  }
};
// Tiles of queries of a walk over the heads of a group.
template <class C>
struct Stretch {
  int group, first_tile, end_tile, tiles;
  __device__ __forceinline__ Stretch(const ModelGradientParams& p, const Keys<C>& keys) {
    const Seers seers(p, keys.sequence.n_q, keys.sequence.n_k);
    group = p.heads / p.kv_heads;
    first_tile = seers.template first_tile<C>(keys.first_key), end_tile = seers.template end_tile<C>(keys.first_key);
    tiles = group * (end_tile - first_tile);
  }
};
// Behind the sums: how many tiles of keys have been taken, besides the first of each block.
template <class C>
__device__ __forceinline__ uint32_t* taken_of(const ModelGradientParams& p) {
  return reinterpret_cast<uint32_t*>(dQ_sum_of<C>(p, all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), 0));
}

// LOAD  K and V of keys after keys, each with its tiles of queries behind it, whenever a stage is empty. The block's own
//       keys first; then whichever nobody has taken. One thread's.
template <bool VARLEN, class C>
__device__ __forceinline__ void load_all(const ModelGradientParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                         const TensorMap& K_map, const TensorMap& V_map, const TensorMap& dO_map,
                                         int blocks) {
  const Taken<C> taken(smem);
  Keys<C> keys;
  int before = 0;
  uint32_t item = 0;
#pragma unroll 1
  for (int number = blockIdx.x; number < blocks;) {
    const int next = gridDim.x + atom_global_add_u32(taken_of<C>(p), 1);
    if (keys.find(p, number)) {
      const Stretch<C> stretch(p, keys);
      mbarrier_wait_parity(taken.empty_K, (item++ % 2) ^ 1);  // safe to overwrite: all have done with the keys before
      taken.tell(keys, true);
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, keys, stretch.group, stretch.first_tile, stretch.end_tile,
                   stretch.tiles, before);
      before += stretch.tiles;
    }
    number = next;
  }
  mbarrier_wait_parity(taken.empty_K, (item % 2) ^ 1);  // safe to overwrite, as above
  taken.tell(keys, false);
  mbarrier_arrive(smem.full_K);
}
// STORE  dQ of all of them. One thread's for each half.
template <class C>
__device__ __forceinline__ void add_all(const ModelGradientParams& p, const Smem<C>& smem, uint32_t half) {
  const Taken<C> taken(smem);
  int before = 0;
#pragma unroll 1
  for (uint32_t item = 0;; ++item) {
    mbarrier_wait_parity(smem.full_K, item % 2);  // safe to read which keys these are
    Keys<C> keys;
    if (!taken.hear(keys)) return;
    mbarrier_arrive(taken.empty_K);
    const Stretch<C> stretch(p, keys);
    add_dQ(p, smem, half, keys, stretch.group, stretch.first_tile, stretch.end_tile, stretch.tiles, before);
    before += stretch.tiles;
  }
}

// dK and dV of the keys before have left shared memory, and both warpgroups are here.
template <class C>
__device__ __forceinline__ void wait_for_gradients() {
  if (threadIdx.x % 32 == 0) cp_async_bulk_wait_read<0>();
  named_barrier_sync(1, C::WARPS * 32);
}
// As copy_gradients, without the wait until they have been read.
template <bool VARLEN, class C>
__device__ __forceinline__ void start_copy_of_gradients(const Smem<C>& smem, const TensorMap& dV_map,
                                                        const TensorMap& dK_map, const Keys<C>& keys) {
  const uint32_t warp = threadIdx.x / 32, warp_rows = warp * 16 * C::ROW_BYTES;
  const Sequence& sequence = keys.sequence;
  const int key = keys.first_key + warp * 16;
  if (threadIdx.x % 32 == 0 && key < sequence.n_k) {
    const Box box = box_of<16, VARLEN>(key, sequence.n_k, sequence.k_begin, keys.kv_head, sequence.number);
    for (int panel = 0; panel < C::PANELS; ++panel) {
      const uint32_t from = warp_rows + panel * 16 * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_store_4d(dV_map, panel * PANEL_COLS, box.y, box.z, box.w, smem.V + from);
      cp_async_bulk_tensor_store_4d(dK_map, panel * PANEL_COLS, box.y, box.z, box.w, smem.K + from);
    }
    cp_async_bulk_commit();
  }
  __syncwarp();
}

// What a warpgroup does: dK and dV of its 64 keys, and half of what the block adds to dQ.
template <bool VARLEN, class C>
__device__ __forceinline__ void differentiate(const ModelGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                              const Stretch<C>& stretch, int before, const TensorMap& dK_map,
                                              const TensorMap& dV_map) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  const int later = keys.sequence.n_q - keys.sequence.n_k;

  // Descriptors, as 64_warpgroups explains them.
  const uint64_t K_rows = wgmma_descriptor(smem.K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem.V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem.K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem.Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem.dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem.dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = smem.dQ_barriers + warpgroup * 16,
                 lane_dQ = smem.dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[C::COLUMN_TILES][4] = {}, dV_frag[C::COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  const int behind = before + stretch.tiles;
  int q_tile = stretch.first_tile;
#pragma unroll 1
  for (int tile = before; tile < behind; ++tile) {
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
    issue_scores<T, C::COLUMNS, BC, BR>(S_frag, K_rows, Q_here);
    wgmma_commit();
    issue_scores<T, C::COLUMNS, BC, BR>(dP_frag, V_rows, dO_here);
    wgmma_commit();
    if (tile > before) hand_over(full_dQ);  // of the tile before
    wgmma_wait<1>(S_frag);                  // safe to read S: its products are done, those of dP may go on
    const int first_query = q_tile * BR;
    if (keys.first_key + BC > keys.sequence.n_k || (p.causal && keys.first_key + BC > first_query + 1 - later)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Of the tile's queries, the first that sees this lane's key.
        const int key = keys.first_key + warp * 16 + FragmentC::row(lane, i);
        const int from = key >= keys.sequence.n_k ? BR : p.causal ? key + later - first_query : 0;
#pragma unroll
        for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
          if (query_tile * 8 + FragmentC::col(lane, i) < from) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

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
    if (tile == before) wait_for_gradients<C>();  // safe to overwrite dS and dQ: those of the keys before have left
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
    if (++q_tile == stretch.end_tile) q_tile = stretch.first_tile;  // of the next head
  }
  if (stretch.tiles > 0) hand_over(full_dQ);  // of the last tile

  // STORE  Each warp has 16 rows of dK and dV, and puts them where dS and dQ were.
  wait_for_gradients<C>();  // safe to overwrite dS, which no product reads any more; and K and V
  if (threadIdx.x == 0) mbarrier_arrive(Taken<C>(smem).empty_K);
  const uint32_t warp_rows = warp * 16 * C::ROW_BYTES;
  stage_rows<T>(smem.dS + warp_rows, dV_frag, 1.0f);
  for (const uint32_t full : {smem.dQ_barriers, smem.dQ_barriers + 16})
    mbarrier_wait_parity(full + 8, (behind % 2) ^ 1);  // safe to overwrite dQ: the last one has been read
  stage_rows<T>(smem.dQ + warp_rows, dK_frag, p.softmax_scale);
  fence_proxy_async_shared();  // the copy engine will find what this lane has stored
  __syncwarp();                // safe to copy: all lanes have stored
  Smem<C> staged;
  staged.V = smem.dS, staged.K = smem.dQ;
  start_copy_of_gradients<VARLEN>(staged, dV_map, dK_map, keys);
}

// D and zeros, and nobody has taken any keys. Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas_and_taken(ModelGradientParams p) {
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) st_global_b32(taken_of<C>(p), 0);
  prepare_tile(p, QueryTile<C>(p, blockIdx.x));
}

// dK and dV of BC keys after BC keys, over all tiles of queries of all heads of their group, and what these keys add to
// dQ. Grid: at most as many blocks as run at the same time, of `blocks` tiles of keys * kv_heads.
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map, int blocks) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const Smem<C> smem;
  smem.name();
  const Taken<C> taken(smem);
  smem_name(taken.empty_K, 64, "which keys");
  if (threadIdx.x == 0) {
    mbarrier_init(taken.empty_K, 3);  // the warpgroups, together, and who adds to dQ
    smem.init();
  }
  __syncthreads();  // safe to use the barriers

  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load_all<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, blocks);
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0) add_all(p, smem, warp - WARPS - 1);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  int before = 0;
#pragma unroll 1
  for (uint32_t item = 0;; ++item) {
    mbarrier_wait_parity(smem.full_K, item % 2);  // safe to read K and V: they have landed
    Keys<C> keys;
    if (!taken.hear(keys)) break;
    const Stretch<C> stretch(p, keys);
    differentiate<VARLEN>(p, smem, keys, stretch, before, dK_map, dV_map);
    before += stretch.tiles;
  }
  if (lane == 0) cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C, Seers>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas_and_taken<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  const int blocks = all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads;
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(min(blocks, int(multiprocessors(device)))), dim3(C::THREADS),
           C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16), blocks);
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
