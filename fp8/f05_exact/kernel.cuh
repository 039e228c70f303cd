// f05_exact: Q and K are int8, of which tensor cores add up the products exactly; the weights P and V have 16 bits.
// Before:  f01_e4m3 multiplies bytes in QK and in PV, and of each sum 14 bits are kept. A head has one scale.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 160 KiB and 192 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] int8; K: [batch, kv_heads, n_k, d] int8; V: as K, O: as Q, both f16 or both bf16;
//          in any strides. Their scales: [batch, heads, n_q] and [batch, kv_heads, n_k] f32, a head's side by side.
//          LSE: [batch, heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 45_varlen and 46_alone what starts a kernel.
using forward::blocks_for, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::hide_unseen, forward::let_pass, forward::LOG2E, forward::NO_KEY, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::Queries, forward::release_Q, forward::RESCALE_ABOVE, forward::rows_map;
using forward::Schedule, forward::store_rows, forward::SUM_LIMIT, forward::Work;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM;  // of Q and K: one panel, the most that the engine swizzles
constexpr int SLICE = 32;            // bytes of a row, and elements, that one instruction of QK multiplies
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = PANEL_COLS * 2;  // of V and O

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. O, of 16
// bits, has a place of its own.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 2, K_BYTES = BC * ROW_BYTES, V_BYTES = BC * HEAD_DIM * 2;
  static constexpr uint32_t SMEM_BYTES = 2 * BR * ROW_BYTES + STAGES * (K_BYTES + V_BYTES) + O_BYTES +
                                         (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// As K's, V's tiles would be of bytes: behind their places are as many more, and then O.
template <class C>
using BytesAlone = forward::Smem<C, ROW_BYTES, 2, C::STAGES*(C::V_BYTES - C::K_BYTES) + C::O_BYTES>;
template <class C>
struct Smem : BytesAlone<C> {
  using Base = BytesAlone<C>;
  Ring<C::STAGES, C::V_BYTES> V{Base::K.end, Base::tiles_V};
  uint32_t O = Base::tiles_V + C::STAGES * C::V_BYTES;

  __device__ __forceinline__ void name() const {
    Base::name();
    smem_name(Base::tiles_V, C::STAGES * C::V_BYTES, "V", PANEL_ROW_BYTES);
    smem_name(O, C::O_BYTES, "O", PANEL_ROW_BYTES);
  }
};

// ---- scales --------------------------------------------------------------------------------------------------------

// Where the scales of a head's rows begin.
__device__ __forceinline__ const float* scales_of(const RowScaleParams::Scales& scales, int sequence, int head) {
  return scales.of + sequence * scales.batch + head * scales.head;
}

// ---- softmax -------------------------------------------------------------------------------------------------------

// 43_window's, but for huge scores, of rows that have scales of their own. A lane's share of two rows: their scores S
// become weights P = 2^(S * scale_log2 - max). `max` is the same in a row's four lanes.
template <class T, int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / 16][4];
  float scale_log2[2];                  // [lane_row]: exp(s * softmax_scale * Q's) = 2^(s * scale_log2)
  float max[2], sum[2], correction[2];  // [lane_row]; max in log2 units
  bool careful;                         // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                         // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin(const float (&scale)[2]) {
    careful = false;
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      scale_log2[lane_row] = scale[lane_row], max[lane_row] = NO_KEY, sum[lane_row] = 0;
  }
  __device__ __forceinline__ float largest(int lane_row) const { return max[lane_row]; }  // what LSE adds to

  __device__ __forceinline__ void grow(int lane_row, float to) {
    correction[lane_row] = ex2_approx(max[lane_row] - to);  // 1 where nothing has grown
    max[lane_row] = to;
    sum[lane_row] *= correction[lane_row];
  }
  __device__ __forceinline__ void look(Scores S, bool is_first LADDER_SITE_PARAMETER) {
    float to[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) to[lane_row] = lane_max(S, lane_row) * scale_log2[lane_row];
    rescale = is_first || vote_any(fmaxf(to[0] - max[0], to[1] - max[1]) > RESCALE_ABOVE LADDER_SITE);
    if (!rescale) return;
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      grow(lane_row, fmaxf(quad_max(to[lane_row] LADDER_SITE), max[lane_row]));
  }
  // S becomes exponents.
  __device__ __forceinline__ static void scale(Scores S, const float (&by)[2], const float (&less)[2]) {
#pragma unroll
    for (int i = 0; i < BC / 2; ++i) S[i / 4][i % 4] = S[i / 4][i % 4] * by[i % 4 / 2] - less[i % 4 / 2];
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks LADDER_SITE_PARAMETER) {
    rescale = false;
    float tile_sum[2];
    if (looks || careful || is_first) look(S, is_first LADDER_SITE);
    scale(S, scale_log2, max);
    exp2_weights<T>(S, P, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT<T> LADDER_SITE))
      weigh_again(S, P, tile_sum LADDER_SITE);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
  __device__ __forceinline__ void weigh_again(Scores S, Weights P, float (&tile_sum)[2] LADDER_SITE_PARAMETER) {
    float by[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float before = rescale ? correction[lane_row] : 1;
      by[lane_row] = fmaxf(quad_max(lane_max(S, lane_row) LADDER_SITE), 0.0f);
      grow(lane_row, max[lane_row] + by[lane_row]);
      correction[lane_row] *= before;
    }
    scale(S, {1, 1}, by);
    exp2_weights<T>(S, P, tile_sum);
    rescale = careful = true;  // from now on
  }
};

// ---- the kernel ----------------------------------------------------------------------------------------------------

// LOAD  A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K, and its
//       panel of V, to both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C>
__device__ __forceinline__ void load(const RowScaleParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int BC = C::BC, BLOCKS = C::BLOCKS, PART = BC / BLOCKS, ALL = (1 << BLOCKS) - 1;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const int rank = cluster_rank(), last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) {
      smem.K.claim(tile);
      cp_async_bulk_tensor_4d_multicast(smem.K.tiles + smem.K.at(tile) + rank * PART * ROW_BYTES, K_map, 0,
                                        queries.in_K(tile) * BC + rank * PART, kv_head, sequence, smem.K.full_of(tile),
                                        ALL);
    }
    if (tile > queries.first) {
      smem.V.claim(tile - 1);
      for (int panel = rank; panel < PANELS; panel += BLOCKS)
        cp_async_bulk_tensor_4d_multicast(smem.V.tiles + smem.V.at(tile - 1) + panel * BC * PANEL_ROW_BYTES, V_map,
                                          panel * PANEL_COLS, queries.in_K(tile - 1) * BC, kv_head, sequence,
                                          smem.V.full_of(tile - 1), ALL);
    }
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const RowScaleParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / SLICE;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;     // O[64 x d] += P[64 x BC] V[BC x d]
  const uint32_t lane = threadIdx.x % 32, warpgroup = threadIdx.x / 128;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles),
                 V_tiles = wgmma_descriptor(smem.V.tiles, BC * PANEL_ROW_BYTES);
  Softmax<Element, BC> softmax = {};
  using Weights = typename Softmax<Element, BC>::Weights;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];    // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  int32_t S_sums[QK_N_TILES][4];                         // the same as whole numbers, before scales
  float K_scales[QK_N_TILES][2];                         // of the lane's keys of a tile
  const float* lane_K_scales = nullptr;                  // the head's, from the lane's first key on
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
    wgmma_fence(S_sums);
#pragma unroll
    for (int slice = 0; slice < QK_K_TILES; ++slice)
      wgmma_ss_s8(S_sums, wgmma_advance(Q_here, slice * SLICE), wgmma_advance(K_here, slice * SLICE), slice > 0);
    wgmma_commit();
  };
  // Of the lane's keys of a tile, two of every eight, while QK runs. Keys behind the last one are hidden, and get its
  // scale; where the tile `has_all` there are none.
  const auto read_K_scales = [&](int tile, bool has_all) {
    const int first = (tile - smem.told(round)[Work::ZERO]) * BC;
    const int last = has_all ? BC : p.n_k - 1 - first - FragmentC::col(lane, 0);
#pragma unroll
    for (int i = 0; i < 2 * QK_N_TILES; ++i)
      K_scales[i / 2][i % 2] = ld_global_f32(lane_K_scales + first + min(i / 2 * 8 + i % 2, last));
  };
  // A sum is at most 128 * 2^14 = 2^21, which f32 has exactly. Q's scales are the softmax's.
  const auto scale_sums = [&] {
#pragma unroll
    for (int i = 0; i < BC / 2; ++i) S_frag[i / 4][i % 4] = float(S_sums[i / 4][i % 4]) * K_scales[i / 4][i % 2];
  };
  const auto begin_rows = [&](const Work& work) {
    const int head = work[Work::HEAD] % p.heads, sequence = work[Work::HEAD] / p.heads;
    lane_K_scales = scales_of(p.K_scales, sequence, head / (p.heads / p.kv_heads)) + FragmentC::col(lane, 0);
    float scale_log2[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int query = min(work.query() + 8 * lane_row, p.n_q - 1);
      const float scale = ld_global_f32(scales_of(p.Q_scales, sequence, head) + query);
      scale_log2[lane_row] = fmaxf(scale * p.softmax_scale * LOG2E, 0x1p-80f);  // hidden scores times 0 would be NaN
    }
    softmax.begin(scale_log2);
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
    read_K_scales(tile, !may_be_masked || !Mask::HIDES);
    wgmma_wait<1>(S_sums);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    scale_sums();
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
    wgmma_wait<0>(O_frag, P_last);                               // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them.
    store_rows<Element, BR, !Mask::IS_WHOLE>(smem.O, O_frag, normalise, smem.told(round), p.heads, O_map);
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    begin_rows(work);
    read_K_scales(begin, !Mask::HIDES);
    wgmma_wait<0>(S_sums);  // safe to read S: QK is done
    release(smem.K, begin);
    scale_sums();
    hide_unseen(S_frag, Mask(p), work, begin);
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
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN], release);  // or all
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    store(round - 1);  // beside QK
  }
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(RowScaleParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  static_assert(BR == BC, "of a pair one block needs a tile of keys more than the other, and one tile only");

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<false>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round));
        load<C>(p, smem, queries, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<false>>();  // waits until the producer has given its registers back
  attend<C, Mask>(p, smem, O_map);
  end_together<BLOCKS>();
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do. The
//         pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine
//         where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const RowScaleParams& p) {
  const auto of_bytes = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n,
                            uint32_t rows) {
    return tensor_map_4d_e4m3(
        device, static_cast<const e4m3*>(tensor), {uint32_t(p.d), uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
        {uint64_t(strides.row), uint64_t(strides.head), uint64_t(strides.batch)}, {128, rows, 1, 1});
  };
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, uint32_t rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, of_bytes(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  of_bytes(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC), map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const RowScaleParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_masked<C>(p, [&]<class Tile, class Mask>() { start<Tile, Mask>(device, p); });
}

}  // namespace
