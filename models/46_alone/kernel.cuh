// 46_alone: in a window blocks work alone, each with its own copies of K and V.
// Before:  in 45 two blocks share what either of them needs. In a narrow window that is a third more than each needs: a
//          tile that only one of them multiplies with takes a stage of both rings, and the time of a step.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. Or Q, O: [total_q, heads, d]; K, V: [total_k, kv_heads, d];
//          LSE: [heads, total_q]; with cu_seqlens, [batch + 1] each.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 45_varlen spells these out, 38_seam release_Q, 44_told what is told, 43_window the softmax.
using forward::blocks_for, forward::Box, forward::box_of, forward::Causal, forward::CONSUMER_REGISTERS;
using forward::hide_both_sides, forward::let_pass, forward::LOG2E, forward::NoMask, forward::plan;
using forward::PLAN_THREADS, forward::PRODUCER_REGISTERS, forward::Queries, forward::release_Q, forward::rows_map;
using forward::Schedule, forward::Sequence, forward::Softmax, forward::Tail, forward::Window, forward::Work;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES>;

template <bool VARLEN, class C>
__device__ __forceinline__ void load(const ModelParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both
  //       panels.
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  smem.Q.expect(queries.round);
  const int head = queries.head % p.heads;
  const int kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  const Box from = box_of<BR, VARLEN>(queries.q_tile * BR, queries.n_q, queries.q_begin, head, sequence);
  for (int panel = 0; panel < PANELS; ++panel)
    cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round) + panel * BR * PANEL_ROW_BYTES, Q_map,
                            panel * PANEL_COLS, from.y, from.z, from.w, smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile);
    ring.expect(tile);
    const Box from = box_of<BC, VARLEN>(queries.in_K(tile) * BC, queries.n_k, queries.k_begin, kv_head, sequence);
    for (uint32_t panel = cluster_rank(); panel < PANELS; panel += BLOCKS)
      cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES, map,
                                        panel * PANEL_COLS, from.y, from.z, from.w, ring.full_of(tile),
                                        (1 << BLOCKS) - 1);
  };
  const int last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.V, tile - 1);
  }
}

// Safe to end: the other block, where there is one, does not copy here, nor arrive, any more.
template <int BLOCKS>
__device__ __forceinline__ void end_together() {
  if (BLOCKS > 1) cluster_sync();
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <bool VARLEN, class C, class Mask>
__device__ __forceinline__ void attend(const ModelParams& p, const Smem<C>& smem,
                                       Softmax<typename C::Element, C::BC>& softmax, const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  constexpr bool IS_WHOLE = Mask::IS_WHOLE && !VARLEN;            // every query sees all keys
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles),
                 V_tiles = wgmma_descriptor(smem.V.tiles, BC * PANEL_ROW_BYTES);
  using Weights = typename Softmax<Element, BC>::Weights;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];    // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), threadIdx.x % 128);
  };
  int round = 0;  // of Q and Work
  const auto start_QK = [&](int tile) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round)), K_here = wgmma_advance(K_tiles, smem.K.at(tile));
    smem.K.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<Element, HEAD_DIM, BR, BC>(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto hide = [&](int tile) {
    const Work work = smem.told(round);
    hide_both_sides(S_frag, Mask(p, work[Work::N_Q], work[Work::N_K]), work, tile);
  };
  const auto start_PV = [&](int tile, Weights P_frag, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, !is_first);
    wgmma_commit();
  };
  int begin = 0, end = 0;  // of the tiles of keys
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool is_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    if (is_masked) hide(tile);
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false, Mask::IS_WINDOW && is_masked);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(smem.V, tile - 1);
  };
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last, tile == begin);
    const Work work = smem.told(round);
    const Mask mask(p, work[Work::N_Q], work[Work::N_K]);
    // Rows of the log-sum-exp: of a head of a sequence one behind the other, or of a head of all sequences.
    const int64_t rows = VARLEN ? ld_global_s32(p.cu_seqlens_q + p.batch) : p.n_q, head = work[Work::HEAD];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {  // beside PV: two exchanges complete a row's sum
      softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row]);
      const int query = work[Work::QUERY] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
      const bool has_keys = IS_WHOLE || mask.first_of(query) < mask.end_of(query);
      normalise[lane_row] = has_keys ? 1.0f / softmax.sum[lane_row] : 0.0f;  // no key: O = 0
      if (p.LSE != nullptr && lane % 4 == 0 && query < mask.n_q)             // log(0) is -infinity
        st_global_f32(p.LSE + head * rows + work[Work::Q_BEGIN] + query,
                      softmax.largest(lane_row) / LOG2E + logf(softmax.sum[lane_row]));
    }
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    const uint32_t warp_O = smem.Q.tiles + smem.Q.at(round) + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    store_scaled<Element, BR, !IS_WHOLE>(lane_O, O_frag, normalise);
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    const Work work = smem.told(round);
    if (lane == 0 && (!VARLEN || work[Work::QUERY] + int(warp) * 16 < work[Work::N_Q])) {
      const int head = work[Work::HEAD];
      const Box box = box_of<16, VARLEN>(work[Work::QUERY] + warp * 16, work[Work::N_Q], work[Work::Q_BEGIN],
                                         head % p.heads, head / p.heads);
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, box.y, box.z, box.w,
                                      warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };

  smem.Q.wait_full(0);
  if (VARLEN && !smem.told(0)[Work::MORE]) return;  // in a plan a cluster may be without work
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    if (work.is_masked(begin, Mask::IS_WINDOW)) hide(begin);
    softmax.begin();
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = work[Work::WHOLE_END]; tile + 1 < whole_end; tile += 2) {
        step(tile, P_even, P_odd);
        step(tile + 1, P_odd, P_even);
      }
    }
    for (; tile < end; tile += 2) {  // three at most, but in a window all
      step(tile, P_even, P_odd, work.is_masked(tile, Mask::IS_WINDOW));
      if (tile + 1 < end) step(tile + 1, P_odd, P_even, work.is_masked(tile + 1, Mask::IS_WINDOW));
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if ((end - begin) % 2 == 0) {
      finish(end - 1, P_odd);
    } else {
      finish(end - 1, P_even);
    }
    ++round;
    smem.Q.wait_full(round);
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN], release);  // or all
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    store(round - 1);       // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ModelParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  constexpr bool IS_WHOLE = Mask::IS_WHOLE && !VARLEN;  // every query sees all keys

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<IS_WHOLE>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask, VARLEN> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round));
        load<VARLEN>(p, smem, queries, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<IS_WHOLE>>();  // waits until the producer has given its registers back
  Softmax<typename C::Element, BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  attend<VARLEN, C, Mask>(p, smem, softmax, O_map);
  end_together<BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask, bool VARLEN>
void start(Device& device, const ModelParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element, VARLEN>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  if (VARLEN) launch(device, plan<C, Mask>, dim3(1), dim3(PLAN_THREADS), 0, p);
  launch_clusters(device, flash_attention<C, Mask, VARLEN>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ModelParams& p) {
  const bool is_window = p.left >= 0 || p.right > 0;
  if (p.cu_seqlens_q != nullptr) {
    is_window  ? start<typename C::Alone, Window, true>(device, p)
    : p.causal ? start<C, Causal, true>(device, p)
               : start<C, Tail, true>(device, p);
  } else if (p.n_k == 0) {
    forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  } else {
    is_window            ? start<typename C::Alone, Window, false>(device, p)
    : p.causal           ? start<C, Causal, false>(device, p)
    : p.n_k % C::BC != 0 ? start<C, Tail, false>(device, p)
                         : start<C, NoMask, false>(device, p);
  }
}

}  // namespace
