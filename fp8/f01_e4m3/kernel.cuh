// f01_e4m3: Q, K, V and the weights P are bytes, e4m3, of which tensor cores multiply twice as many.
// Before:  48_scores multiplies 16 bits. Its scores, masks and schedule are the same here.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 256 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] e4m3; K, V: [batch, kv_heads, n_k, d] e4m3; O: as Q, f16 or bf16; in any strides.
//          Their scales: [batch, heads] and [batch, kv_heads] f32. LSE: [batch, heads, n_q] f32.
//          The workspace: V with keys as columns, [batch, kv_heads, 128, n_k rounded up to 128] e4m3.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 45_varlen and 46_alone what starts a kernel.
using forward::blocks_for, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::hide_unseen, forward::let_pass, forward::LOG2E, forward::NO_KEY, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::Queries, forward::release_Q, forward::rows_map, forward::Schedule;
using forward::store_rows, forward::Work;

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM;  // of Q and K: one panel, the most that the engine swizzles; V has 128 keys in one
constexpr int SLICE = 32;            // bytes of a row, and elements, that one instruction multiplies

// e4m3 ends at 448, and loses bits below 2^-6. A row's largest score weighs 2^3.75 when the row looks for it, so that
// 32 such weights, a lane's share of a tile, add up to less; and those 9.75 powers of two below lose nothing.
constexpr float WEIGHT_OF_MAX = 3.75f, RESCALE_ABOVE = 0.05f;  // log2 units; 32 * 2^3.8 is 446
constexpr float SUM_LIMIT = 448;                               // of a lane's weights of a row and tile

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. O, of 16
// bits, has a place of its own.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 2;
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + O_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES, 2, C::O_BYTES>;

// What the thread that copies tells of a tile of queries, beside its head: f32.
enum { SCALE_LOG2 = Work::BESIDES, V_SCALE };

// A head's scales. That of scores times softmax_scale is not 0: hidden ones, -infinity, would be NaN.
struct Scales {
  float of_scores, of_V;
  __device__ __forceinline__ Scales(const ByteInputParams& p, int of_all) {
    const int sequence = of_all / p.heads, head = of_all % p.heads, kv_head = head / (p.heads / p.kv_heads);
    const auto scale = [&](const ByteInputParams::Scales& scales, int head) {
      return ld_global_f32(scales.data + sequence * scales.batch + head * scales.head);
    };
    const float product = p.softmax_scale * scale(p.Q_scales, head) * scale(p.K_scales, kv_head);
    of_scores = product == 0 ? 0x1p-80f : product;
    of_V = scale(p.V_scales, kv_head);
  }
};

// ---- V with keys as columns ----------------------------------------------------------------------------------------

// A product of bytes sums along rows, of both factors: so V's columns must be rows.
template <class C>
__host__ __device__ __forceinline__ int64_t padded(int n_k) {
  return (int64_t{n_k} + C::BC - 1) / C::BC * C::BC;
}

// TURN  A warp takes 32 keys of a head, a lane four columns of them, and writes those as four rows; behind the last key
//       zeros. The order of keys is that of P's registers. A lane has of the scores of 16 keys numbers 2c, 2c + 1, 8 +
//       2c and 9 + 2c (two FragmentC), and a register of A holds four elements that stand side by side: so they do.
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

// ---- softmax -------------------------------------------------------------------------------------------------------

// 43_window's, of bytes. A lane's share of two rows: their scores S become weights P = 2^(S * scale_log2 - base).
// `base` is the same in a row's four lanes. The sum of the weights tells whether it was enough: where it is below 448,
// so is each of them. If it is not, they are made again.
template <int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / SLICE][4];
  float scale_log2;                      // exp(s * softmax_scale * both scales) = 2^(s * scale_log2)
  float base[2], sum[2], correction[2];  // [lane_row]; base in log2 units
  bool careful;                          // the whole warp or none of it: a later tile of these queries raised a maximum
  bool rescale;                          // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin(float scale) {
    scale_log2 = scale, careful = false;
    for (int lane_row = 0; lane_row < 2; ++lane_row) base[lane_row] = NO_KEY, sum[lane_row] = 0;
  }
  __device__ __forceinline__ float largest(int lane_row) const { return base[lane_row]; }  // what LSE adds to

  __device__ __forceinline__ void raise(int lane_row, float to) {
    correction[lane_row] = ex2_approx(base[lane_row] - to);  // 1 where nothing has grown
    base[lane_row] = to;
    sum[lane_row] *= correction[lane_row];
  }
  __device__ __forceinline__ void look(Scores S, bool is_first LADDER_SITE_PARAMETER) {
    float to[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) to[lane_row] = lane_max(S, lane_row) * scale_log2 - WEIGHT_OF_MAX;
    rescale = is_first || vote_any(fmaxf(to[0] - base[0], to[1] - base[1]) > RESCALE_ABOVE LADDER_SITE);
    if (!rescale) return;
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      raise(lane_row, fmaxf(quad_max(to[lane_row] LADDER_SITE), base[lane_row]));
  }
  // P = 2^S as bytes. `tile_sum` is the lane's share of the weights of each row.
  __device__ __forceinline__ static void make(Scores S, Weights P, float (&tile_sum)[2]) {
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int slice = 0; slice < BC / SLICE; ++slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-15 of the two rows; 2 and 3: keys 16-31
        const int tile = 4 * slice + reg / 2 * 2, lane_row = reg % 2;
        float weight[4];
        for (int i = 0; i < 4; ++i) weight[i] = ex2_approx(S[tile + i / 2][2 * lane_row + i % 2]);
        tile_sum[lane_row] += (weight[0] + weight[1]) + (weight[2] + weight[3]);
        P[slice][reg] = pack_e4m3x2(weight[0], weight[1]) | uint32_t{pack_e4m3x2(weight[2], weight[3])} << 16;
      }
    }
  }
  // The whole warp: an exchange needs it. `looks`: also where it is not careful.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first, bool looks LADDER_SITE_PARAMETER) {
    rescale = false;
    float tile_sum[2];
    if (looks || careful || is_first) look(S, is_first LADDER_SITE);
    scale_scores(S, scale_log2, base);
    make(S, P, tile_sum);
    if (!is_first && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT LADDER_SITE))
      weigh_again(S, P, tile_sum LADDER_SITE);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
  }
  __device__ __forceinline__ void weigh_again(Scores S, Weights P, float (&tile_sum)[2] LADDER_SITE_PARAMETER) {
    float by[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float largest = quad_max(lane_max(S, lane_row) LADDER_SITE), before = rescale ? correction[lane_row] : 1;
      by[lane_row] = fmaxf(largest - WEIGHT_OF_MAX, 0.0f);
      raise(lane_row, base[lane_row] + by[lane_row]);
      correction[lane_row] *= before;
    }
    scale_scores(S, 1, by);
    make(S, P, tile_sum);
    rescale = careful = true;  // from now on
  }
};

// ---- the kernel ----------------------------------------------------------------------------------------------------

// LOAD  A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K or V to
//       both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C>
__device__ __forceinline__ void load(const ByteInputParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int BLOCKS = C::BLOCKS, PART = 128 / BLOCKS;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const int part = cluster_rank() * PART, last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) {
      smem.K.claim(tile);
      cp_async_bulk_tensor_4d_multicast(smem.K.tiles + smem.K.at(tile) + part * ROW_BYTES, K_map, 0,
                                        queries.in_K(tile) * C::BC + part, kv_head, sequence, smem.K.full_of(tile),
                                        (1 << BLOCKS) - 1);
    }
    if (tile > queries.first) {
      smem.V.claim(tile - 1);
      cp_async_bulk_tensor_4d_multicast(smem.V.tiles + smem.V.at(tile - 1) + part * ROW_BYTES, V_map,
                                        queries.in_K(tile - 1) * C::BC, part, kv_head, sequence,
                                        smem.V.full_of(tile - 1), (1 << BLOCKS) - 1);
    }
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / SLICE;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / SLICE;  // O[64 x d] += P[64 x BC] V[BC x d]
  const uint32_t warpgroup = threadIdx.x / 128;

  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
  Softmax<BC> softmax = {};
  using Weights = typename Softmax<BC>::Weights;
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
#pragma unroll
    for (int slice = 0; slice < QK_K_TILES; ++slice)
      wgmma_ss_e4m3(S_frag, wgmma_advance(Q_here, slice * SLICE), wgmma_advance(K_here, slice * SLICE), slice > 0);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, Weights P_frag, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
#pragma unroll
    for (int slice = 0; slice < PV_K_TILES; ++slice)
      wgmma_rs_e4m3(O_frag, P_frag[slice], wgmma_advance(V_here, slice * SLICE), slice > 0 || !is_first);
    wgmma_commit();
  };
  int begin = 0, end = 0;  // of the tiles of keys
  const auto step = [&](int tile, Weights P_before, Weights P_here, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, P_before, tile - 1 == begin);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
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
    for (float& by : normalise) by *= smem.told(round).number(V_SCALE);
    wgmma_wait<0>(O_frag, P_last);  // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them.
    store_rows<typename C::Element, BR, !Mask::IS_WHOLE>(smem.more, O_frag, normalise, smem.told(round), p.heads,
                                                         O_map);
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    release(smem.K, begin);
    hide_unseen(S_frag, Mask(p), work, begin);
    softmax.begin(work.number(SCALE_LOG2));
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

  if (threadIdx.x / 32 >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS<false>>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      while (const auto queries = walk.next()) {
        smem.Q.wait_empty(queries.round);
        const Scales scales(p, queries.head);
        walk.tell(queries, smem.told(queries.round), __float_as_int(scales.of_scores * LOG2E),
                  __float_as_int(scales.of_V), 0);
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

// LAUNCH  First V is turned. Then as many blocks as run at the same time, one per SM, in pairs, or fewer where there is
//         less to do. The pointers of `p` belong to the device and are multiples of 16 B, as are strides. A map tells
//         the copy engine where rows end: what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask>
void start(Device& device, const ByteInputParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, uint32_t rows) {
    return tensor_map_4d(device, static_cast<const e4m3*>(tensor),
                         {uint32_t(p.d), uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
                         {uint64_t(strides.row), uint64_t(strides.head), uint64_t(strides.batch)}, {128, rows, 1, 1});
  };
  const uint64_t row = padded<C>(p.n_k);
  launch(device, turn_V<C>, dim3(uint32_t(row / C::BC * p.kv_heads * p.batch)), dim3(128), 0, p);
  const TensorMap V_map = tensor_map_4d(
      device, static_cast<const e4m3*>(p.workspace), {row, uint64_t(HEAD_DIM), uint64_t(p.kv_heads), uint64_t(p.batch)},
      {row, row * HEAD_DIM, row * HEAD_DIM * p.kv_heads}, {uint32_t(C::BC), uint32_t(HEAD_DIM / C::BLOCKS), 1, 1});
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS), V_map,
                  rows_map<typename C::Element>(device, p.O, p.O_strides, p.d, p.n_q, p.heads, p.batch, 16));
}

template <class C>
void run(Device& device, const ByteInputParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_masked<C>(p, [&]<class Tile, class Mask>() { start<Tile, Mask>(device, p); });
}

}  // namespace
