// 57_room: O has a place of its own. So Q is asked for as soon as the last product has read it, and O leaves in two
// halves meanwhile.
// Before:  in 53 O leaves from Q's place, and the next Q comes when it has gone. Nobody multiplies then.
// Tile:    128x64, or 128x96 up to 192 columns; 8 warps: two warpgroups of 64 queries, and a third that copies.
//          Shared: 224 KiB and 144 B.
//          Needs d <= 256, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR <= 2 BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32.
//          sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 45_varlen what starts a kernel, 51_three the softmax.
using forward::blocks_for, forward::Causal, forward::CONSUMER_REGISTERS, forward::finish_rows, forward::load;
using forward::LOG2E, forward::NO_KEY, forward::NoMask, forward::PRODUCER_REGISTERS, forward::Queries;
using forward::rows_map, forward::SoftmaxInTwo, forward::Tail;

constexpr int HEAD_DIM = 256;
// A tile is panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANEL_COLS = 64, PANEL_ROW_BYTES = PANEL_COLS * 2;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. Products
// end at column COLUMNS: d is that at most, and what lies behind d is zeros.
template <class T, int BR, int BC, int WARPS, int STAGES, int COLUMNS_UP_TO = HEAD_DIM>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, 2> {
  static constexpr int COLUMNS = COLUMNS_UP_TO, PANELS = COLUMNS / PANEL_COLS, ROW_BYTES = PANELS * PANEL_ROW_BYTES;
  static constexpr uint32_t O_BYTES = BR * 2 * PANEL_ROW_BYTES;  // two panels of it
  static constexpr uint32_t SMEM_BYTES =                         // and mbarriers and Works
      (BR + 2 * STAGES * BC) * ROW_BYTES + O_BYTES + (4 * STAGES + 2) * 8 + 2 * forward::Message<8>::BYTES;
};

// What the thread that copies tells the others of each tile of queries, in shared memory beside Q: BEGIN to END, tiles
// of keys that some of the queries see; up to WHOLE_END, those that all see; COPIED, behind the last that the pair
// needs; QUERY, the first; HEAD and its SINK, f32; MORE, or else this is the end.
struct Work : forward::Message<8> {
  enum Word { BEGIN, END, WHOLE_END, COPIED, QUERY, HEAD, MORE, SINK };
};

// Which queries next, and which keys they see: 44's, but there are no windows, and the pair's last tile is told.
template <class C, class Mask>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  const ScoreParams& p;
  Mask mask;
  int pairs, shares;
  int head, share, heads_on, shares_on;  // this share of this head; and how much further on the next one is
  // Of the last queries: which of its share's pairs they are of, how many came before, and what that pair copies.
  int in_share = -1, round = -1, first = 0, kv_tiles = 0;

  __device__ __forceinline__ Schedule(const ScoreParams& p) : p(p), mask(p) {
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    pairs = forward::pairs_of<C>(p.n_q), shares = forward::shares_of<Mask>(pairs);
    head = cluster / shares, heads_on = clusters / shares;  // the only divisions
    share = cluster % shares, shares_on = clusters % shares;
  }
  __device__ __forceinline__ int tiles_up_to(int tile) const {  // at least one, masked, for queries that see none
    return (max(mask.end_of(min((tile + 1) * BR, mask.n_q) - 1), 1) + BC - 1) / BC;
  }
  __device__ __forceinline__ Queries next() {
    first += kv_tiles;
    ++round;
    const bool has_second = Mask::GROWS && 2 * share + 1 < pairs;  // the pair in the middle is alone
    if (in_share == 1 || (in_share == 0 && !has_second)) {
      head += heads_on, share += shares_on;
      if (share >= shares) share -= shares, ++head;
      in_share = -1;
    }
    ++in_share;
    const int pair = Mask::GROWS && in_share == 0 ? pairs - 1 - share : share;
    const int q_tile = pair * BLOCKS + cluster_rank();
    kv_tiles = tiles_up_to(pair * BLOCKS + BLOCKS - 1);
    return {head < p.batch * p.heads, round, head, q_tile, first, kv_tiles};
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work) const {
    const int first = queries.first, q_tile = queries.q_tile, head = queries.head;
    const float sink = p.sinks == nullptr ? NO_KEY : fmaxf(ld_global_f32(p.sinks + head % p.heads) * LOG2E, NO_KEY);
    work.tell({first, first + tiles_up_to(q_tile),
               first + min(mask.end_of(q_tile * BR), mask.n_k) / BC,  // a second block may lie outside
               first + queries.kv_tiles, q_tile * BR, head, true, __float_as_int(sink)});
  }
};

template <class C>
using Smem = forward::Smem<C, C::ROW_BYTES, 1, C::O_BYTES, Work>;

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem,
                                       SoftmaxInTwo<typename C::Element, C::BC>& softmax, float (&S_frag)[C::BC / 8][4],
                                       uint32_t (&P_frag)[C::BC / 16][4], float (&O_frag)[C::COLUMNS / 8][4],
                                       float (&normalise)[2], const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8, PV_N_TILES = C::COLUMNS / 8;
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
  const auto hide = [&](int tile) {
    if constexpr (Mask::HIDES) {
      const Work work = smem.told(round);
      if (tile < work[Work::WHOLE_END]) return;
      // Of this tile's keys, how many a lane's first row sees. The second is 8 queries on.
      const int query = work[Work::QUERY] + int(warp) * 16 + FragmentC::row(lane, 0);
      const int seen = Mask(p).end_of(query) - (tile - work[Work::BEGIN]) * BC;
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          const int more = Mask::GROWS ? i / 2 * 8 : 0;
          if (key_tile * 8 + FragmentC::col(lane, i) >= seen + more) S_frag[key_tile][i] = -INFINITY;
        }
      }
    }
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
    if (may_be_masked) hide(tile);
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
    const int head = work[Work::HEAD], query = work[Work::QUERY] + warp * 16;
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
          cp_async_bulk_tensor_store_4d(O_map, (half + panel) * PANEL_COLS, query, head % p.heads, head / p.heads,
                                        warp_O + panel * 16 * PANEL_ROW_BYTES);
        cp_async_bulk_commit();
      }
      __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
    }
  };
  // The first block of a pair does not need the pair's last tiles, those on the other block's diagonal, and lets them
  // pass. They take all stages, so that every warp has to see their phases, before the next ones begin.
  const auto let_pass = [&](int up_to) {
    if (Mask::GROWS && end < up_to) {
      for (int tile = end; tile < up_to; ++tile) smem.K.wait_full(tile), smem.V.wait_full(tile);
      named_barrier_sync(1 + warpgroup, 128);  // safe to release: all warps have seen them
      for (int tile = end; tile < up_to; ++tile) release(smem.K, tile), release(smem.V, tile);
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
    hide(begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.scale(S_frag, true, true);
    softmax.weigh(S_frag, P_frag, true);
    int tile = begin + 1;
    for (const int whole_end = work[Work::WHOLE_END]; tile < whole_end; ++tile) step(tile);
    for (; tile < end; ++tile) step(tile, true);
    finish(end - 1);
    let_pass(work[Work::COPIED]);
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
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QK_N_TILES = BC / 8;                                // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = C::COLUMNS / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR <= STAGES * BC,
                "of a pair one block needs BR / BC tiles of keys more than the other, which lie there together");

  const Smem<C> smem;
  smem.name();
  smem_name(smem.more, C::O_BYTES, "O", PANEL_ROW_BYTES);
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  // LOAD  A block brings two of a tile's panels of K or V to both; the other brings its two here.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<Mask::IS_WHOLE>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round));
        load(p, smem, queries, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    __syncwarp();    // the cluster's barrier takes whole warps
    cluster_sync();  // safe to end: as below
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<Mask::IS_WHOLE>>();  // waits until the producer has given its registers back
  SoftmaxInTwo<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_frag[PV_K_TILES][4];
  float normalise[2];
  attend<C, Mask>(p, smem, softmax, S_frag, P_frag, O_frag, normalise, O_map);
  cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  if (p.causal) return start<C, Causal>(device, p);
  p.n_k % C::BC != 0 ? start<C, Tail>(device, p) : start<C, NoMask>(device, p);
}

}  // namespace
