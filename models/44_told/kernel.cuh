// 44_told: the thread that copies finds out which queries come next and tells the others, in shared memory beside Q.
// Before:  in 43 every thread computes the schedule for itself, and keeps it in registers while it has few to spare.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 160 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] bf16; K, V: [batch, kv_heads, n_k, d] bf16, in any strides.
//          LSE: [batch, heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

using Element = bf16;
// 43_window spells these out, 38_seam release_Q, and 41_rows what starts a kernel.
using forward::LOG2E, forward::release_Q, forward::Softmax;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr int BLOCKS = 2;                  // of a cluster: they share K and V
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * 32;  // and mbarriers and Works
};

// A mask says which keys queries see: i is the one of key i + n_k - n_q. Without one those are all, and they fill
// their tiles; under any other keys past the end are hidden. A causal one ends with the last key for the last query,
// and hides keys after a query's own; a window those far after it, and far before it.
struct NoMask {
  static constexpr bool HIDES = false, IS_WHOLE = true;    // some keys of a tile; every query sees all keys
  static constexpr bool GROWS = false, IS_WINDOW = false;  // a query sees a key more than the one before; two sides
  int n_q, n_k, left, right;  // of a window: as many as there are, where it has no such side

  __device__ __forceinline__ NoMask(const ModelParams& p)
      : n_q(p.n_q), n_k(p.n_k), left(p.left < 0 ? n_k : p.left), right(p.right < 0 ? n_q : p.right) {}
  __device__ __forceinline__ int first_of(int) const { return 0; }  // key that a query sees
  __device__ __forceinline__ int end_of(int) const { return n_k; }  // behind the last one; it sees none if not positive
};
struct Tail : NoMask {
  static constexpr bool HIDES = true;
  using NoMask::NoMask;
};
struct Causal : Tail {
  static constexpr bool IS_WHOLE = false, GROWS = true;
  using Tail::Tail;
  __device__ __forceinline__ int end_of(int query) const { return query + 1 + n_k - n_q; }
};
struct Window : Tail {
  static constexpr bool IS_WHOLE = false, IS_WINDOW = true;
  using Tail::Tail;
  __device__ __forceinline__ int first_of(int query) const { return max(query + n_k - n_q - left, 0); }
  __device__ __forceinline__ int end_of(int query) const { return min(query + 1 + n_k - n_q + right, n_k); }
};

// What the thread that copies tells the others of each tile of queries, in shared memory beside Q: BEGIN to END, tiles
// of keys that some of the queries see; WHOLE_BEGIN to WHOLE_END, those that all see, so by the first of them every row
// has met a key; ZERO, the number of key 0's tile, copied or not; QUERY, the first; HEAD; MORE, or else this is the
// end.
struct Work {
  enum Word { BEGIN, END, WHOLE_BEGIN, WHOLE_END, ZERO, QUERY, HEAD, MORE, WORDS };
  static constexpr int BYTES = WORDS * 4;
  uint32_t address;

  __device__ __forceinline__ int operator[](Word word) const { return int(ld_shared_b32(address + word * 4)); }
  __device__ __forceinline__ void tell(const int (&words)[WORDS]) const {
    for (int i = 0; i < WORDS; i += 4)
      st_shared_v4(address + i * 4,
                   {uint32_t(words[i]), uint32_t(words[i + 1]), uint32_t(words[i + 2]), uint32_t(words[i + 3])});
  }
  __device__ __forceinline__ bool is_masked(int tile, bool in_window) const {
    return (in_window && tile < (*this)[WHOLE_BEGIN]) || tile >= (*this)[WHOLE_END];
  }
};

// A tile of queries, or none at the end of the walk, and what its pair copies: tiles of K and V, numbered since the
// block began, from tile `skipped` of K on.
struct Queries {
  bool are_left;
  int round, head, q_tile, first, kv_tiles, skipped;

  __device__ __forceinline__ explicit operator bool() const { return are_left; }
  __device__ __forceinline__ int in_K(int tile) const { return tile - first + skipped; }  // where a tile lies there
};

// Which queries next, and which keys they see. A head is `shares` of work, and clusters take those of all heads by
// turns (c, c + clusters, ...). A share is a pair of tiles of queries, or under a mask two: a head's longest and its
// shortest, its second longest and its second shortest ..., two by two equally long. A pair begins at an even tile; its
// second one may lie outside: it reads zeros and stores nothing.
template <class C, class Mask>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  const ModelParams& p;
  Mask mask;
  int pairs, shares;
  int head, share, heads_on, shares_on;  // this share of this head; and how much further on the next one is
  // Of the last queries: which of its share's pairs they are of, how many came before, and what that pair copies.
  int in_share = -1, round = -1, first = 0, kv_tiles = 0;

  __device__ __forceinline__ Schedule(const ModelParams& p) : p(p), mask(p) {
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    pairs = ((p.n_q + BR - 1) / BR + 1) / BLOCKS;
    shares = Mask::GROWS ? (pairs + 1) / 2 : pairs;
    head = cluster / shares, heads_on = clusters / shares;  // the only divisions
    share = cluster % shares, shares_on = clusters % shares;
  }
  __device__ __forceinline__ int last_query(int tile) const { return min((tile + 1) * BR, mask.n_q) - 1; }
  __device__ __forceinline__ int tiles_before(int tile) const {
    return mask.first_of(min(tile * BR, mask.n_q - 1)) / BC;
  }
  __device__ __forceinline__ int tiles_up_to(int tile) const {  // at least one, masked, for queries that see none
    return (max(mask.end_of(last_query(tile)), 1) + BC - 1) / BC;
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
    const int q_tile = pair * BLOCKS + cluster_rank(), skipped = tiles_before(pair * BLOCKS);
    kv_tiles = tiles_up_to(pair * BLOCKS + BLOCKS - 1) - skipped;
    return {head < p.batch * p.heads, round, head, q_tile, first, kv_tiles, skipped};
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work) const {
    const int zero = queries.first - queries.skipped, q_tile = queries.q_tile;
    work.tell({zero + tiles_before(q_tile), zero + tiles_up_to(q_tile),
               Mask::IS_WINDOW ? zero + mask.first_of(last_query(q_tile)) / BC + 1 : 0,
               zero + min(mask.end_of(q_tile * BR), mask.n_k) / BC,  // a second block may lie outside
               zero, q_tile * BR, queries.head, true});
  }
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, 0, Work>;

template <class C>
__device__ __forceinline__ void load(const ModelParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here.
  constexpr int BR = C::BR, BC = C::BC;
  smem.Q.expect(queries.round);
  const int head = queries.head % p.heads;
  const int kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  for (int panel = 0; panel < PANELS; ++panel)
    cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round) + panel * BR * PANEL_ROW_BYTES, Q_map,
                            panel * PANEL_COLS, queries.q_tile * BR, head, sequence, smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile);
    ring.expect(tile);
    const uint32_t panel = cluster_rank(), target = ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d_multicast(target, map, panel * PANEL_COLS, queries.in_K(tile) * BC, kv_head, sequence,
                                      ring.full_of(tile), 0b11);
  };
  const int last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.V, tile - 1);
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ModelParams& p, const Smem<C>& smem, Softmax<Element, C::BC>& softmax,
                                       const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
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
    if constexpr (Mask::HIDES) {
      // Of this tile's keys, the first that a lane's row sees, and behind the last.
      const Work work = smem.told(round);
      const Mask mask(p);
      const int first_key = (tile - work[Work::ZERO]) * BC;
      int from[2], to[2];
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        const int query = work[Work::QUERY] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
        from[lane_row] = mask.first_of(query) - first_key;
        to[lane_row] = mask.end_of(query) - first_key;
      }
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          const int key = key_tile * 8 + FragmentC::col(lane, i);
          if (key >= to[i / 2] || (Mask::IS_WINDOW && key < from[i / 2])) S_frag[key_tile][i] = -INFINITY;
        }
      }
    }
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
    const Mask mask(p);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {  // beside PV: two exchanges complete a row's sum
      softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row]);
      const int query = work[Work::QUERY] + warp * 16 + FragmentC::row(lane, 2 * lane_row);
      const bool has_keys = Mask::IS_WHOLE || mask.first_of(query) < mask.end_of(query);
      normalise[lane_row] = has_keys ? 1.0f / softmax.sum[lane_row] : 0.0f;  // no key: O = 0
      if (p.LSE != nullptr && lane % 4 == 0 && query < p.n_q)                // log(0) is -infinity
        st_global_f32(p.LSE + int64_t(work[Work::HEAD]) * p.n_q + query,
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
    store_scaled<Element, BR, !Mask::IS_WHOLE>(lane_O, O_frag, normalise);
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      const Work work = smem.told(round);
      const int head = work[Work::HEAD];
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, work[Work::QUERY] + warp * 16, head % p.heads,
                                      head / p.heads, warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };
  // The first block of a pair does not need the pair's last tile, the one on the other block's diagonal; in a window
  // the second one does not need the first. Who releases such a tile waits for it, and nobody else: a warp that came
  // late would miss the phase. A branch and no loop, for ptxas: of two shares one after the other it is one tile at
  // most.
  const auto let_pass = [&](int up_to) {
    if (!Mask::IS_WHOLE && threadIdx.x % 128 < BLOCKS && end < up_to) {
      smem.K.wait_full(up_to - 1);  // safe to release: it is not on its way any more
      release(smem.K, up_to - 1);
      smem.V.wait_full(up_to - 1);
      release(smem.V, up_to - 1);
    }
    __syncwarp();  // products take whole warps
  };

  smem.Q.wait_full(0);
  if (Mask::IS_WINDOW) let_pass(smem.told(0)[Work::BEGIN]);
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
    let_pass(smem.told(round)[Work::BEGIN]);  // or all
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    store(round - 1);       // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ModelParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");
  // 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240, or
  // 40 + 2 x 232, where the one that copies has more to find out.
  constexpr int PRODUCER_REGISTERS = Mask::IS_WHOLE ? 24 : 40, CONSUMER_REGISTERS = Mask::IS_WHOLE ? 240 : 232;

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
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
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  Softmax<Element, C::BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  attend<C, Mask>(p, smem, softmax, O_map);
  cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C>
void run(Device& device, const ModelParams& p) {
  const uint32_t heads = p.batch * p.heads;
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return forward::rows_map<Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  if (p.n_k == 0) return forward::start_no_keys<Element, HEAD_DIM>(device, p);
  const uint32_t pairs = ((p.n_q + C::BR - 1) / C::BR + 1) / C::BLOCKS, sms = multiprocessors(device) / C::BLOCKS;
  const bool is_window = p.left >= 0 || p.right > 0;
  const uint32_t shares = (p.causal && !is_window ? (pairs + 1) / 2 : pairs) * heads;  // two pairs or one
  launch_clusters(device,
                  is_window            ? flash_attention<C, Window>
                  : p.causal           ? flash_attention<C, Causal>
                  : p.n_k % C::BC != 0 ? flash_attention<C, Tail>
                                       : flash_attention<C, NoMask>,
                  dim3((shares < sms ? shares : sms) * C::BLOCKS), dim3(C::THREADS), C::BLOCKS, C::SMEM_BYTES, p,
                  map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR), map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

}  // namespace
