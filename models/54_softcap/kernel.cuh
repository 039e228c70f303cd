// 54_softcap: the tanh of a softcap is a polynomial where all scores of a warp's tile are small, and their weights are
// made at once.
// Before:  48 takes a tanh for each score, of the unit that makes the exponentials, and before the first of them.
//          Distances mean nothing any more, for a shorter kernel; ALiBi is 48's.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 192 B.
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] bf16; K, V: [batch, kv_heads, n_k, d] bf16, in any strides.
//          LSE: [batch, heads, n_q] f32. sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

using Element = bf16;
// 44_told spells these out, 38_seam release_Q, 43_window the softmax, 45_varlen what starts a kernel.
using forward::blocks_for, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::hide_unseen, forward::let_pass, forward::load, forward::LOG2E, forward::PRODUCER_REGISTERS;
using forward::release_Q, forward::rows_map, forward::Schedule, forward::Softmax, forward::store_rows, forward::Work;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANEL_ROW_BYTES = ROW_BYTES / 2;
// tanh(x) is TANH_1 x + TANH_3 x^3 up to |x| = NEAR, but for 7.8e-6: the least that degree 3 allows. A softcap of 50
// makes that 3.9e-4 of a weight, and a bf16 is wrong by up to 2e-3.
constexpr float NEAR = 0.25f, TANH_1 = 0.999843428f, TANH_3 = -0.323198975f;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<Element, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config<BR, BC, WARPS, STAGES, 1>;
};
constexpr int SINK = Work::BESIDES;  // what the thread that copies tells besides: the head's, f32

// What becomes of a score before the softmax: O = softmax(function(Q K^T)) V. A softcap makes softcap * tanh(scale *
// score / softcap) of it, here in log2 units, in one of two ways: by the polynomial, or far from 0 by an exponential.
template <bool CAPPED>
struct Score {
  static constexpr bool CHANGES = CAPPED;  // or else it costs nothing
  float scale, inner, cap;                 // scale / softcap; softcap in log2 units
  float terms[2], reach;                   // of the polynomial, with both in them; the largest square that it is for

  __device__ __forceinline__ explicit Score(const ScoreParams& p)
      : scale(CAPPED ? 1 / LOG2E : p.softmax_scale), inner(p.softmax_scale / p.softcap), cap(p.softcap * LOG2E) {
    const float square = inner * inner;
    terms[0] = TANH_1 * cap * inner, terms[1] = TANH_3 * cap * inner * square;
    reach = NEAR * NEAR / square;
  }
  __device__ __forceinline__ float near(float score, float square) const {
    return score * (terms[1] * square + terms[0]);
  }
  // tanh |x| is 1 - 2 e / (1 + e), with e = exp(-2 |x|): a polynomial of that is wrong by 7e-8, as an f32 is.
  __device__ __forceinline__ float far(float score) const {
    const float x = score * inner, e = ex2_approx(-2 * LOG2E * fabsf(x));
    float factor = 0.0504412287f;  // of e
    factor = factor * e - 0.296820757f, factor = factor * e + 0.806404697f, factor = factor * e - 1.38716352f;
    factor = factor * e + 1.78462544f, factor = factor * e - 1.95150803f, factor = factor * e + 1.99360958f;
    factor = factor * e - 1.99957892f, factor = factor * e + 1.99999035f;
    return (x < 0 ? -cap : cap) * (1 - e * factor);
  }
};

// Weights of scores that no function has changed.
template <class T, int BC>
struct NearSoftmax : Softmax<T, BC> {
  using Base = Softmax<T, BC>;
  using Base::careful, Base::max, Base::sum, Base::rescale;
  using typename Base::Scores, typename Base::Weights;
  bool is_far;  // the whole warp or none of it: a score was, of the last tile that it looked at

  __device__ __forceinline__ void begin(float sink, bool counts) {
    Base::begin(sink, counts);
    is_far = false;
  }
  // The same of scores that no function has changed, and S stays. Whether it could: it does not look for a maximum, and
  // not beyond the polynomial. Positive floats are in the order of their bits.
  template <class Function>
  __device__ __forceinline__ bool weigh_near(Scores S, Weights P, const Function& function) {
    if (careful || is_far) return false;
    float tile_sum[2];
    int largest = 0;  // square
    exp2_weights_by<T>(S, P, tile_sum, [&](float score, int lane_row) {
      const float square = score * score;
      largest = ::max(largest, __float_as_int(square));
      return function.near(score, square) - max[lane_row];
    });
    if (vote_any(largest > __float_as_int(function.reach) || fmaxf(tile_sum[0], tile_sum[1]) >= forward::SUM_LIMIT<T>))
      return false;
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale = false;
    return true;
  }
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES>;

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask, class Function>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem, const Function& function,
                                       NearSoftmax<Element, C::BC>& softmax, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles),
                 V_tiles = wgmma_descriptor(smem.V.tiles, BC * PANEL_ROW_BYTES);
  using Weights = typename NearSoftmax<Element, BC>::Weights;
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
  const auto change = [&] {
    if constexpr (Function::CHANGES) {
      float largest = 0;
#pragma unroll
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(S_frag[key_tile][i]));
      }
      softmax.is_far = vote_any(largest * largest > function.reach);
      const auto apply = [&](bool is_far) {
#pragma unroll
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          for (float& score : S_frag[key_tile])
            score = is_far ? function.far(score) : function.near(score, score * score);
        }
      };
      if (softmax.is_far) {
        apply(true);
      } else {
        apply(false);
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
    release(smem.K, tile);
    // SOFTMAX
    if (!Function::CHANGES || (may_be_masked && smem.told(round).is_masked(tile, true)) ||
        !softmax.weigh_near(S_frag, P_here, function)) {
      change();
      const bool looks = may_be_masked && hide_unseen(S_frag, Mask(p), smem.told(round), tile);
      softmax.weigh(S_frag, P_here, false, looks);
    }
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

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    change();
    hide_unseen(S_frag, Mask(p), work, begin);
    softmax.begin(work.number(SINK), lane % 4 == 0);
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
  // LOAD  A block brings its panel of a tile of K or V to both; the other brings its own here. Alone it brings both
  //       panels.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<Mask::IS_WHOLE>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), __float_as_int(forward::sink_of(p, queries.head)), 0, 0);
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
  NearSoftmax<Element, C::BC> softmax = {};
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
    return rows_map<Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch_clusters(device, flash_attention<C, Mask, Function>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
                  map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<Element, HEAD_DIM>(device, p);
  const auto start_it = [&]<class Config, class Mask, class Function>() { start<Config, Mask, Function>(device, p); };
  p.softcap > 0 ? forward::start_masked<C, Score<true>>(p, start_it)
                : forward::start_masked<C, Score<false>>(p, start_it);
}

}  // namespace
