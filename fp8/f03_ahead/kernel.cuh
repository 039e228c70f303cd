// f03_ahead: QK of the next 64 keys runs while the exponentials of these 64 are made.
// Before:  in f02_two a warpgroup waits for the scores of 128 keys before it can make a single weight.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 256 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] e4m3; K, V: [batch, kv_heads, n_k, d] e4m3; O: as Q, f16 or bf16; in any strides.
//          Their scales: [batch, heads] and [batch, kv_heads] f32. LSE: [batch, heads, n_q] f32.
//          The workspace: V with keys as columns, [batch, kv_heads, 128, n_k rounded up to 128] e4m3.
#pragma once
#include "common/gpu.cuh"
#include "common/words/bytes.cuh"

namespace {

// f01_e4m3 spells these out, f02_two how products of half of the columns are added.
using bytes::add_half, bytes::copy_tiles, bytes::HEAD_DIM, bytes::issue_PV, bytes::issue_QK, bytes::load;
using bytes::padded, bytes::ROW_BYTES, bytes::SCALE_LOG2, bytes::SLICE, bytes::Smem, bytes::start_turned;
using bytes::V_SCALE;
// 44_told spells these out, 45_varlen what starts a kernel.
using forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows, forward::hide_unseen;
using forward::let_pass, forward::NO_KEY, forward::NoMask, forward::PRODUCER_REGISTERS, forward::release_Q;
using forward::store_rows, forward::Work;

// e4m3 ends at 448, and loses bits below 2^-6. A row's largest score weighs 2^4 when the row looks
// for it, a number of e4m3; 16 weights, a lane's share of half a tile, may be 2^0.8 times as large.
constexpr float WEIGHT_OF_MAX = 4, RESCALE_ABOVE = 0.8f;  // log2 units; 16 * 2^4.8 is 446
constexpr float SUM_LIMIT = 448;                          // of a lane's weights of a row and half a tile

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : bytes::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// ---- softmax -------------------------------------------------------------------------------------------------------

// Four bytes, e4m3, times a number.
__device__ __forceinline__ uint32_t scale_e4m3x4(uint32_t four, float by) {
  uint32_t scaled = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const uint32_t two = unpack_e4m3x2(uint16_t(four >> shift));
    const float low = to_float(f16{uint16_t(two)}) * by, high = to_float(f16{uint16_t(two >> 16)}) * by;
    scaled |= uint32_t{pack_e4m3x2(low, high)} << shift;
  }
  return scaled;
}

// Half of a tile's keys, as a mask. To it a tile has 64 keys, and keys are numbered so that it is right.
template <class Mask>
struct Half : Mask {
  int before;
  __device__ __forceinline__ Half(const Mask& mask, int before) : Mask(mask), before(before) {}
  __device__ __forceinline__ int first_of(int query) const { return Mask::first_of(query) - before; }
  __device__ __forceinline__ int end_of(int query) const { return Mask::end_of(query) - before; }
};

// f01_e4m3's, of half a tile at a time. A lane's share of two rows: their scores S become weights
// P = 2^(S * scale_log2 - base). `base` is the same in a row's four lanes. The sum of the weights tells whether it was
// enough: where it is below 448, so is each of them. If it is not, they are made again, and what the tile's first half
// has got already is shrunk.
template <int BC>
struct Softmax {
  using Scores = float (&)[BC / 16][4];
  using Weights = uint32_t (&)[BC / SLICE][4];
  static constexpr int SLICES = BC / SLICE / 2;  // of a half
  float scale_log2;                              // exp(s * softmax_scale * both scales) = 2^(s * scale_log2)
  float base[2], sum[2], correction[2];  // [lane_row]; base in log2 units; of all that came before the last weights
  bool careful;                          // the whole warp or none of it: a later tile of these queries raised a maximum

  // The scores of the first tile, which are both there.
  __device__ __forceinline__ void begin(float scale, Scores low, Scores high LADDER_SITE_PARAMETER) {
    scale_log2 = scale, careful = false;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float largest = quad_max(fmaxf(lane_max(low, lane_row), lane_max(high, lane_row)) LADDER_SITE);
      correction[lane_row] = 1;
      base[lane_row] = fmaxf(largest * scale_log2 - WEIGHT_OF_MAX, NO_KEY), sum[lane_row] = 0;
    }
  }
  __device__ __forceinline__ float largest(int lane_row) const { return base[lane_row]; }  // what LSE adds to

  // `P`: what was made of this tile.
  __device__ __forceinline__ void raise(const float (&to)[2], Weights P, int half) {
    float by[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      by[lane_row] = ex2_approx(base[lane_row] - to[lane_row]);  // 1 where nothing has grown
      base[lane_row] = to[lane_row];
      sum[lane_row] *= by[lane_row];
      correction[lane_row] *= by[lane_row];
    }
#pragma unroll
    for (int slice = 0; half == 1 && slice < SLICES; ++slice) {
      for (int reg = 0; reg < 4; ++reg) P[slice][reg] = scale_e4m3x4(P[slice][reg], by[reg % 2]);
    }
  }
  __device__ __forceinline__ void look(Scores S, Weights P, int half LADDER_SITE_PARAMETER) {
    float to[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) to[lane_row] = lane_max(S, lane_row) * scale_log2 - WEIGHT_OF_MAX;
    if (!vote_any(fmaxf(to[0] - base[0], to[1] - base[1]) > RESCALE_ABOVE LADDER_SITE)) return;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {  // a row that has not outgrown its own stays as it is
      to[lane_row] = quad_max(to[lane_row] LADDER_SITE);
      if (!(to[lane_row] - base[lane_row] > RESCALE_ABOVE)) to[lane_row] = base[lane_row];
    }
    raise(to, P, half);
  }
  // P = 2^S as bytes. `tile_sum` is the lane's share of the weights of each row.
  __device__ __forceinline__ static void make(Scores S, Weights P, float (&tile_sum)[2], int half) {
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-15 of the two rows; 2 and 3: keys 16-31
        const int tile = 4 * slice + reg / 2 * 2, lane_row = reg % 2;
        float weight[4];
        for (int i = 0; i < 4; ++i) weight[i] = ex2_approx(S[tile + i / 2][2 * lane_row + i % 2]);
        tile_sum[lane_row] += (weight[0] + weight[1]) + (weight[2] + weight[3]);
        P[half * SLICES + slice][reg] = pack_e4m3x2(weight[0], weight[1]) | uint32_t{pack_e4m3x2(weight[2], weight[3])}
                                                                                << 16;
      }
    }
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, int half, bool looks LADDER_SITE_PARAMETER) {
    float tile_sum[2];
    if (half == 0) correction[0] = correction[1] = 1;
    if (looks || careful) look(S, P, half LADDER_SITE);
    scale_scores(S, scale_log2, base);
    make(S, P, tile_sum, half);
    if (vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT LADDER_SITE))
      weigh_again(S, P, tile_sum, half LADDER_SITE);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
  }
  __device__ __forceinline__ void weigh_again(Scores S, Weights P, float (&tile_sum)[2],
                                              int half LADDER_SITE_PARAMETER) {
    float by[2], to[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      by[lane_row] = fmaxf(quad_max(lane_max(S, lane_row) LADDER_SITE) - WEIGHT_OF_MAX, 0.0f);
      to[lane_row] = base[lane_row] + by[lane_row];
    }
    raise(to, P, half);
    scale_scores(S, 1, by);
    make(S, P, tile_sum, half);
    careful = true;  // from now on
  }
};

// ---- the kernel ----------------------------------------------------------------------------------------------------

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 16;                                // S[64 x BC / 2] = Q[64 x d] K^T[d x BC / 2]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / SLICE;  // O[64 x d] += P[64 x BC] V[BC x d]
  constexpr int HALF = PV_N_TILES / 2;                               // of d, at a time
  const uint32_t warpgroup = threadIdx.x / 128;

  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
  Softmax<BC> softmax = {};
  using Scores = typename Softmax<BC>::Scores;
  using Weights = typename Softmax<BC>::Weights;
  float O_frag[PV_N_TILES][4];                           // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  float S_low[QK_N_TILES][4], S_high[QK_N_TILES][4];     // of a tile's first 64 keys, and of the others
  float new_O[HALF][4];                                  // of one tile of keys, and half of the columns
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), threadIdx.x % 128);
  };
  int round = 0;  // of Q and Work
  const auto start_QK = [&](int tile, int half, Scores S) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round));
    const uint64_t K_here = wgmma_advance(K_tiles, smem.K.at(tile) + half * (BC / 2) * ROW_BYTES);
    if (half == 0) smem.K.wait_full(tile);
    wgmma_fence(S);
    issue_QK(S, Q_here, K_here);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, Weights P_frag, float(&to)[HALF][4], int half) {
    // V's rows here are columns of O: the second 64 of them.
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile) + half * (HEAD_DIM / 2) * C::BC);
    half == 0 ? wgmma_fence(to, P_frag) : wgmma_fence(to);  // P may be on its way already
    // PV  Like QK; but P comes from registers. The sums begin anew: a tensor core keeps 14 bits, enough for 128 keys.
    issue_PV(to, P_frag, V_here);
    wgmma_commit();
  };
  int begin = 0, end = 0;                                // of the tiles of keys
  const auto hide = [&](Scores S, int tile, int half) {  // whether a row may meet its first key there
    const Work work = smem.told(round);
    const int before = (tile - work[Work::ZERO] + half) * (BC / 2);
    return hide_unseen(S, Half<Mask>(Mask(p), before), work, tile);
  };
  const auto weigh = [&](Scores S, int tile, int half, Weights P, bool may_be_masked) {
    const bool looks = may_be_masked && hide(S, tile, half);
    softmax.weigh(S, P, half, looks);
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_last = false) {
    const float correction[2] = {softmax.correction[0], softmax.correction[1]};  // for the tile before
    start_QK(tile, 1, S_high);
    smem.V.wait_full(tile - 1);
    start_PV(tile - 1, P_before, new_O, 0);
    // SOFTMAX  Of the first half, beside QK of the second one.
    weigh(S_low, tile, 0, P_here, may_be_last);
    wgmma_wait<0>(S_high, new_O);  // safe to read them: both products are done
    release(smem.K, tile);
    add_half(O_frag, new_O, 0, correction);
    // Twice in the machine code: ptxas would wait after every product, if S might be on its way and might not.
    const auto weigh_high = [&](bool has_next) {
      if (has_next) start_QK(tile + 1, 0, S_low);
      start_PV(tile - 1, P_before, new_O, 1);
      weigh(S_high, tile, 1, P_here, may_be_last);
      wgmma_wait<0>(S_low, new_O, P_before);  // safe to touch the old P, too: PV is done
    };
    if (!may_be_last || tile + 1 < end) {
      weigh_high(true);
    } else {
      weigh_high(false);
    }
    release(smem.V, tile - 1);
    add_half(O_frag, new_O, 1, correction);
  };
  float normalise[2];
  const auto finish = [&](int tile, Weights P_last) {
    float other_half[HALF][4];  // nobody needs S now
    smem.V.wait_full(tile);
    start_PV(tile, P_last, new_O, 0);
    start_PV(tile, P_last, other_half, 1);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    for (float& by : normalise) by *= smem.told(round).number(V_SCALE);
    wgmma_wait<0>(new_O, other_half, P_last);  // safe to touch them: the last PV is done
    release(smem.V, tile);
    add_half(O_frag, new_O, 0, softmax.correction);
    add_half(O_frag, other_half, 1, softmax.correction);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them.
    store_rows<typename C::Element, BR, !Mask::IS_WHOLE>(smem.more, O_frag, normalise, smem.told(round), p.heads,
                                                         O_map);
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN], 0, S_low);
  start_QK(smem.told(0)[Work::BEGIN], 1, S_high);
  wgmma_wait<0>(S_low, S_high);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    hide(S_low, begin, 0), hide(S_high, begin, 1);
    softmax.begin(work.number(SCALE_LOG2), S_low, S_high);
    softmax.weigh(S_low, P_even, 0, false);
    if (begin + 1 < end) {
      start_QK(begin + 1, 0, S_low);
      softmax.weigh(S_high, P_even, 1, false);
      wgmma_wait<0>(S_low);  // safe to read it
    } else {
      softmax.weigh(S_high, P_even, 1, false);
    }
    for (auto& tile : O_frag) {
      for (float& sum : tile) sum = 0;
    }
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = min(work[Work::WHOLE_END], end - 1); tile + 1 < whole_end; tile += 2) {
        step(tile, P_even, P_odd);
        step(tile + 1, P_odd, P_even);
      }
    }
    for (; tile < end; tile += 2) {  // four at most, but in a window all
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
    start_QK(smem.told(round)[Work::BEGIN], 0, S_low);
    start_QK(smem.told(round)[Work::BEGIN], 1, S_high);
    store(round - 1);              // beside QK
    wgmma_wait<0>(S_low, S_high);  // safe to read S: QK is done
  }
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ByteInputParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, BLOCKS = C::BLOCKS;
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(Mask::IS_WINDOW == (BLOCKS == 1), "in a window blocks work alone");
  static_assert(BR == BC && BC == HEAD_DIM, "of a pair one block needs one tile of keys more; all tiles are squares");

  const Smem<C> smem;
  smem.name();
  smem_name(smem.more, C::O_BYTES, "O", 128);
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  // LOAD  A block brings its rows of a tile of K or V to both; the other brings its own here.
  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<false>>();
    if (threadIdx.x == WARPS * 32)
      copy_tiles<C, Mask>(p, smem, [&](const auto& queries) { load<C>(p, smem, queries, Q_map, K_map, V_map); });
    __syncwarp();  // the cluster's barrier takes whole warps
    end_together<BLOCKS>();
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS<false>>();  // waits until the producer has given its registers back
  attend<C, Mask>(p, smem, O_map);
  end_together<BLOCKS>();
}

// LAUNCH  First V is turned. Then as many blocks as run at the same time, one per SM, in pairs, or fewer where there is
//         less to do. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C, class Mask>
void start(Device& device, const ByteInputParams& p) {
  start_turned<C, Mask>(device, p, [&](dim3 grid, const auto&... maps) {
    launch_clusters(device, flash_attention<C, Mask>, grid, dim3(C::THREADS), C::BLOCKS, C::SMEM_BYTES, p, maps...);
  });
}

template <class C>
void run(Device& device, const ByteInputParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_masked<C>(p, [&]<class Tile, class Mask>() { start<Tile, Mask>(device, p); });
}

}  // namespace
