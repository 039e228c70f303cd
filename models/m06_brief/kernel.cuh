// m06_brief: a row's logarithm and its quotient are an instruction each, of the special-function unit.
// Before:  in m01_middles they are some forty, where a tile of queries ends and a warp has nothing else to do.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 96 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32.
//          sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 43_window the softmax, 41_rows what starts a kernel, 99_unaided Divisor.
using forward::Causal, forward::Divisor, forward::LOG2E, forward::NoMask, forward::NO_KEY, forward::release_Q;
using forward::rows_map, forward::Softmax, forward::Tail;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LN2 = 0.693147180559945309f;
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. Products
// end at column COLUMNS: d is that at most, and what lies behind d is zeros.
template <class T, int BR, int BC, int WARPS, int STAGES, int COLUMNS_UP_TO = HEAD_DIM, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr int COLUMNS = COLUMNS_UP_TO;
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8;  // and mbarriers
  using Alone = Config<T, BR, BC, WARPS, STAGES, COLUMNS_UP_TO, 1>;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, 0, forward::NothingTold>;

// Under a mask a share of work is two tiles of queries, one after the other: a head's longest and its shortest, its
// second longest and its second shortest ..., two by two equally long. Of an odd number the one in the middle is left:
// so two heads are dealt out `together`, and one of their shares is both middles.
struct Shares {
  int tiles;

  __host__ __device__ __forceinline__ int of(int heads) const { return (heads * tiles + 1) / 2; }
  __device__ __forceinline__ int together() const { return 1 + tiles % 2; }
  // Of the two in a share: which head of those together, and which of its tiles.
  __device__ __forceinline__ int head(int share, int in_share) const { return share + in_share > tiles / 2; }
  __device__ __forceinline__ int tile(int share, int in_share) const {
    const int pair = share > tiles / 2 ? share - tiles / 2 - 1 : share;
    return in_share == 0 ? tiles - 1 - pair : pair;
  }
};

// Which queries next, and which keys they see; every thread finds out for itself. Clusters take the shares of all heads
// by turns (c, c + clusters, ...). Without a mask a share is a pair of tiles of queries, one for each of a cluster's
// blocks, which see the same keys; the second may lie outside: it reads zeros and stores nothing. Under a mask blocks
// work alone.
template <class C, class Mask>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC;
  Mask mask;
  Shares shares;
  int all, heads, share, heads_on, shares_on;           // this share of these heads; and how much further the next one
  int in_share = -1, round = -1, head = 0, q_tile = 0;  // which of its share's tiles the last one was; its number
  int first = 0, kv_tiles = 0;                          // the keys: tiles of K and V are numbered since the block began
  int whole = 0;  // all of the block's queries see all of the tiles below this one

  __device__ __forceinline__ Schedule(const ScoreParams& p) : mask(p), shares{forward::pairs_of<C>(p.n_q)} {
    all = Mask::GROWS ? shares.of(shares.together()) : shares.tiles;
    const int cluster = C::cluster(), clusters = C::clusters();
    heads = cluster / all, heads_on = clusters / all;
    share = cluster % all, shares_on = clusters % all;
  }
  __device__ __forceinline__ int tiles_up_to(int tile) const {  // at least one, masked, for queries that see none
    return (max(mask.end_of(min((tile + 1) * BR, mask.n_q) - 1), 1) + BC - 1) / BC;
  }
  __device__ __forceinline__ Schedule next() const {
    Schedule work = *this;
    work.first += kv_tiles;
    ++work.round;
    if (in_share == Mask::GROWS) {
      work.heads += heads_on, work.share += shares_on;
      if (work.share >= all) work.share -= all, ++work.heads;
      work.in_share = -1;
    }
    ++work.in_share;
    work.head = Mask::GROWS ? work.heads * shares.together() + shares.head(work.share, work.in_share) : work.heads;
    work.q_tile = Mask::GROWS ? shares.tile(work.share, work.in_share) : work.share * C::BLOCKS + C::rank();
    work.kv_tiles = tiles_up_to(work.q_tile);
    work.whole = work.first + min(mask.end_of(work.q_tile * BR), mask.n_k) / BC;
    return work;
  }
};

// What the thread that copies does, from beginning to end.
template <class C, class Mask>
__device__ __forceinline__ void load(const ScoreParams& p, const Smem<C>& smem, const TensorMap& Q_map,
                                     const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  Schedule<C, Mask> work(p);
  const Divisor heads{uint32_t(p.heads)}, group{uint32_t(p.heads / p.kv_heads)};
  int kv_head = 0, sequence = 0;
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both.
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile);
    for (uint32_t panel = C::rank(); panel < PANELS; panel += BLOCKS) {
      cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES, map,
                                        panel * PANEL_COLS, (tile - work.first) * BC, kv_head, sequence,
                                        ring.full_of(tile), (1 << BLOCKS) - 1);
    }
  };
  for (work = work.next(); work.head < p.batch * p.heads; work = work.next()) {
    smem.Q.claim(work.round);
    sequence = heads.quotient(work.head);
    const int head = work.head - sequence * p.heads;
    kv_head = group.quotient(head);
    for (int panel = 0; panel < PANELS; ++panel)
      cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(work.round) + panel * BR * PANEL_ROW_BYTES, Q_map,
                              panel * PANEL_COLS, work.q_tile * BR, head, sequence, smem.Q.full_of(work.round));
    const int last = work.first + work.kv_tiles - 1;
    for (int tile = work.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
      if (tile <= last) request(K_map, smem.K, tile);
      if (tile > work.first) request(V_map, smem.V, tile - 1);
    }
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                                // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = C::COLUMNS / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  Schedule<C, Mask> work(p);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles),
                 V_tiles = wgmma_descriptor(smem.V.tiles, BC * PANEL_ROW_BYTES);
  Softmax<Element, BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  using Weights = typename Softmax<Element, BC>::Weights;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];    // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), threadIdx.x % 128);
  };
  const auto start_QK = [&](int tile) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(work.round));
    const uint64_t K_here = wgmma_advance(K_tiles, smem.K.at(tile));
    smem.K.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<Element, C::COLUMNS, BR, BC>(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto hide = [&](int tile) {
    if constexpr (Mask::HIDES) {
      // Of this tile's keys, how many a lane's first row sees. The second is 8 queries on.
      const int query = work.q_tile * BR + int(warp) * 16 + FragmentC::row(lane, 0);
      const int seen = work.mask.end_of(query) - (tile - work.first) * BC;
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          const int more = Mask::GROWS ? i / 2 * 8 : 0;
          if (key_tile * 8 + FragmentC::col(lane, i) >= seen + more) S_frag[key_tile][i] = -INFINITY;
        }
      }
    }
  };
  const auto start_PV = [&](int tile, Weights P_frag) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, tile > work.first);  // the first overwrites O
    wgmma_commit();
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool is_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    if (is_masked) hide(tile);
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false, false);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(smem.V, tile - 1);
  };
  work = work.next();  // there is no cluster without work
  auto done = work;    // the round of which O is stored
  const Divisor heads{uint32_t(p.heads)};
  const auto sink_of_head = [&] {  // in log2 units, as maxima are
    return p.sinks == nullptr
               ? NO_KEY
               : fmaxf(ld_global_f32(p.sinks + work.head - heads.quotient(work.head) * p.heads) * LOG2E, NO_KEY);
  };
  float sink = sink_of_head(), normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last);
    // Beside PV: two exchanges complete a row's sum. Without a key O is 0, and so is the sum, but for a sink.
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int query = work.q_tile * BR + int(warp) * 16 + FragmentC::row(lane, 2 * lane_row);
      softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row]);
      normalise[lane_row] = Mask::IS_WHOLE || work.mask.end_of(query) > 0 ? rcp_approx(softmax.sum[lane_row]) : 0.0f;
    }
    done = work;
    work = work.next();
    sink = sink_of_head();
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&] {
    if (p.LSE != nullptr && lane % 4 < 2) {  // of four lanes with the same two rows: one row each
      const int lane_row = lane % 4, query = done.q_tile * BR + int(warp) * 16 + FragmentC::row(lane, 2 * lane_row);
      const float largest = lane_row == 0 ? softmax.largest(0) : softmax.largest(1);
      const float sum = lane_row == 0 ? softmax.sum[0] : softmax.sum[1];
      if (query < p.n_q) st_global_f32(p.LSE + int64_t(done.head) * p.n_q + query, (largest + lg2_approx(sum)) * LN2);
    }
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    const uint32_t warp_O = smem.Q.tiles + smem.Q.at(done.round) + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    store_scaled<Element, BR, !Mask::IS_WHOLE>(lane_O, O_frag, normalise);
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      const int sequence = heads.quotient(done.head), head = done.head - sequence * p.heads;
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, done.q_tile * BR + warp * 16, head, sequence,
                                      warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };

  smem.Q.wait_full(0);
  start_QK(0);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const int first = work.first, whole = work.whole, end = first + work.kv_tiles;
    release(smem.K, first);
    if (first >= whole) hide(first);
    softmax.begin(sink, lane % 4 == 0);
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(smem.Q, work.round - 1);
    int tile = first + 1;
    for (; tile + 1 < whole; tile += 2) {
      step(tile, P_even, P_odd);
      step(tile + 1, P_odd, P_even);
    }
    if (Mask::HIDES && tile + 1 < end) {  // of at most three that are left
      step(tile, P_even, P_odd, tile >= whole);
      step(tile + 1, P_odd, P_even, true);
      tile += 2;
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if (tile < end) {
      step(tile, P_even, P_odd, true);
      finish(tile, P_odd);
    } else {
      finish(end - 1, P_even);
    }
    if (work.head >= p.batch * p.heads) break;
    smem.Q.wait_full(work.round);
    start_QK(work.first);
    store();                // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store();
  release_Q(smem.Q, done.round);
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "at most two tiles of keys are seen by some of the queries and not by all");
  static_assert(C::BLOCKS == 1 || !Mask::GROWS, "two blocks share keys where both see the same");

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load<C, Mask>(p, smem, Q_map, K_map, V_map);
    __syncwarp();  // the cluster's barrier takes whole warps
    forward::end_together<C::BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  attend<C, Mask>(p, smem, O_map);
  forward::end_together<C::BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs without a mask, or fewer where there is less to
//         do. The pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy
//         engine where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  const Shares shares{forward::pairs_of<C>(p.n_q)};
  const uint32_t all = Mask::GROWS ? shares.of(p.batch * p.heads) : shares.tiles * p.batch * p.heads;
  const uint32_t most = multiprocessors(device) / C::BLOCKS, clusters = all < most ? all : most;
  launch_clusters(device, flash_attention<C, Mask>, dim3(clusters * C::BLOCKS), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
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
