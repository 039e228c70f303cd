// 49_d64: heads of 64 columns. A tile is half as large, so that four of K and of V are on their way; a pair shares them
// by rows.
// Before:  in 48 a row has two panels, one for each block of a pair to bring. With 64 columns it has one.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 160 KiB and 256 B.
//          Needs d = 64, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 38_seam release_Q, 43_window the softmax, 45_varlen what starts a kernel, 48_scores the
// scores.
using forward::blocks_for, forward::change_scores, forward::CONSUMER_REGISTERS, forward::end_together;
using forward::finish_rows, forward::hide_unseen, forward::LOG2E, forward::PRODUCER_REGISTERS, forward::Queries;
using forward::release_Q, forward::rows_map, forward::Schedule, forward::Score, forward::Softmax, forward::store_rows;
using forward::Work;

constexpr int HEAD_DIM = 64;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 64 halves = 128 B

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES>;

template <class C>
__device__ __forceinline__ void load(const ScoreParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  // LOAD  A block brings half of the rows of a tile of K or V to both; the other brings its own here. Alone it brings
  //       all.
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  smem.Q.expect(queries.round);
  const int head = queries.head % p.heads;
  const int kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile);
    ring.expect(tile);
    constexpr int ROWS = BC / BLOCKS;
    const int first = cluster_rank() * ROWS;
    cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + first * ROW_BYTES, map, 0,
                                      queries.in_K(tile) * BC + first, kv_head, sequence, ring.full_of(tile),
                                      (1 << BLOCKS) - 1);
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
                                       Softmax<typename C::Element, C::BC>& softmax, const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors: where the warpgroup's 64 rows of Q begin, and the tiles of K and V. Rows of V are the k dimension
  // (MN-major).
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
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
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    change_scores(S_frag, function, p, smem.told(round), tile);
    const bool looks = may_be_masked && hide_unseen(S_frag, Mask(p), smem.told(round), tile);
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false, looks);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(smem.V, tile - 1);
  };
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last, tile == begin);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    store_rows<Element, BR, !Mask::IS_WHOLE>(smem.Q.tiles + smem.Q.at(round), O_frag, normalise, smem.told(round),
                                             p.heads, O_map);
  };
  // The first block of a pair does not need the pair's last tile, the one on the other block's diagonal. Who releases
  // such a tile waits for it, and nobody else: a warp that came late would miss the phase. A branch and no loop, for
  // ptxas: of two shares one after the other it is one tile at most.
  const auto let_pass = [&](int up_to) {
    if (Mask::GROWS && threadIdx.x % 128 < BLOCKS && end < up_to) {
      smem.K.wait_full(up_to - 1);  // safe to release: it is not on its way any more
      release(smem.K, up_to - 1);
      smem.V.wait_full(up_to - 1);
      release(smem.V, up_to - 1);
    }
    __syncwarp();  // products take whole warps
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
      step(tile, P_even, P_odd, true);
      if (tile + 1 < end) step(tile + 1, P_odd, P_even, true);
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

template <class C, class Mask, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  const Function function(p);
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<Mask::IS_WHOLE>>();
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
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<Mask::IS_WHOLE>>();  // waits until the producer has given its registers back
  Softmax<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = function.scale * LOG2E;
  attend<C, Mask>(p, smem, function, softmax, O_map);
  end_together<BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask, class Function>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch_clusters(device, flash_attention<C, Mask, Function>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_function<C, Score>(
      p, [&]<class Config, class Mask, class Function>() { start<Config, Mask, Function>(device, p); });
}

}  // namespace
