// m03_apart: heads of 256 columns under a mask: blocks work alone, and take equal shares.
// Before:  in 57 two blocks share keys, and under a mask the first of them lets tiles pass that the second one needs:
//          the next ones come when both are done.
// Tile:    128x64, or 128x96 up to 192 columns; 8 warps: two warpgroups of 64 queries, and a third that copies.
//          Shared: 224 KiB and 176 B.
//          Needs d <= 256, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR <= 2 BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32.
//          sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 45_varlen what starts a kernel, 51_three the softmax, 99_unaided Heads.
using forward::blocks_for, forward::Causal, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::Head, forward::Heads, forward::hide_unseen, forward::load, forward::LOG2E, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::rows_map, forward::sink_of, forward::SoftmaxInTwo, forward::Tail,
    forward::Work;

constexpr int HEAD_DIM = 256;
// A tile is panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANEL_COLS = 64, PANEL_ROW_BYTES = PANEL_COLS * 2;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. Products
// end at column COLUMNS: d is that at most, and what lies behind d is zeros.
template <class T, int BR, int BC, int WARPS, int STAGES, int COLUMNS_UP_TO = HEAD_DIM, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr int COLUMNS = COLUMNS_UP_TO, PANELS = COLUMNS / PANEL_COLS, ROW_BYTES = PANELS * PANEL_ROW_BYTES;
  static constexpr uint32_t O_BYTES = BR * 2 * PANEL_ROW_BYTES;  // two panels of it
  static constexpr uint32_t SMEM_BYTES =                         // and mbarriers and Works
      (BR + 2 * STAGES * BC) * ROW_BYTES + O_BYTES + (4 * STAGES + 2) * 8 + 2 * Work::BYTES;
  using Alone = Config<T, BR, BC, WARPS, STAGES, COLUMNS_UP_TO, 1>;
};

template <class C, class Mask>
using Schedule = forward::Schedule<C, Mask, false, true>;
template <class C>
using Smem = forward::Smem<C, C::ROW_BYTES, 1, C::O_BYTES>;

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem,
                                       SoftmaxInTwo<typename C::Element, C::BC>& softmax, float (&S_frag)[C::BC / 8][4],
                                       uint32_t (&P_frag)[C::BC / 16][4], float (&O_frag)[C::COLUMNS / 8][4],
                                       float (&normalise)[2], const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int PV_N_TILES = C::COLUMNS / 8;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles),
                 V_tiles = wgmma_descriptor(smem.V.tiles, BC * PANEL_ROW_BYTES);

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
    issue_QK<Element, C::COLUMNS, BR, BC>(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, !is_first);
    wgmma_commit();
  };
  int begin = 0, end = 0;                 // of the tiles of keys
  const auto release_Q = [&](int tile) {  // if no later tile needs it: the copy engine may bring the next one
    if (lane == 0 && tile == end - 1) mbarrier_arrive(smem.Q.empty_of(round));
  };
  const auto step = [&](int tile, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    release_Q(tile);
    if (may_be_masked) hide_unseen(S_frag, Mask(p), smem.told(round), tile);
    // SOFTMAX
    softmax.scale(S_frag, false, false);
    wgmma_wait<0>(O_frag, P_frag);  // safe to touch O and P: PV is done
    release(smem.V, tile - 1);
    softmax.weigh(S_frag, P_frag, false);
  };
  const auto finish = [&](int tile) {
    start_PV(tile, tile == begin);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    wgmma_wait<0>(O_frag, P_frag);                               // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  constexpr int HALF = 2 * PANEL_COLS / 8;  // of O's tiles of eight columns
  const auto store = [&] {
    // STORE  There is room for two panels of O: each warp writes them of its 16 rows, swizzled,
    //        waits until the copy engine has read them, and writes the others.
    const uint32_t warp_O = smem.more + warp * 16 * 2 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    const Work work = smem.told(round);
    const int sequence = work[Work::SEQUENCE], head = work[Work::HEAD] - sequence * p.heads;
    const int query = work[Work::QUERY] + warp * 16;
#pragma unroll
    for (int half = 0; half < C::PANELS; half += 2) {
      if (lane == 0) cp_async_bulk_wait_read<0>();  // safe to overwrite: shared memory has been read
      __syncwarp();                                 // for all lanes
      if (half == 0) {
        store_scaled_part<Element, 16, !Mask::IS_WHOLE, HALF>(lane_O, O_frag, 0, normalise);
      } else {
        store_scaled_part<Element, 16, !Mask::IS_WHOLE, PV_N_TILES - HALF>(lane_O, O_frag, HALF, normalise);
      }
      fence_proxy_async_shared();  // the copy engine will find what this lane has stored
      __syncwarp();                // safe to copy: all lanes have stored
      if (lane == 0) {
        for (int panel = 0; panel < 2 && half + panel < C::PANELS; ++panel)
          cp_async_bulk_tensor_store_4d(O_map, (half + panel) * PANEL_COLS, query, head, sequence,
                                        warp_O + panel * 16 * PANEL_ROW_BYTES);
        cp_async_bulk_commit();
      }
      __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
    }
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    release_Q(begin);
    hide_unseen(S_frag, Mask(p), work, begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.scale(S_frag, true, true);
    softmax.weigh(S_frag, P_frag, true);
    int tile = begin + 1;
    for (const int whole_end = work[Work::WHOLE_END]; tile < whole_end; ++tile) step(tile);
    for (; tile < end; ++tile) step(tile, true);
    finish(end - 1);
    store();
    ++round;
    smem.Q.wait_full(round);
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  if (lane == 0) cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  __syncwarp();
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int QK_N_TILES = BC / 8;                                // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = C::COLUMNS / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(C::BLOCKS == 1 || !Mask::GROWS, "two blocks share keys where both see the same");

  const Smem<C> smem;
  smem.name();
  smem_name(smem.more, C::O_BYTES, "O", PANEL_ROW_BYTES);
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  // LOAD  A block brings two of a tile's panels of K or V to both; the other brings its two here. Alone it brings all.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<false>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      const Heads heads(p);
      while (const auto queries = walk.next()) {
        const Head at = heads(queries.head);
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), 0, __float_as_int(sink_of(p, at)), at.sequence);
        load(smem, queries, at, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<C::BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<false>>();  // waits until the producer has given its registers back
  SoftmaxInTwo<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_frag[PV_K_TILES][4];
  float normalise[2];
  attend<C, Mask>(p, smem, softmax, S_frag, P_frag, O_frag, normalise, O_map);
  end_together<C::BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs without a mask, or fewer where there is less to
//         do. The pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy
//         engine where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask, true>(device, p)), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  if (p.causal) return start<typename C::Alone, Causal>(device, p);
  p.n_k % C::BC != 0 ? start<C, Tail>(device, p) : start<C, NoMask>(device, p);
}

}  // namespace
