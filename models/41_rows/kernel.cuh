// 41_rows: any number of queries and of keys, wherever their rows lie; and the log-sum-exp of each row.
// Before:  in 40 tensors are one piece, there are as many keys as queries, and both are a multiple of 128: no model
//          keeps to it.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 96 B.
//          Needs d = 128, rows that begin at multiples of 16 B, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] bf16; K, V: [batch, heads, n_k, d] bf16, in any strides.
//          LSE: [batch, heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

using Element = bf16;
// 38_seam spells this out, Smem and let_pass.
using forward::release_Q;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8 while a warp is careful
// Of a lane's weights of a row and tile: times values of 2^50 they fit into O's f32.
constexpr float SUM_LIMIT = 0x1p64f;
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR, int BC, int WARPS, int STAGES>
struct Config : forward::Tile<Element, BR, BC, WARPS, STAGES, 2> {
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8;  // and mbarriers
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, 0, forward::NothingTold>;

// Which scores are masked: those of keys past the end; under a causal mask, which ends with the last key for the last
// query, also those of keys after a query's own. 44_told spells these types out.
using forward::Causal, forward::NoMask, forward::Tail;

// Which queries next, and which keys they see. A head is `shares` of work, and clusters take those of all heads by
// turns (c, c + clusters, ...). A share is a pair of tiles of queries, or under a mask two: a head's longest and its
// shortest, its second longest and its second shortest ..., two by two equally long. A pair begins at an even tile; its
// second one may lie outside: it reads zeros and stores nothing.
template <class C, class Mask>
struct Schedule {
  static constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  int n_q, n_k, heads, q_tiles, pairs, shares;
  int head, share, heads_on, shares_on;  // this share of this head; and how much further on the next one is
  int in_share = -1, round = -1, q_tile = 0;
  int first = 0, kv_tiles = 0;  // what the pair copies; tiles of K and V are numbered since the block began
  // All of this block's queries see all of the tiles below `whole`, and some of those below `end`.
  int whole = 0, end = 0;

  __device__ __forceinline__ Schedule(const ForwardParams& p) : n_q(p.n_q), n_k(p.n_k), heads(p.batch * p.heads) {
    const int cluster = blockIdx.x / BLOCKS, clusters = gridDim.x / BLOCKS;
    q_tiles = (n_q + BR - 1) / BR;
    pairs = (q_tiles + 1) / BLOCKS;
    shares = Mask::GROWS ? (pairs + 1) / 2 : pairs;
    head = cluster / shares, heads_on = clusters / shares;  // the only divisions
    share = cluster % shares, shares_on = clusters % shares;
  }
  __device__ __forceinline__ int keys_of(int query) const {  // how many it sees; none if that is negative
    return Mask::GROWS ? query + 1 + n_k - n_q : n_k;
  }
  __device__ __forceinline__ int tiles_of(int tile) const {  // of keys; one, masked, for queries that see none
    return (max(keys_of(min((tile + 1) * BR, n_q) - 1), 1) + BC - 1) / BC;
  }
  __device__ __forceinline__ explicit operator bool() const { return head < heads; }
  __device__ __forceinline__ Schedule next() const {
    Schedule work = *this;
    work.first += kv_tiles;
    ++work.round;
    const bool has_second = Mask::GROWS && 2 * share + 1 < pairs;  // the pair in the middle is alone
    if (in_share == 1 || (in_share == 0 && !has_second)) {
      work.head += heads_on, work.share += shares_on;
      if (work.share >= shares) work.share -= shares, ++work.head;
      work.in_share = -1;
    }
    ++work.in_share;
    const int pair = Mask::GROWS && work.in_share == 0 ? pairs - 1 - work.share : work.share;
    work.q_tile = pair * BLOCKS + cluster_rank();
    work.kv_tiles = tiles_of(pair * BLOCKS + BLOCKS - 1);
    work.whole = work.first + min(keys_of(work.q_tile * BR), n_k) / BC;  // a second block may lie outside
    work.end = work.first + tiles_of(work.q_tile);
    return work;
  }
};

// A lane's share of two rows: their scores S become weights P = 2^(S * scale_log2 - max). `max` is the same in a row's
// four lanes; a careful warp looks first whether a score has outgrown it, and so does every warp on the first tile.
// Otherwise the sum of the weights tells: too large or infinite, and they are made again.
template <class T, int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / 16][4];
  float scale_log2;                     // exp(s * softmax_scale) = 2^(s * scale_log2)
  float max[2], sum[2], correction[2];  // [lane_row]; max in log2 units
  bool careful;                         // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                         // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin() {
    for (int lane_row = 0; lane_row < 2; ++lane_row) max[lane_row] = sum[lane_row] = 0;
    careful = false;
  }
  __device__ __forceinline__ void raise_max(float (&growth)[2], bool is_first) {  // by a row's, over its four lanes
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      growth[lane_row] = quad_max(growth[lane_row]);
      correction[lane_row] = ex2_approx(-fmaxf(growth[lane_row], 0.0f));  // 1 where nothing has grown
      if (!is_first) growth[lane_row] = fmaxf(growth[lane_row], 0.0f);
      if (growth[lane_row] == -INFINITY) growth[lane_row] = 0;  // a row that sees no key: its weights are 0
      max[lane_row] += growth[lane_row];
      sum[lane_row] *= correction[lane_row];
    }
  }
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first) {  // the whole warp: an exchange needs it
    const bool looks = careful || is_first;
    rescale = false;
    float tile_sum[2];
    if (looks) {
      float growth[2] = {lane_max(S, 0) * scale_log2 - max[0], lane_max(S, 1) * scale_log2 - max[1]};
      rescale = vote_any(is_first || fmaxf(growth[0], growth[1]) > RESCALE_ABOVE);
      if (rescale) raise_max(growth, is_first);
    }
    exp2_weights<T>(S, P, scale_log2, max, tile_sum);
    if (!looks && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT)) {
      rescale = careful = true;  // from now on
      float growth[2] = {lane_max(S, 0), lane_max(S, 1)};
      raise_max(growth, false);
      exp2_weights<T>(S, P, 1, growth, tile_sum);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
};

// What the thread that copies does, from beginning to end. Q, K and V are the rings of their tiles.
template <class C>
__device__ __forceinline__ void load(const ForwardParams& p, auto& work, const auto Q, const auto K, const auto V,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int BR = C::BR, BC = C::BC;
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here.
  int head = 0, sequence = 0;
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile);
    const uint32_t panel = cluster_rank(), target = ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d_multicast(target, map, panel * PANEL_COLS, (tile - work.first) * BC, head, sequence,
                                      ring.full_of(tile), 0b11);
  };
  while ((work = work.next())) {
    Q.claim(work.round);
    head = work.head % p.heads, sequence = work.head / p.heads;
    for (int panel = 0; panel < PANELS; ++panel)
      cp_async_bulk_tensor_4d(Q.tiles + Q.at(work.round) + panel * BR * PANEL_ROW_BYTES, Q_map, panel * PANEL_COLS,
                              work.q_tile * BR, head, sequence, Q.full_of(work.round));
    const int last = work.first + work.kv_tiles - 1;
    for (int tile = work.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
      if (tile <= last) request(K_map, K, tile);
      if (tile > work.first) request(V_map, V, tile - 1);
    }
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ForwardParams& p, auto& work, const auto Q, const auto K, const auto V,
                                       const TensorMap& O_map, uint32_t warp) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  const uint32_t lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(Q.tiles + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(K.tiles), V_tiles = wgmma_descriptor(V.tiles, BC * PANEL_ROW_BYTES);
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
    const uint64_t Q_here = wgmma_advance(Q_rows, Q.at(work.round)), K_here = wgmma_advance(K_tiles, K.at(tile));
    K.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK<Element, HEAD_DIM, BR, BC>(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto mask = [&](int tile) {
    if constexpr (Mask::HIDES) {
      // Of this tile's keys, how many a lane's first row sees. The second is 8 queries on.
      const int seen = work.keys_of(work.q_tile * BR + warp * 16 + lane / 4) - (tile - work.first) * BC;
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
    const uint64_t V_here = wgmma_advance(V_tiles, V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, tile > work.first);  // the first overwrites O
    wgmma_commit();
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool is_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(K, tile);
    if (is_masked) mask(tile);
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(V, tile - 1);
  };
  work = work.next();  // there is no cluster without work
  auto done = work;    // the round of which O is stored
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {  // beside PV: two exchanges complete a row's sum
      softmax.sum[lane_row] = quad_sum(softmax.sum[lane_row]);
      normalise[lane_row] = softmax.sum[lane_row] == 0 ? 0.0f : 1.0f / softmax.sum[lane_row];  // no key: O = 0
      const int query = work.q_tile * BR + warp * 16 + FragmentC::row(lane, 2 * lane_row);
      if (p.LSE != nullptr && lane % 4 == 0 && query < p.n_q)  // log(0) is -infinity
        st_global_f32(p.LSE + int64_t(work.head) * p.n_q + query,
                      softmax.max[lane_row] / LOG2E + logf(softmax.sum[lane_row]));
    }
    done = work;
    work = work.next();
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
    release(V, tile);
  };
  const auto store = [&] {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    const uint32_t warp_O = Q.tiles + Q.at(done.round) + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    store_scaled<Element, BR, Mask::GROWS>(lane_O, O_frag, normalise);
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * PANEL_COLS, done.q_tile * BR + warp * 16, done.head % p.heads,
                                      done.head / p.heads, warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };
  // The first block of a pair does not need the pair's last tile, the one on the other block's diagonal.
  const auto let_pass = [&](int copied) { forward::let_pass<Mask::GROWS, BLOCKS>(K, V, done.end, copied, release); };

  Q.wait_full(0);
  start_QK(0);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const int first = work.first, end = work.end;
    release(K, first);
    if (first >= work.whole) mask(first);
    softmax.begin();
    softmax.weigh(S_frag, P_even, true);
    release_Q(Q, work.round - 1);
    int tile = first + 1;
    for (; tile + 1 < work.whole; tile += 2) {
      step(tile, P_even, P_odd);
      step(tile + 1, P_odd, P_even);
    }
    for (; tile < end; tile += 2) {  // three at most
      step(tile, P_even, P_odd, tile >= work.whole);
      if (tile + 1 < end) step(tile + 1, P_odd, P_even, tile + 1 >= work.whole);
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if ((end - first) % 2 == 0) {
      finish(end - 1, P_odd);
    } else {
      finish(end - 1, P_even);
    }
    if (!work) break;
    let_pass(work.first);
    Q.wait_full(work.round);
    start_QK(work.first);
    store();                // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store();
  let_pass(work.first);
  release_Q(Q, done.round);
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ForwardParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");

  const uint32_t warp = threadIdx.x / 32;
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too
  Schedule<C, Mask> work(p);

  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) load<C>(p, work, smem.Q, smem.K, smem.V, Q_map, K_map, V_map);
    __syncwarp();    // the cluster's barrier takes whole warps
    cluster_sync();  // safe to end: as below
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  attend<C, Mask>(p, work, smem.Q, smem.K, smem.V, O_map, warp);
  cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
}

// Without any key O is 0.
__global__ void __launch_bounds__(HEAD_DIM) no_keys(ForwardParams p) {
  const int query = blockIdx.x % p.n_q, head = blockIdx.x / p.n_q % p.heads, sequence = blockIdx.x / p.n_q / p.heads;
  const ForwardParams::Strides& strides = p.O_strides;
  Element* const O_row =
      static_cast<Element*>(p.O) + sequence * strides.batch + head * strides.head + query * strides.row;
  if (int(threadIdx.x) < p.d) st_global_rounded(O_row + threadIdx.x, 0.0f);
  if (p.LSE != nullptr && threadIdx.x == 0) st_global_f32(p.LSE + blockIdx.x, -INFINITY);
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C>
void run(Device& device, const ForwardParams& p) {
  const uint32_t batch = p.batch, all_heads = p.heads, heads = batch * all_heads;
  const auto tile_map = [&](const void* tensor, const ForwardParams::Strides& strides, int n, uint32_t rows) {
    return tensor_map_4d(device, static_cast<const Element*>(tensor), {uint32_t(p.d), uint32_t(n), all_heads, batch},
                         {uint64_t(strides.row) * 2, uint64_t(strides.head) * 2, uint64_t(strides.batch) * 2},
                         {PANEL_COLS, rows, 1, 1});
  };
  if (p.n_k == 0) return launch(device, no_keys, dim3(p.n_q * heads), dim3(HEAD_DIM), 0, p);
  const uint32_t pairs = ((p.n_q + C::BR - 1) / C::BR + 1) / C::BLOCKS, sms = multiprocessors(device) / C::BLOCKS;
  const uint32_t shares = (p.causal ? (pairs + 1) / 2 : pairs) * heads;  // two pairs or one
  launch_clusters(device,
                  p.causal             ? flash_attention<C, Causal>
                  : p.n_k % C::BC != 0 ? flash_attention<C, Tail>
                                       : flash_attention<C, NoMask>,
                  dim3((shares < sms ? shares : sms) * C::BLOCKS), dim3(C::THREADS), C::BLOCKS, C::SMEM_BYTES, p,
                  tile_map(p.Q, p.Q_strides, p.n_q, C::BR), tile_map(p.K, p.K_strides, p.n_k, C::BC),
                  tile_map(p.V, p.V_strides, p.n_k, C::BC), tile_map(p.O, p.O_strides, p.n_q, 16));
}

}  // namespace
