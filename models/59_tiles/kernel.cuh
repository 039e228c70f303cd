// 59_tiles: which tiles of keys a tile of queries meets is a list; the thread that copies follows it.
// Before:  in 58 a query sees one interval of keys. A sparse mask has holes between the keys that are seen.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 196 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. sinks: [heads] f32, or null. Lists and stencils: BlockParams, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 48_scores spells these out, 44_told what is told, 43_window the softmax, 45_varlen what starts a kernel.
using forward::blocks_for, forward::Causal, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::hide_unseen, forward::let_pass, forward::load, forward::LOG2E, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::Queries, forward::rows_map, forward::Schedule, forward::Score;
using forward::sink_of, forward::Softmax, forward::Tail, forward::Work;

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

// Which queries next, and the list of blocks that they meet. A tile of keys is two halves from anywhere: blocks are cut
// into 64 keys each, and two by two they make tiles.
template <class C>
struct Lists {
  const BlockParams& p;
  int round = -1, first = 0, kv_tiles = 0, halves = 0, whole = 0;  // halves of the list, and those that all see whole
  int64_t list = 0;

  __device__ __forceinline__ Lists(const BlockParams& p) : p(p) {}
  __device__ __forceinline__ Queries next() {
    first += kv_tiles, ++round;
    const int tiles = (p.n_q + C::BR - 1) / C::BR, heads = p.batch * p.heads;
    const int number = round * gridDim.x + blockIdx.x;
    if (number >= tiles * heads) return {false, round, 0, 0, first, 0};
    // All tiles of a head before the next head: its keys and values stay in L2.
    const int head = number / tiles, position = number % tiles;
    list = int64_t(head / p.heads) * p.of_sequence + int64_t(head % p.heads) * p.of_head;
    const int q_tile = C::AS_THEY_COME ? position : ld_global_s32(p.order + list + position);
    list += q_tile;
    halves = ld_global_s32(p.counts + 2 * list) * (p.block_keys / HALF);
    whole = ld_global_s32(p.counts + 2 * list + 1) * (p.block_keys / HALF);
    kv_tiles = max((halves + 1) / 2, 1);  // one, of which nobody sees anything, for queries that see no key
    return {true, round, head, q_tile, first, kv_tiles};
  }
  __device__ __forceinline__ int whole_end() const { return first + whole / 2; }
  __device__ __forceinline__ void tell(const Queries& queries, Work work, const ScoreParams& p, float) const {
    work.tell({first, first + kv_tiles, whole > 0 ? first : first + kv_tiles, whole_end(), 0, queries.q_tile * C::BR,
               queries.head, true, 0, __float_as_int(sink_of(p, queries.head))});
  }
  // Two halves of a tile: the first key of each, and its stencil. Of an odd number the last one is nothing: keys behind
  // all, for which the copy engine gives zeros, and the stencil that hides all.
  struct Halves {
    int key[2], stencil[2];
  };
  __device__ __forceinline__ Halves operator()(int tile) const {
    Halves here = {{p.n_k, p.n_k}, {0, 0}};
    const int each = p.block_keys / HALF;
    for (int i = 0; i < 2; ++i) {
      const int number = 2 * (tile - first) + i;
      if (number >= halves) continue;
      const int* const entry = p.lists + 2 * (list * p.most_blocks + number / each);
      here.key[i] = ld_global_s32(entry) * p.block_keys + number % each * HALF;
      here.stencil[i] = ld_global_s32(entry + 1) + number % each;
    }
    return here;
  }
};

// A tile of queries, and the tiles of its list; stencils come with K, where tiles are not whole. One thread's.
template <class C>
__device__ __forceinline__ void load(const BlockParams& p, const Smem<C>& smem, const Queries& queries,
                                     const Lists<C>& list, const TensorMap& Q_map, const TensorMap& K_map,
                                     const TensorMap& V_map) {
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round);
  for (int panel = 0; panel < PANELS; ++panel)
    cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round) + panel * C::BR * PANEL_ROW_BYTES, Q_map,
                            panel * PANEL_COLS, queries.q_tile * C::BR, head, sequence, smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile, const auto& halves) {
    for (int part = 0; part < 2 * PANELS; ++part)
      cp_async_bulk_tensor_4d(ring.tiles + ring.at(tile) + part * HALF * PANEL_ROW_BYTES, map, part / 2 * PANEL_COLS,
                              halves.key[part % 2], kv_head, sequence, ring.full_of(tile));
  };
  const int last = queries.first + queries.kv_tiles - 1;
  auto here = list(queries.first), before = here;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) {
      const bool is_whole = tile < list.whole_end();
      smem.K.wait_empty(tile);
      mbarrier_arrive_expect_tx(smem.K.full_of(tile), smem.TILE_BYTES + (is_whole ? 0 : 2 * STENCIL_BYTES));
      request(K_map, smem.K, tile, here);
      for (int i = 0; i < 2 && !is_whole; ++i)
        cp_async_bulk(smem.more + (tile % C::STAGES * 2 + i) * STENCIL_BYTES,
                      p.stencils + int64_t(here.stencil[i]) * (STENCIL_BYTES / 4), STENCIL_BYTES, smem.K.full_of(tile));
    }
    const auto ahead = list(tile + 1);  // on its way while this thread waits
    if (tile > queries.first) {
      smem.V.claim(tile - 1);
      request(V_map, smem.V, tile - 1, before);
    }
    before = here, here = ahead;
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
  const auto change = [&](int tile) {
    if constexpr (Function::CHANGES) {
      const Work work = smem.told(round);
      const int first_key = (tile - work[Work::ZERO]) * BC + FragmentC::col(lane, 0);  // of the lane
      const float here = work.query() + p.n_k - p.n_q - first_key, distance[2] = {here, here + 8};
      const float slope = work.number(Work::SLOPE);
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          float& score = S_frag[key_tile][i];
          score = function(score, distance[i / 2] - (key_tile * 8 + FragmentC::col(0, i)), slope);
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
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    if (!Mask::IS_WINDOW) release(smem.K, tile);
    change(tile);
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
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them. Lane l addresses row
    //        l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, two C fragments.
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
  const auto release_Q = [&](int round) {
    if (lane == 0 && round >= 0) {
      cp_async_bulk_wait_read<0>();  // safe to overwrite or to end: shared memory has been read
      mbarrier_arrive(smem.Q.empty_of(round));
    }
    __syncwarp();  // products and barriers take whole warps
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    if (!Mask::IS_WINDOW) release(smem.K, begin);
    change(begin);
    hide(begin);
    if (Mask::IS_WINDOW) release(smem.K, begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(round - 1);
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
  release_Q(round - 1);
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
    setmaxnreg_dec<PRODUCER_REGISTERS<Mask::IS_WHOLE>>();
    if (threadIdx.x == WARPS * 32) {
      auto walk = [&] {
        if constexpr (Mask::IS_WINDOW)
          return Lists<C>(p);
        else
          return Schedule<C, Mask>(p);
      }();
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), p, function.scale);
        if constexpr (Mask::IS_WINDOW)
          load(p, smem, queries, walk, Q_map, K_map, V_map);
        else
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
void start(Device& device, const BlockParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  const int rows = Mask::IS_WINDOW ? HALF : C::BC;  // of keys
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
