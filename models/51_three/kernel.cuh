// 51_three: a third warpgroup of queries: while one multiplies, two make exponentials. A block works alone.
// Before:  in 49 there are two, each with two sets of weights, which 160 registers a thread do not hold.
// Tile:    192x128, 12 warps: three warpgroups of 64 queries, and a fourth that copies.  Shared: 176 KiB and 256 B.
//          Needs d = 64, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 38_seam release_Q, 43_window the softmax, 45_varlen what starts a kernel, 48_scores the
// scores.
using forward::blocks_for, forward::change_scores, forward::finish_rows, forward::hide_unseen, forward::LOG2E;
using forward::Queries, forward::release_Q, forward::rows_map, forward::Schedule, forward::Score, forward::store_rows;
using forward::Work;

constexpr int HEAD_DIM = 64;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 64 halves = 128 B

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, 1> {
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config;

  // There is no cluster.
  __device__ __forceinline__ static int rank() { return 0; }
  __device__ __forceinline__ static uint32_t cluster() { return blockIdx.x; }
  __device__ __forceinline__ static uint32_t clusters() { return gridDim.x; }
};

// A lane's share of two rows: their scores S become exponents S * scale_log2 - max, and those weights P = 2^S: two
// steps, of which only the second needs P.
template <class T, int BC>
struct SoftmaxInTwo : forward::Softmax<T, BC> {
  using Base = forward::Softmax<T, BC>;
  using Base::careful, Base::limit, Base::max, Base::rescale, Base::scale_log2, Base::sum;
  using typename Base::Scores, typename Base::Weights;

  // The whole warp: an exchange needs it. `may_begin`: a row may meet its first key here.
  __device__ __forceinline__ void scale(Scores S, bool is_first, bool may_begin) {
    rescale = false;
    if (careful || is_first || may_begin) Base::look(S, is_first, {0, 0});
    scale_scores(S, scale_log2, max);
    rescale &= !is_first;  // then O is 0
  }
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first) {
    float tile_sum[2];
    exp2_weights<T>(S, P, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= limit)) Base::weigh_again(S, P, tile_sum);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
  }
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES>;

template <class C>
__device__ __forceinline__ void load(const ScoreParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  // LOAD
  constexpr int BR = C::BR, BC = C::BC;
  smem.Q.expect(queries.round);
  const int head = queries.head % p.heads;
  const int kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile);
    ring.expect(tile);
    cp_async_bulk_tensor_4d(ring.tiles + ring.at(tile), map, 0, queries.in_K(tile) * BC, kv_head, sequence,
                            ring.full_of(tile));
  };
  const int last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.V, tile - 1);
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask, class Function>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem, const Function& function,
                                       SoftmaxInTwo<typename C::Element, C::BC>& softmax, float (&S_frag)[C::BC / 8][4],
                                       uint32_t (&P_frag)[C::BC / 16][4], float (&O_frag)[HEAD_DIM / 8][4],
                                       float (&normalise)[2], const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors: where the warpgroup's 64 rows of Q begin, and the tiles of K and V. Rows of V are the k dimension
  // (MN-major).
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_of(tile));
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
  const auto start_PV = [&](int tile, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, !is_first);
    wgmma_commit();
  };
  int begin = 0, end = 0;  // of the tiles of keys
  const auto step = [&](int tile, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    change_scores(S_frag, function, p, smem.told(round), tile);
    const bool may_begin = may_be_masked && hide_unseen(S_frag, Mask(p), smem.told(round), tile);
    // SOFTMAX
    softmax.scale(S_frag, false, may_begin);
    wgmma_wait<0>(O_frag, P_frag);  // safe to touch O and P: PV is done
    release(smem.V, tile - 1);
    softmax.weigh(S_frag, P_frag, false);
  };
  const auto finish = [&](int tile) {
    start_PV(tile, tile == begin);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_frag);           // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    store_rows<Element, BR, !Mask::IS_WHOLE>(smem.Q.tiles + smem.Q.at(round), O_frag, normalise, smem.told(round),
                                             p.heads, O_map);
  };
  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    change_scores(S_frag, function, p, work, begin);
    hide_unseen(S_frag, Mask(p), work, begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.scale(S_frag, true, true);
    softmax.weigh(S_frag, P_frag, true);
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = work[Work::WHOLE_END]; tile < whole_end; ++tile) step(tile);
    }
    for (; tile < end; ++tile) step(tile, true);
    finish(end - 1);
    ++round;
    smem.Q.wait_full(round);
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    store(round - 1);       // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  // 512 threads start with 128 registers each. Of four warpgroups: 4 x 128 = 32 + 3 x 160.
  constexpr int PRODUCER_REGISTERS = 32, CONSUMER_REGISTERS = 160;

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  const Function function(p);
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), p, function.scale);
        load(p, smem, queries, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  SoftmaxInTwo<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = function.scale * LOG2E;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_frag[PV_K_TILES][4];
  float normalise[2];
  attend<C, Mask>(p, smem, function, softmax, S_frag, P_frag, O_frag, normalise, O_map);
}

// LAUNCH  As many blocks as run at the same time, one per SM, or fewer where there is less to do. The pointers of `p`
//         belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine where rows end:
//         what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask, class Function>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch(device, flash_attention<C, Mask, Function>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS),
         C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
         map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
         map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_function<C, Score>(
      p, [&]<class Config, class Mask, class Function>() { start<Config, Mask, Function>(device, p); });
}

}  // namespace
