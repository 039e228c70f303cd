// m04_readers: two threads read each list, one asks for K and one for V; they look at the next list ahead.
// Before:  in 59_tiles one thread finds out where each tile of keys lies and asks for K and for V: tiles come late.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 196 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. sinks: [heads] f32, or null. Lists and stencils: BlockParams, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 48_scores spells these out, 44_told what is told, 43_window the softmax, 45_varlen what starts a kernel.
using forward::blocks_for, forward::Causal, forward::change_scores, forward::end_together, forward::finish_rows;
using forward::Head, forward::hide_unseen, forward::let_pass, forward::load, forward::LOG2E, forward::NoMask;
using forward::Queries, forward::release_Q, forward::rows_map, forward::Schedule, forward::Score, forward::sink_of;
using forward::Softmax, forward::store_rows, forward::Tail, forward::Work;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;

// Half a tile of keys. A stencil says which of 128 queries see which of them: [128][2] words, a bit for each pair.
constexpr int HALF = 64;
constexpr uint32_t STENCIL_BYTES = 128 * HALF / 8;

// Of a list the tiles in part: there each half has a stencil in shared memory. They stand behind the whole ones, so a
// row may meet its first key in one of them only where there is no whole one.
struct Listed : Tail {
  static constexpr bool IS_WHOLE = false, IS_WINDOW = true;  // keys may be hidden anywhere
  using Tail::Tail;
};

// 384 threads start with 168 registers each. Of three warpgroups: 3 x 168 = 56 + 2 x 224. Who reads lists has a lot to
// remember.
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
// Blocks take turns at lists, the longest one of a head first, or AS_THEY_COME.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2, bool AS_THEY_COME_ = false>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr bool AS_THEY_COME = AS_THEY_COME_;
  static constexpr uint32_t STENCILS_BYTES = STAGES * 2 * STENCIL_BYTES;
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + STENCILS_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // mbarriers, Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1, AS_THEY_COME>;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, C::STENCILS_BYTES>;

// Which queries next, and the list of blocks that they meet. A tile of keys is a piece of 128 keys or two of 64, each
// from anywhere. A number of a list is an answer of memory to wait for, and says where the next question lies: so both
// are asked ahead, the list while the one before it is on its way, its pieces, but for the first, a tile before they
// are needed.
template <class C>
struct Lists {
  const BlockParams& p;
  const int rows = min(p.block_keys, C::BC), each = p.block_keys / rows;  // keys of a piece, and pieces of a block
  struct List {
    int head, q_tile, number, blocks, whole;
    Head at;
  } ahead = {};
  Head at = {};
  int round = -1, first = 0, kv_tiles = 0, whole = 0;  // of the tiles of keys those that all queries see stand first
  int number = 0, block = 0, part = 0, blocks = 0;     // of the list, and of the next piece in it

  __device__ __forceinline__ Lists(const BlockParams& p) : p(p) { look(); }
  // For the list of the next round.
  __device__ __forceinline__ void look() {
    const int tiles = (p.n_q + C::BR - 1) / C::BR, work = (round + 1) * gridDim.x + blockIdx.x;
    // All tiles of a head before the next head: its keys and values stay in L2.
    ahead.head = work / tiles;
    if (ahead.head >= p.batch * p.heads) return;
    const int position = work % tiles, sequence = ahead.head / p.heads, head = ahead.head % p.heads;
    ahead.at = {sequence, head, head / (p.heads / p.kv_heads)};
    ahead.number = sequence * p.of_sequence + head * p.of_head;
    ahead.q_tile = C::AS_THEY_COME ? position : ld_global_s32(p.order + ahead.number + position);
    ahead.number += ahead.q_tile;
    ahead.blocks = ld_global_s32(p.counts + 2 * ahead.number);
    ahead.whole = ld_global_s32(p.counts + 2 * ahead.number + 1);
  }
  __device__ __forceinline__ Queries next() {
    const int pieces = C::BC / rows;
    first += kv_tiles, ++round;
    at = ahead.at, number = ahead.number, blocks = ahead.blocks, block = part = 0;
    kv_tiles = max((blocks * each + pieces - 1) / pieces, 1);  // one for queries that see no key: nobody sees it
    whole = ahead.whole * each / pieces;
    return {ahead.head < p.batch * p.heads, round, ahead.head, ahead.q_tile, first, kv_tiles};
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work) const {
    work.tell({first, first + kv_tiles, whole > 0 ? first : first + kv_tiles, first + whole, 0, queries.q_tile * C::BR,
               queries.head, true, 0, __float_as_int(sink_of(p, at))});
  }
  // The pieces of a tile: the first key of each, and the stencils of its halves. Where nothing is left: keys behind
  // all, for which the copy engine gives zeros, and the stencil that hides all.
  struct Pieces {
    int key[2], stencil[2];
  };
  __device__ __forceinline__ Pieces take() {
    Pieces here = {{p.n_k, p.n_k}, {0, 0}};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == C::BC / rows || block == blocks) break;
      const int* const entry = p.lists + 2 * (int64_t(number) * p.most_blocks + block);
      here.key[i] = ld_global_s32(entry) * p.block_keys + part * rows;
      here.stencil[i] = ld_global_s32(entry + 1) + part * (rows / HALF);
      if (rows == C::BC) here.stencil[1] = here.stencil[0] + 1;
      if (++part == each) part = 0, ++block;
    }
    return here;
  }
};

template <class C>
__device__ __forceinline__ void load_Q(const Smem<C>& smem, const Queries& queries, const Head& at,
                                       const TensorMap& Q_map) {
  smem.Q.expect(queries.round);
  for (int panel = 0; panel < PANELS; ++panel)
    cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round) + panel * C::BR * PANEL_ROW_BYTES, Q_map,
                            panel * PANEL_COLS, queries.q_tile * C::BR, at.head, at.sequence,
                            smem.Q.full_of(queries.round));
}

// The tiles of a list, of K or of V. Stencils come with K, where tiles are not whole.
template <bool IS_K, class C, class Ring>
__device__ __forceinline__ void load_list(const Smem<C>& smem, const Queries& queries, Lists<C>& list, const Ring& ring,
                                          const TensorMap& map) {
  const int last = queries.first + queries.kv_tiles - 1, looks_at = min(queries.first + 1, last);
  const int whole_end = list.first + list.whole;
  auto here = list.take();
  for (int tile = queries.first; tile <= last; ++tile) {
    const auto ahead = list.take();  // on its way while this thread waits
    const bool has_stencils = IS_K && tile >= whole_end;
    ring.wait_empty(tile);
    mbarrier_arrive_expect_tx(ring.full_of(tile), smem.TILE_BYTES + (has_stencils ? 2 * STENCIL_BYTES : 0));
    for (int panel = 0; panel < PANELS; ++panel) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i == C::BC / list.rows) break;
        cp_async_bulk_tensor_4d(ring.tiles + ring.at(tile) + (panel * C::BC + i * HALF) * PANEL_ROW_BYTES, map,
                                panel * PANEL_COLS, here.key[i], list.at.kv_head, list.at.sequence, ring.full_of(tile));
      }
    }
    for (int i = 0; i < 2 && has_stencils; ++i)
      cp_async_bulk(smem.more + (tile % C::STAGES * 2 + i) * STENCIL_BYTES,
                    list.p.stencils + int64_t(here.stencil[i]) * (STENCIL_BYTES / 4), STENCIL_BYTES,
                    ring.full_of(tile));
    if (tile == looks_at) list.look();
    here = ahead;
  }
}

// Masks what rows do not see of a tile in part. `stencils`: of its two halves. Whether a row may meet its first key
// here.
template <int TILES>
__device__ __forceinline__ bool hide_unlisted(float (&S)[TILES][4], const Work& work, int tile, uint32_t stencils) {
  if (tile >= work[Work::WHOLE_END]) {
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + FragmentC::row(lane, 0);
#pragma unroll
    for (int word = 0; word < 4; ++word) {  // of 32 keys, for each of a lane's two rows
      const uint32_t at = stencils + word / 2 * STENCIL_BYTES + row * 8 + word % 2 * 4;
      const uint32_t bits[2] = {ld_shared_b32(at) >> FragmentC::col(lane, 0),
                                ld_shared_b32(at + 64) >> FragmentC::col(lane, 0)};
#pragma unroll
      for (int key_tile = 0; key_tile < 4; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          if ((bits[i / 2] >> (key_tile * 8 + i % 2) & 1) == 0) S[word * 4 + key_tile][i] = -INFINITY;
        }
      }
    }
    named_barrier_sync(1 + threadIdx.x / 128, 128);  // safe to release the tile: its four warps have read the stencils
  }
  return tile < work[Work::WHOLE_BEGIN];
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask, class Function>
__device__ __forceinline__ void attend(const BlockParams& p, const Smem<C>& smem, const Function& function,
                                       Softmax<typename C::Element, C::BC>& softmax, const TensorMap& O_map) {
  using Element = typename C::Element;
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
  int round = 0;                     // of Q and Work
  const auto hide = [&](int tile) {  // whether a row may meet its first key here
    if constexpr (Mask::IS_WINDOW)
      return hide_unlisted(S_frag, smem.told(round), tile, smem.more + tile % C::STAGES * 2 * STENCIL_BYTES);
    else
      return hide_unseen(S_frag, Mask(p), smem.told(round), tile);
  };
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
    if (!Mask::IS_WINDOW) release(smem.K, tile);
    change_scores(S_frag, function, p, smem.told(round), tile);
    const bool looks = may_be_masked && hide(tile);
    if (Mask::IS_WINDOW) release(smem.K, tile);  // and its stencils
    // SOFTMAX
    softmax.weigh(S_frag, P_here, false, looks);
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(smem.V, tile - 1);
  };
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    start_PV(tile, P_last, tile == begin);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    for (int lane_row = 0; lane_row < 2 && Mask::IS_WINDOW; ++lane_row) {
      if (softmax.sum[lane_row] == 0) normalise[lane_row] = 0;  // a row without a key
    }
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_last);           // safe to touch O: the last PV is done
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
    if (!Mask::IS_WINDOW) release(smem.K, begin);
    change_scores(S_frag, function, p, work, begin);
    hide(begin);
    if (Mask::IS_WINDOW) release(smem.K, begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    for (const int whole_end = work[Work::WHOLE_END]; tile + 1 < whole_end; tile += 2) {
      step(tile, P_even, P_odd);
      step(tile + 1, P_odd, P_even);
    }
    for (; tile < end; tile += 2) {  // three at most, but of a list as many as are in part
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
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN], release);  // or all
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
    flash_attention(BlockParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "by lists blocks work alone");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");

  const Smem<C> smem;
  smem.name();
  smem_name(smem.more, C::STENCILS_BYTES, "stencils");
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  const Function function(p);
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both
  //       panels.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    const auto end_of = [&](const auto& walk) {
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    };
    if constexpr (Mask::IS_WINDOW) {
      if (threadIdx.x == WARPS * 32) {
        Lists<C> walk(p);
        while (const auto queries = walk.next()) {
          smem.Q.wait_empty(queries.round);
          walk.tell(queries, smem.told(queries.round));
          load_Q(smem, queries, walk.at, Q_map);
          load_list<true>(smem, queries, walk, smem.K, K_map);
        }
        end_of(walk);
      } else if (threadIdx.x == WARPS * 32 + 32) {
        Lists<C> walk(p);
        while (const auto queries = walk.next()) load_list<false>(smem, queries, walk, smem.V, V_map);
      }
    } else if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), p, function.scale);
        load(p, smem, queries, Q_map, K_map, V_map);
      }
      end_of(walk);
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  Softmax<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = function.scale * LOG2E;
  attend<C, Mask>(p, smem, function, softmax, O_map);
  end_together<BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask, class Function>
void start(Device& device, const BlockParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  const int rows = Mask::IS_WINDOW && p.block_keys == HALF ? HALF : C::BC;  // of keys
  launch_clusters(device, flash_attention<C, Mask, Function>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, rows), map(p.V, p.V_strides, p.kv_heads, p.n_k, rows),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

// A cap without a mask is compiled for keys that end within a tile.
template <class C, class Function>
void start_masked(Device& device, const BlockParams& p) {
  if (p.lists != nullptr) {
    start<typename C::Alone, Listed, Function>(device, p);
  } else if (p.causal) {
    start<C, Causal, Function>(device, p);
  } else if (p.n_k % C::BC != 0 || Function::CHANGES) {
    start<C, Tail, Function>(device, p);
  } else if constexpr (!Function::CHANGES) {
    start<C, NoMask, Function>(device, p);
  }
}

template <class C>
void run(Device& device, const BlockParams& p) {
  if (p.n_k == 0) {
    forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  } else {
    p.softcap > 0 ? start_masked<C, Score<true, false>>(device, p) : start_masked<C, Score<false, false>>(device, p);
  }
}

}  // namespace
