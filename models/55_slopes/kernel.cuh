// 55_slopes: ALiBi is a straight line. The tensor cores add its slope to the scores, and a row begins at its own key,
// where it is highest.
// Before:  in 48 a function changes every score, and as keys come nearer each tile raises the maximum: O is scaled
//          again and again.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 208 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 43_window the softmax, 45_varlen what starts a kernel.
using forward::blocks_for, forward::end_together, forward::finish_rows, forward::let_pass, forward::load;
using forward::LOG2E, forward::NO_KEY, forward::rows_map;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES +
                                         BC * PANEL_ROW_BYTES +  // Q, K, V, and the ramp
                                         (4 * STAGES + 4) * 8 + 2 * forward::Message<12>::BYTES;  // mbarriers and Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// What the thread that copies tells the others of each tile of queries, in shared memory beside Q: BEGIN to END, the
// numbers of the tiles that it walks over; TOP, a tile's number plus its place in K, the same for all on the way down;
// LOW, the lowest place; WHOLE_BEGIN to WHOLE_END, the places of tiles that all of the queries see; QUERY, the first;
// HEAD, its SLOPE over the scale and its SINK, f32; MORE, or else this is the end.
struct Work : forward::Message<12> {
  enum Word { BEGIN, END, TOP, LOW, WHOLE_BEGIN, WHOLE_END, QUERY, HEAD, MORE, SLOPE, SINK };
};

// Which queries next is 44's, and which keys they see; but tiles of keys come from the queries' own down to the first
// that is seen, and then from behind their own up: so every row meets its first key in one of the first two. Of a pair
// the first block's are the queries, and the tile that the second one alone sees comes last.
template <class C, class Mask>
struct Schedule : forward::Schedule<C, Mask> {
  using Base = forward::Schedule<C, Mask>;
  using Base::BC, Base::BLOCKS, Base::BR, Base::last_query, Base::mask, Base::pair, Base::tiles_up_to;
  struct Queries : forward::Queries {
    int own;  // place in K of the first tile that is copied; `skipped` is that of the lowest one

    __device__ __forceinline__ int in_K(int tile) const {  // where it lies there
      const int up = tile - first + skipped, down = own - (tile - first);
      return down >= skipped ? down : up;
    }
  };

  __device__ __forceinline__ Schedule(const ScoreParams& p) : Base(p) {}
  __device__ __forceinline__ Queries next() {
    const auto queries = Base::next();
    const int first_tile = pair * BLOCKS;
    const int middle = last_query(first_tile + BLOCKS - 1) + mask.n_k - mask.n_q;
    return {queries, Mask::IS_WINDOW ? max(middle, 0) / BC : tiles_up_to(first_tile) - 1};
  }
  __device__ __forceinline__ void tell(const Queries& queries, Work work, const ScoreParams& p) const {
    const int q_head = queries.head % p.heads, q_tile = queries.q_tile, first = queries.first;
    const float slope = p.alibi_slopes == nullptr ? 0 : ld_global_f32(p.alibi_slopes + q_head) / p.softmax_scale;
    const float sink = p.sinks == nullptr ? NO_KEY : fmaxf(ld_global_f32(p.sinks + q_head) * LOG2E, NO_KEY);
    work.tell({first, first + tiles_up_to(q_tile) - queries.skipped, first + queries.own, queries.skipped,
               Mask::IS_WINDOW ? (mask.first_of(last_query(q_tile)) + BC - 1) / BC : 0,
               min(mask.end_of(q_tile * BR), mask.n_k) / BC,  // a second block may lie outside
               q_tile * BR, queries.head, true, __float_as_int(slope), __float_as_int(sink)});
  }
};

// Weights P = 2^(S * scale_log2 + line - max).
template <class T, int BC>
struct Softmax : forward::Softmax<T, BC> {
  using Base = forward::Softmax<T, BC>;
  using Base::careful, Base::limit, Base::max, Base::rescale, Base::scale_log2, Base::sum;
  using typename Base::Scores, typename Base::Weights;
  float line[2] = {};  // what ALiBi adds to the score of the tile's first key, in log2 units

  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks) {
    rescale = false;
    float tile_sum[2];
    if (looks || careful || is_first) Base::look(S, is_first, line);
    const float base[2] = {max[0] - line[0], max[1] - line[1]};
    exp2_weights<T>(S, P, scale_log2, base, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= limit)) Base::weigh_again(S, P, tile_sum);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
};

// A number as three of bf16 that sum up to it exactly: of its 24 bits each has eight. They are a row's columns 0, 1 and
// 2; `two`: which two columns.
__device__ __forceinline__ uint32_t parts_of(float number, uint32_t two) {
  constexpr uint32_t UPPER = 0xffff0000;  // of an f32: a bf16
  const uint32_t high = __float_as_uint(number) & UPPER;
  const float rest = number - __uint_as_float(high);
  const uint32_t middle = __float_as_uint(rest) & UPPER;
  const uint32_t low = __float_as_uint(rest - __uint_as_float(middle)) >> 16;
  return two == 0 ? middle | high >> 16 : two == 1 ? low : 0;
}

// What the kernel is compiled for: with slopes, or without.
template <bool SLOPED>
struct Score {
  static constexpr bool CHANGES = SLOPED;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, C::BC * PANEL_ROW_BYTES, Work>;

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask, bool SLOPED>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem,
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
  int round = 0;             // of Q and Work
  int begin = 0, end = 0;    // of the tiles of keys
  uint32_t slope_parts = 0;  // in this lane's columns beside those of Q
  uint32_t slope_frag[4];    // FragmentA: its rows are all the same
  const uint64_t ramp = wgmma_descriptor(smem.more);
  const auto is_behind = [&](const Work& work, int tile) { return tile > work[Work::TOP] - work[Work::LOW]; };
  const auto falls = [&](const Work& work, int tile) { return Mask::IS_WINDOW && is_behind(work, tile); };
  const auto in_K = [&](const Work& work, int tile) {  // where it lies there
    return is_behind(work, tile) ? tile - work[Work::BEGIN] + work[Work::LOW] : work[Work::TOP] - tile;
  };
  const auto start_QK = [&](int tile) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round)), K_here = wgmma_advance(K_tiles, smem.K.at(tile));
    smem.K.wait_full(tile);
    slope_frag[0] = slope_frag[1] = falls(smem.told(round), tile) ? slope_parts ^ 0x80008000 : slope_parts;  // minus
    slope_frag[2] = slope_frag[3] = 0;
    wgmma_fence(S_frag, slope_frag);
    if (SLOPED) wgmma_rs_bf16(S_frag, slope_frag, ramp, false);  // the slope times a key's number in its tile
    issue_QK<Element, HEAD_DIM, BR, BC>(S_frag, Q_here, K_here, SLOPED);
    wgmma_commit();
  };
  // A lane's two rows are this one and one 8 below.
  const auto query_of = [&](const Work& work) { return work[Work::QUERY] + int(warp) * 16 + FragmentC::row(lane, 0); };
  // How far a key lies behind the own one of the lane's upper row.
  const auto behind_own = [&](const Work& work, int key) { return key - (query_of(work) + p.n_k - p.n_q); };
  // LINE  slope * (key - own) = slope * number in the tile, which the product adds, + slope * (first key - own), a
  //       number per row.
  const auto set_line = [&](int tile) {
    if constexpr (SLOPED) {
      const Work work = smem.told(round);
      const float rise = work.number(Work::SLOPE) * softmax.scale_log2 * (falls(work, tile) ? -1 : 1);
      const float from = behind_own(work, in_K(work, tile) * BC);
      softmax.line[0] = rise * from, softmax.line[1] = rise * (from - 8);
    }
  };
  // Masks what rows do not see of a tile. Whether a row may meet its first key there, or one that the line has raised.
  const auto hide = [&](int tile) {
    const Work work = smem.told(round);
    const Mask mask(p);
    const int tile_of_K = in_K(work, tile), first_key = tile_of_K * BC;
    const auto of_all = [&](auto change) {
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) change(S_frag[key_tile][i], key_tile * 8 + FragmentC::col(0, i), i / 2);
      }
    };
    const int lane_key = first_key + FragmentC::col(lane, 0);
    const bool bends = SLOPED && Mask::IS_WINDOW && tile <= begin + 1 && !falls(work, tile);
    if (bends) {  // behind a query's own key the line falls, and the product has let it rise
      const float twice = 2 * work.number(Work::SLOPE), from = behind_own(work, lane_key), behind[2] = {from, from - 8};
      of_all([&](float& score, int key, int lane_row) { score -= twice * fmaxf(behind[lane_row] + key, 0); });
    }
    const int query = query_of(work), below = query + 8;
    if (Mask::IS_WINDOW && tile_of_K < work[Work::WHOLE_BEGIN]) {
      const int from[2] = {mask.first_of(query) - lane_key, mask.first_of(below) - lane_key};
      of_all([&](float& score, int key, int lane_row) {
        if (key < from[lane_row]) score = -INFINITY;
      });
    }
    if (Mask::HIDES && tile_of_K >= work[Work::WHOLE_END]) {
      const int to[2] = {mask.end_of(query) - lane_key, mask.end_of(below) - lane_key};
      of_all([&](float& score, int key, int lane_row) {
        if (key >= to[lane_row]) score = -INFINITY;
      });
    }
    return tile <= begin + 1 || (Mask::GROWS && is_behind(work, tile));
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
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    set_line(tile);
    wgmma_wait<1>(S_frag, slope_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    const bool looks = may_be_masked && hide(tile);
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
  const auto start_round = [&] {
    if (SLOPED) slope_parts = parts_of(smem.told(round).number(Work::SLOPE), lane % 4);
    start_QK(smem.told(round)[Work::BEGIN]);
  };

  smem.Q.wait_full(0);
  start_round();
  wgmma_wait<0>(S_frag, slope_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    set_line(begin);
    hide(begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.weigh(S_frag, P_even, true, true);
    release_Q(round - 1);
    int tile = begin + 1;
    if (tile < end) step(tile++, P_even, P_odd, !Mask::IS_WHOLE);  // under a mask not all rows have met a key
    if constexpr (!Mask::IS_WINDOW) {
      for (const int up_to = work[Work::TOP] - work[Work::LOW] + 1; tile + 1 < up_to; tile += 2) {
        step(tile, P_odd, P_even);
        step(tile + 1, P_even, P_odd);
      }
    }
    for (; tile < end; tile += 2) {  // two at most, but in a window all
      step(tile, P_odd, P_even, !Mask::IS_WHOLE);
      if (tile + 1 < end) step(tile + 1, P_even, P_odd, !Mask::IS_WHOLE);
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if ((end - begin) % 2 == 0) {
      finish(end - 1, P_odd);
    } else {
      finish(end - 1, P_even);
    }
    ++round;
    smem.Q.wait_full(round);
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN],
                                  release);  // or all that was copied
    if (!smem.told(round)[Work::MORE]) break;
    start_round();
    store(round - 1);                   // beside QK
    wgmma_wait<0>(S_frag, slope_frag);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(round - 1);
}

template <class C, class Mask, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");
  constexpr bool SLOPED = Function::CHANGES;
  // 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240, or
  // 40 + 2 x 232, where the one that copies has more to find out, and the others have no slope to keep.
  constexpr bool COPIES_WITH_FEW = Mask::IS_WHOLE || SLOPED;
  constexpr int PRODUCER_REGISTERS = COPIES_WITH_FEW ? 24 : 40, CONSUMER_REGISTERS = COPIES_WITH_FEW ? 240 : 232;

  const Smem<C> smem;
  smem.name();
  smem_name(smem.more, BC * PANEL_ROW_BYTES, "ramp", PANEL_ROW_BYTES);
  if (threadIdx.x == 0) smem.init();
  // The ramp: 16 columns beside those of K, and in each of them a key's number in its tile. Of a panel, swizzled like
  // K's.
  if (SLOPED && threadIdx.x < BC) {
    const uint32_t number = pack<bf16>(threadIdx.x, threadIdx.x), row = smem.more + threadIdx.x * PANEL_ROW_BYTES;
    for (uint32_t chunk = 0; chunk < 2; ++chunk)
      st_shared_v4(row + (chunk ^ (threadIdx.x % 8)) * 16, {number, number, number, number});
    fence_proxy_async_shared();  // products will find it
  }
  cluster_sync();  // safe to use the ramp, and the barriers, those of the other block, too

  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both
  //       panels.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), p);
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
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  Softmax<typename C::Element, BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * LOG2E;
  attend<C, Mask, SLOPED>(p, smem, softmax, O_map);
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
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  const auto start_it = [&]<class Config, class Mask, class Function>() { start<Config, Mask, Function>(device, p); };
  p.alibi_slopes ? forward::start_masked<C, Score<true>>(p, start_it)
                 : forward::start_masked<C, Score<false>>(p, start_it);
}

}  // namespace
