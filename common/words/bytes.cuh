// Attention of bytes, parts of kernels of fp8/: what f01_e4m3 and the rungs behind it spell out, and later ones say.
#pragma once
#include "common/words/forward.cuh"

namespace bytes {
namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM;  // of Q and K: one panel, the most that the engine swizzles; V has 128 keys in one
constexpr int SLICE = 32;            // bytes of a row, and elements, that one instruction multiplies

// f03_ahead. e4m3 ends at 448, and loses bits below 2^-6. A row's largest score weighs 2^4 when the row looks
// for it, a number of e4m3; 16 weights, a lane's share of half a tile, may be 2^0.8 times as large.
constexpr float WEIGHT_OF_MAX = 4, RESCALE_ABOVE = 0.8f;  // log2 units; 16 * 2^4.8 is 446
constexpr float SUM_LIMIT = 448;                          // of a lane's weights of a row and half a tile

// f01_e4m3. What a Config says of a block's tile, and the shared memory that it takes. O, of 16 bits, has a place of
// its own.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS>
struct Tile : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 2;
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES + O_BYTES + (4 * STAGES + 4) * 8 +
                                         2 * forward::Work::BYTES;  // and mbarriers and Works
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, C::O_BYTES>;  // f01_e4m3

// f01_e4m3. What the thread that copies tells of a tile of queries, beside its head: f32.
enum { SCALE_LOG2 = forward::Work::BESIDES, V_SCALE };

// f01_e4m3. A head's scales. That of scores times softmax_scale is not 0: hidden ones, -infinity, would be NaN.
struct Scales {
  float of_scores, of_V;
  __device__ __forceinline__ Scales(const ByteInputParams& p, int of_all LADDER_SITE_PARAMETER) {
    const int sequence = of_all / p.heads, head = of_all % p.heads, kv_head = head / (p.heads / p.kv_heads);
    const auto scale = [&](const ByteInputParams::Scales& scales, int head) {
      return ld_global_f32(scales.data + sequence * scales.batch + head * scales.head LADDER_SITE);
    };
    const float product = p.softmax_scale * scale(p.Q_scales, head) * scale(p.K_scales, kv_head);
    of_scores = product == 0 ? 0x1p-80f : product;
    of_V = scale(p.V_scales, kv_head);
  }
};

// f01_e4m3. A product of bytes sums along rows, of both factors: so V's columns must be rows.
template <class C>
__host__ __device__ __forceinline__ int64_t padded(int n_k) {
  return (int64_t{n_k} + C::BC - 1) / C::BC * C::BC;
}

// TURN  (f01_e4m3) A warp takes 32 keys of a head, a lane four columns of them, and writes those as four rows; behind
//       the last key zeros. The order of keys is that of P's registers. A lane has of the scores of 16 keys numbers 2c,
//       2c + 1, 8 + 2c and 9 + 2c (two FragmentC), and a register of A holds four elements that stand side by side: so
//       they do.
template <class C>
__global__ void __launch_bounds__(128) turn_V(ByteInputParams p) {
  const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * 4, tiles = int(padded<C>(p.n_k) / C::BC);
  const int head = blockIdx.x / tiles, first_key = blockIdx.x % tiles * C::BC + warp * 32;
  const uint8_t* const V = static_cast<const uint8_t*>(p.V) + head / p.kv_heads * p.V_strides.batch +
                           head % p.kv_heads * p.V_strides.head + column;
  uint32_t four[32];  // columns of each key
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int key = first_key + i;
    four[i] = key < p.n_k && column < p.d ? ld_global_b32(V + key * p.V_strides.row) : 0;
  }
  uint32_t rows[4][8];  // [column][four keys]
#pragma unroll
  for (int of_16 = 0; of_16 < 32; of_16 += 16) {
    for (int c = 0; c < 4; ++c) {
      const uint32_t *const low = &four[of_16 + 2 * c], *const high = low + 8;
      for (int half = 0; half < 2; ++half) {  // columns 0 and 1, or 2 and 3: of two keys each
        const uint32_t pairs = half == 0 ? 0x5140 : 0x7362;
        const uint32_t two = prmt_b32(low[0], low[1], pairs), others = prmt_b32(high[0], high[1], pairs);
        rows[2 * half][of_16 / 4 + c] = prmt_b32(two, others, 0x5410);
        rows[2 * half + 1][of_16 / 4 + c] = prmt_b32(two, others, 0x7632);
      }
    }
  }
  uint8_t* const turned = static_cast<uint8_t*>(p.workspace) + (int64_t{head} * HEAD_DIM + column) * padded<C>(p.n_k);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    for (int of_16 = 0; of_16 < 2; ++of_16) {
      const uint32_t* const row = &rows[i][of_16 * 4];
      st_global_v4(turned + i * padded<C>(p.n_k) + first_key + of_16 * 16, {row[0], row[1], row[2], row[3]});
    }
  }
}

// LOAD  (f01_e4m3) A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K
//       or V to both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C, class Smem>
__device__ __forceinline__ void load(const ByteInputParams& p, const Smem& smem, const forward::Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map,
                                     const TensorMap& V_map LADDER_SITE_PARAMETER) {
  constexpr int BLOCKS = C::BLOCKS, PART = 128 / BLOCKS;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round LADDER_SITE);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round) LADDER_SITE);
  const int part = cluster_rank() * PART, last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) {
      smem.K.claim(tile LADDER_SITE);
      cp_async_bulk_tensor_4d_multicast(smem.K.tiles + smem.K.at(tile) + part * ROW_BYTES, K_map, 0,
                                        queries.in_K(tile) * C::BC + part, kv_head, sequence, smem.K.full_of(tile),
                                        (1 << BLOCKS) - 1 LADDER_SITE);
    }
    if (tile > queries.first) {
      smem.V.claim(tile - 1 LADDER_SITE);
      cp_async_bulk_tensor_4d_multicast(smem.V.tiles + smem.V.at(tile - 1) + part * ROW_BYTES, V_map,
                                        queries.in_K(tile - 1) * C::BC, part, kv_head, sequence,
                                        smem.V.full_of(tile - 1), (1 << BLOCKS) - 1 LADDER_SITE);
    }
  }
}

// f01_e4m3. All that the thread that copies does: it tells the others of each tile of queries, and asks for that and
// its keys by `load`.
template <class C, class Mask, class Smem, class Load>
__device__ __forceinline__ void copy_tiles(const ByteInputParams& p, const Smem& smem,
                                           Load load LADDER_SITE_PARAMETER) {
  forward::Schedule<C, Mask> walk(p);
  while (const auto queries = walk.next()) {
    smem.Q.wait_empty(queries.round LADDER_SITE);
    const Scales scales(p, queries.head LADDER_SITE);
    walk.tell(queries, smem.told(queries.round), __float_as_int(scales.of_scores * forward::LOG2E),
              __float_as_int(scales.of_V), 0 LADDER_SITE);
    load(queries);
  }
  smem.Q.wait_empty(walk.round LADDER_SITE);
  smem.told(walk.round).tell({walk.first} LADDER_SITE);  // and no more
  mbarrier_arrive(smem.Q.full_of(walk.round) LADDER_SITE);
}

// ---- products ------------------------------------------------------------------------------------------------------

// f01_e4m3. S[64 x 8 TILES] = Q[64 x d] K^T[d x 8 TILES], a warpgroup's, between a wgmma_fence and a wgmma_commit.
template <int TILES>
__device__ __forceinline__ void issue_QK(float (&S)[TILES][4], uint64_t Q, uint64_t K LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < HEAD_DIM / SLICE; ++slice)
    wgmma_ss_e4m3(S, wgmma_advance(Q, slice * SLICE), wgmma_advance(K, slice * SLICE), slice > 0 LADDER_SITE);
}

// f02_two. Half of O's columns, of one tile of keys: the sums begin anew, and go to O in f32.
template <int TILES, int SLICES>
__device__ __forceinline__ void issue_PV(float (&to)[TILES][4], const uint32_t (&P)[SLICES][4],
                                         uint64_t V LADDER_SITE_PARAMETER) {
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
    wgmma_rs_e4m3(to, P[slice], wgmma_advance(V, slice * SLICE), slice > 0 LADDER_SITE);
}
template <int TILES>
__device__ __forceinline__ void add_half(float (&O)[2 * TILES][4], const float (&found)[TILES][4], int half,
                                         const float (&correction)[2]) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    for (int i = 0; i < 4; ++i) {
      float& sum = O[half * TILES + tile][i];
      sum = sum * correction[i / 2] + found[tile][i];  // to rescale costs nothing
    }
  }
}

// ---- softmax, of half a tile -------------------------------------------------------------------------------------

// f03_ahead. Four bytes, e4m3, times a number.
__device__ __forceinline__ uint32_t scale_e4m3x4(uint32_t four, float by) {
  uint32_t scaled = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const uint32_t two = unpack_e4m3x2(uint16_t(four >> shift));
    const float low = to_float(f16{uint16_t(two)}) * by, high = to_float(f16{uint16_t(two >> 16)}) * by;
    scaled |= uint32_t{pack_e4m3x2(low, high)} << shift;
  }
  return scaled;
}

// f03_ahead. Half of a tile's keys, as a mask. To it a tile has 64 keys, and keys are numbered so that it is right.
template <class Mask>
struct Half : Mask {
  int before;
  __device__ __forceinline__ Half(const Mask& mask, int before) : Mask(mask), before(before) {}
  __device__ __forceinline__ int first_of(int query) const { return Mask::first_of(query) - before; }
  __device__ __forceinline__ int end_of(int query) const { return Mask::end_of(query) - before; }
};

// f03_ahead. A lane's share of two rows: their scores S become weights P = 2^(S * scale_log2 - base).
// `base` is the same in a row's four lanes. The sum of the weights tells whether it was enough: where it is below 448,
// so is each of them. If it is not, they are made again, and what the tile's first half has got already is shrunk.
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
      base[lane_row] = fmaxf(largest * scale_log2 - WEIGHT_OF_MAX, forward::NO_KEY), sum[lane_row] = 0;
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

// ---- attention -----------------------------------------------------------------------------------------------------

// f03_ahead. What a warpgroup does: QK of each half of a tile of keys that its 64 queries see beside the weights of the
// half before, and beside PV of the tile before. `release`: it has read a ring's tile.
template <class C, class Mask, class Smem, class Release>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem& smem, const TensorMap& O_map,
                                       const Release& release LADDER_SITE_PARAMETER) {
  using forward::Work;
  constexpr int BR = C::BR, BC = C::BC;
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

  int round = 0;  // of Q and Work
  const auto start_QK = [&](int tile, int half, Scores S) {
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round));
    const uint64_t K_here = wgmma_advance(K_tiles, smem.K.at(tile) + half * (BC / 2) * ROW_BYTES);
    if (half == 0) smem.K.wait_full(tile LADDER_SITE);
    wgmma_fence(S);
    issue_QK(S, Q_here, K_here LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
  };
  const auto start_PV = [&](int tile, Weights P_frag, float(&to)[HALF][4], int half) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile) + half * (HEAD_DIM / 2) * C::BC);
    half == 0 ? wgmma_fence(to, P_frag) : wgmma_fence(to);  // P may be on its way already
    issue_PV(to, P_frag, V_here LADDER_SITE);
    wgmma_commit(LADDER_SITE_ALONE);
  };
  int begin = 0, end = 0;                                // of the tiles of keys
  const auto hide = [&](Scores S, int tile, int half) {  // whether a row may meet its first key there
    const Work work = smem.told(round);
    const int before = (tile - work[{Work::ZERO LADDER_SITE}] + half) * (BC / 2);
    return forward::hide_unseen(S, Half<Mask>(Mask(p), before), work, tile LADDER_SITE);
  };
  const auto weigh = [&](Scores S, int tile, int half, Weights P, bool may_be_masked) {
    const bool looks = may_be_masked && hide(S, tile, half);
    softmax.weigh(S, P, half, looks LADDER_SITE);
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_last = false) {
    const float correction[2] = {softmax.correction[0], softmax.correction[1]};  // for the tile before
    start_QK(tile, 1, S_high);
    smem.V.wait_full(tile - 1 LADDER_SITE);
    start_PV(tile - 1, P_before, new_O, 0);
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
    smem.V.wait_full(tile LADDER_SITE);
    start_PV(tile, P_last, new_O, 0);
    start_PV(tile, P_last, other_half, 1);
    forward::finish_rows<Mask>(p, smem.told(round), softmax, normalise LADDER_SITE);  // beside PV
    for (float& by : normalise) by *= smem.told(round).number(V_SCALE LADDER_SITE);
    wgmma_wait<0>(new_O, other_half, P_last);  // safe to touch them: the last PV is done
    release(smem.V, tile);
    add_half(O_frag, new_O, 0, softmax.correction);
    add_half(O_frag, other_half, 1, softmax.correction);
  };
  const auto store = [&](int round) {
    forward::store_rows<typename C::Element, BR, !Mask::IS_WHOLE>(smem.more, O_frag, normalise, smem.told(round),
                                                                  p.heads, O_map LADDER_SITE);
  };

  smem.Q.wait_full(0 LADDER_SITE);
  start_QK(smem.told(0)[{Work::BEGIN LADDER_SITE}], 0, S_low);
  start_QK(smem.told(0)[{Work::BEGIN LADDER_SITE}], 1, S_high);
  wgmma_wait<0>(S_low, S_high);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[{Work::BEGIN LADDER_SITE}], end = work[{Work::END LADDER_SITE}];
    release(smem.K, begin);
    hide(S_low, begin, 0), hide(S_high, begin, 1);
    softmax.begin(work.number(SCALE_LOG2 LADDER_SITE), S_low, S_high LADDER_SITE);
    softmax.weigh(S_low, P_even, 0, false LADDER_SITE);
    if (begin + 1 < end) {
      start_QK(begin + 1, 0, S_low);
      softmax.weigh(S_high, P_even, 1, false LADDER_SITE);
      wgmma_wait<0>(S_low);  // safe to read it
    } else {
      softmax.weigh(S_high, P_even, 1, false LADDER_SITE);
    }
    for (auto& tile : O_frag) {
      for (float& sum : tile) sum = 0;
    }
    forward::release_Q(smem.Q, round - 1 LADDER_SITE);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      const int whole_end = min(work[{Work::WHOLE_END LADDER_SITE}], end - 1);
      for (; tile + 1 < whole_end; tile += 2) {
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
    smem.Q.wait_full(round LADDER_SITE);
    const int next = smem.told(round)[{Work::BEGIN LADDER_SITE}];
    forward::let_pass<Mask::GROWS, C::BLOCKS>(smem.K, smem.V, end, next, release LADDER_SITE);  // or all
    if (!smem.told(round)[{Work::MORE LADDER_SITE}]) break;
    start_QK(smem.told(round)[{Work::BEGIN LADDER_SITE}], 0, S_low);
    start_QK(smem.told(round)[{Work::BEGIN LADDER_SITE}], 1, S_high);
    store(round - 1);              // beside QK
    wgmma_wait<0>(S_low, S_high);  // safe to read S: QK is done
  }
  store(round - 1);
  forward::release_Q(smem.Q, round - 1 LADDER_SITE);
}

// ---- LAUNCH --------------------------------------------------------------------------------------------------------

// f01_e4m3. The map of Q, K or V as they come, bytes in any strides, for boxes of `rows` rows.
inline TensorMap byte_map(Device& device, const ByteInputParams& p, const void* tensor,
                          const ForwardParams::Strides& strides, int heads, int n, uint32_t rows) {
  return tensor_map_4d(device, static_cast<const e4m3*>(tensor),
                       {uint32_t(p.d), uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
                       {uint64_t(strides.row), uint64_t(strides.head), uint64_t(strides.batch)}, {128, rows, 1, 1});
}

// f01_e4m3. First V is turned, then a kernel starts, by start(grid, maps of Q, K, turned V and O ...).
template <class C, class Mask, class Start>
void start_turned(Device& device, const ByteInputParams& p, Start start) {
  const uint64_t row = padded<C>(p.n_k);
  launch(device, turn_V<C>, dim3(uint32_t(row / C::BC * p.kv_heads * p.batch)), dim3(128), 0, p);
  const TensorMap V_map = tensor_map_4d(
      device, static_cast<const e4m3*>(p.workspace), {row, uint64_t(HEAD_DIM), uint64_t(p.kv_heads), uint64_t(p.batch)},
      {row, row * HEAD_DIM, row * HEAD_DIM * p.kv_heads}, {uint32_t(C::BC), uint32_t(HEAD_DIM / C::BLOCKS), 1, 1});
  start(dim3(forward::blocks_for<C, Mask>(device, p)), byte_map(device, p, p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
        byte_map(device, p, p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS), V_map,
        forward::rows_map<typename C::Element>(device, p.O, p.O_strides, p.d, p.n_q, p.heads, p.batch, 16));
}

}  // namespace
}  // namespace bytes
