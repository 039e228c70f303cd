// f07_halves: QK of the next 64 keys, and PV of those before, run under the softmax of these.
// Before:  f06_logarithm starts QK when it has made weights of the scores before: they have the same registers.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 195 KiB and 192 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] e4m3; K, V: [batch, kv_heads, n_k, d] e4m3; O: as Q, f16 or bf16; in any strides.
//          Their scales: [batch, heads] and [batch, kv_heads] f32. No LSE.
//          The workspace: V with keys as columns, [batch, kv_heads, 128, n_k rounded up to 128] e4m3.
#pragma once
#include "common/gpu.cuh"
#include "common/words/bytes.cuh"

namespace {

// f01_e4m3 spells these out.
using bytes::copy_tiles, bytes::HEAD_DIM, bytes::issue_QK, bytes::load, bytes::padded, bytes::ROW_BYTES;
using bytes::SCALE_LOG2, bytes::SLICE, bytes::start_turned, bytes::V_SCALE;
// 44_told spells these out, 45_varlen what starts a kernel.
using forward::CONSUMER_REGISTERS, forward::end_together, forward::hide_unseen, forward::let_pass, forward::NO_KEY;
using forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::release_Q, forward::store_rows, forward::Work;

constexpr uint32_t ONES_BYTES =
    8 * 128;  // eight more rows of turned V, of ones: a column of O that is the sum of weights

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. What is put
// aside of O are f32, four panels of 128 rows; two of them are O's way out, too.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : bytes::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  using Base = bytes::Tile<T, BR, BC, WARPS, STAGES, BLOCKS>;
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 4;
  static constexpr uint32_t SMEM_BYTES = Base::SMEM_BYTES - Base::O_BYTES + O_BYTES + STAGES * ONES_BYTES;
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// bytes::Smem, but that behind each tile of V there are ones.
template <class C>
struct Smem : forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + C::STAGES * ONES_BYTES> {
  using Base = forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + C::STAGES * ONES_BYTES>;
  static constexpr uint32_t TILE_BYTES = Base::TILE_BYTES;
  struct RingV : Ring<C::STAGES, TILE_BYTES> {
    __device__ __forceinline__ static uint32_t at(int tile) { return tile % C::STAGES * (TILE_BYTES + ONES_BYTES); }
  };
  RingV V{Base::V};
  uint32_t O = this->more + C::STAGES * ONES_BYTES;

  // ONES  Once, by `threads` of them: what the copy engine brings lies before them.
  __device__ __forceinline__ void write_ones(int thread, int threads) const {
    for (uint32_t at = thread * 16; at < C::STAGES * ONES_BYTES; at += threads * 16)
      st_shared_v4(V.tiles + V.at(at / ONES_BYTES) + TILE_BYTES + at % ONES_BYTES,
                   {0x38383838, 0x38383838, 0x38383838, 0x38383838});
    fence_proxy_async_shared();  // products will find what this thread has stored
  }
};

// ---- softmax -------------------------------------------------------------------------------------------------------

// The bits of a number of e4m3, 2^e (1 + m / 8), are 8 (e + 7) + m: nearly 8 (log2(number) + 7), less by 0.69 at most.
// So a weight 2^x gets the bits 8 x + CODE_OF_MAX, rounded, where x is 0 for the row's maximum: from 126, which is 448,
// down to 0. 0.45 less than a power of two has takes from the others what they are too large by, on average.
constexpr float CODES = 8, CODE_OF_MAX = CODES * (6 + 7) - 0.45f, LAST_CODE = 126, OF_LAST = 1 / LAST_CODE;
constexpr float ROOM = (LAST_CODE - CODE_OF_MAX) / CODES;  // log2 units that a maximum may have grown by

// A lane's share of two rows: their scores S become weights P. `base` is a maximum of the row, and no score is above it
// by more than ROOM; it is the same in a row's four lanes.
template <int KEYS>
struct Softmax {
  using Scores = float (&)[KEYS / 8][4];
  using Weights = uint32_t (&)[KEYS / SLICE][4];
  float scale_log2;              // exp(s * softmax_scale * both scales) = 2^(s * scale_log2)
  float base[2], correction[2];  // [lane_row]; base in log2 units
  bool rescale;                  // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin(float scale) {
    scale_log2 = scale;
    base[0] = base[1] = NO_KEY;
  }
  // The whole warp: an exchange needs it. S stays as it is, so that weights can be made again with a maximum that fits.
  // A score that is NaN makes the row NaN: `encode` would make it 0.
  __device__ __forceinline__ void weigh(Scores S, Weights P LADDER_SITE_PARAMETER) {
    float to[2] = {-INFINITY, -INFINITY};
    encode(S, P);
#pragma unroll
    for (int tile = 0; tile < KEYS / 8; ++tile) {
      for (int i = 0; i < 4; ++i) to[i / 2] = max_nan(to[i / 2], S[tile][i]);
    }
    for (float& of_row : to) of_row *= scale_log2;
    rescale = vote_any(!(max_nan(to[0] - base[0], to[1] - base[1]) <= ROOM) LADDER_SITE);
    if (!rescale) return;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      for (int lanes = 1; lanes < 4; lanes *= 2)
        to[lane_row] = max_nan(to[lane_row], shfl_xor(to[lane_row], lanes LADDER_SITE));
      to[lane_row] = max_nan(to[lane_row], base[lane_row]);
      correction[lane_row] = ex2_approx(base[lane_row] - to[lane_row]);
      base[lane_row] = to[lane_row];
    }
    encode(S, P);
  }
  // The weights' bytes: the last bits of a float of 2^23 and more, of which the last is 1. A hidden score, -infinity,
  // becomes 0. Registers 0 and 1 of P are keys 0-15 of the two rows; 2 and 3 are keys 16-31.
  __device__ __forceinline__ void encode(Scores S, Weights P) const {
    const float by = scale_log2 * (CODES * OF_LAST);
    float offset[2];
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      offset[lane_row] = CODE_OF_MAX * OF_LAST - base[lane_row] * (CODES * OF_LAST);
#pragma unroll
    for (int slice = 0; slice < KEYS / SLICE; ++slice) {
      for (int reg = 0; reg < 4; ++reg) {
        const int tile = 4 * slice + reg / 2 * 2, lane_row = reg % 2;
        uint32_t codes[4];
        for (int i = 0; i < 4; ++i) {
          const float score = S[tile + i / 2][2 * lane_row + i % 2];
          codes[i] = __float_as_uint(saturate(fmaf(score, by, offset[lane_row])) * LAST_CODE + 0x1p23f);
        }
        P[slice][reg] = prmt_b32(prmt_b32(codes[0], codes[1], 0x0040), prmt_b32(codes[2], codes[3], 0x0040), 0x5410);
      }
    }
  }
};

// ---- the kernel ----------------------------------------------------------------------------------------------------

// What a warpgroup does: weights of half a tile of keys that its 64 queries see, beside QK of the next half and PV of
// the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS, HALF = BC / 2;
  constexpr int QK_N_TILES = HALF / 8;                                 // S[64 x BC / 2] = Q[64 x d] K^T[d x BC / 2]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = HALF / SLICE;  // O[64 x d] += P[64 x BC / 2] V[BC / 2 x d]
  constexpr int TOGETHER = 8;                                          // tiles of keys that the tensor core adds up
  const uint32_t warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
  Softmax<HALF> softmax = {};
  using Scores = typename Softmax<HALF>::Scores;
  using Weights = typename Softmax<HALF>::Weights;
  float S_low[QK_N_TILES][4], S_high[QK_N_TILES][4];  // of a tile's first 64 keys, and of the others; FragmentC
  float O_frag[PV_N_TILES + 1][4];     // of the last tiles of keys; eight more columns are sums of weights
  float aside_sum[2], aside_times[2];  // [lane_row]: of the tiles before; what is aside of O is to be multiplied by
  uint32_t P_low[PV_K_TILES][4], P_high[PV_K_TILES][4];

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile: a thread tells a block
    if (threadIdx.x % 128 < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), threadIdx.x % 128);
  };
  int round = 0;           // of Q and Work
  int begin = 0, end = 0;  // of the tiles of keys
  const auto start_QK = [&](int tile, int half, Scores S_frag) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round));
    const uint64_t K_here = wgmma_advance(K_tiles, smem.K.at(tile) + half * HALF * ROW_BYTES);
    if (half == 0) smem.K.wait_full(tile);
    wgmma_fence(S_frag);
    issue_QK(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, int half, Weights P_frag) {
    // A row of turned V has 128 keys: half of them are half of its bytes.
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile) + half * HALF);
    const bool is_first = half == 0 && (tile - begin) % TOGETHER == 0;
    if (half == 0) smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers. The sums begin anew every few tiles: a tensor core keeps 14 bits.
#pragma unroll
    for (int slice = 0; slice < PV_K_TILES; ++slice)
      wgmma_rs_e4m3(O_frag, P_frag[slice], wgmma_advance(V_here, slice * SLICE), slice > 0 || !is_first);
    wgmma_commit();
  };
  // ASIDE  In shared memory each lane has a place for each four numbers of O, of its two rows: `take` gets them added up.
  const auto add_aside = [&](bool is_some, auto take) {
#pragma unroll
    for (int tile = 0; tile < PV_N_TILES; ++tile) {
      const uint32_t place = smem.O + (tile / 4 * BR + warp * 16 + tile % 4 * 4) * 128 + lane * 16;
      if (is_some) {
        const uint4 aside = ld_shared_v4(place);
        const uint32_t four[4] = {aside.x, aside.y, aside.z, aside.w};
        for (int i = 0; i < 4; ++i) O_frag[tile][i] += __uint_as_float(four[i]) * aside_times[i / 2];
      }
      take(place, O_frag[tile]);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      aside_sum[lane_row] = aside_sum[lane_row] * aside_times[lane_row] + O_frag[PV_N_TILES][2 * lane_row];
      aside_times[lane_row] = 1;
    }
  };
  const auto put_aside = [&](uint32_t place, const float(&four)[4]) {
    st_shared_v4(place, {__float_as_uint(four[0]), __float_as_uint(four[1]), __float_as_uint(four[2]),
                         __float_as_uint(four[3])});
  };
  const auto hide = [&](int tile, int half, Scores S_frag) {  // to the mask a tile has 64 keys
    const Work work = smem.told(round);
    hide_unseen(S_frag, bytes::Half<Mask>(Mask(p), (tile - work[Work::ZERO] + half) * HALF), work, tile);
  };
  // Half a tile's scores are there, and products are on their way beside them: QK of the next half, and PV of the last.
  const auto weigh = [&](int tile, int half, Scores S_frag, Weights P_frag, bool may_be_masked, auto wait) {
    if (may_be_masked) hide(tile, half, S_frag);
    // SOFTMAX
    softmax.weigh(S_frag, P_frag);
    wait();
    if (half == 0) release(smem.K, tile);
    if (half == 0 && tile > begin) release(smem.V, tile - 1);
    if (softmax.rescale) {
      scale_rows(O_frag, softmax.correction);
      for (int lane_row = 0; lane_row < 2; ++lane_row) aside_times[lane_row] *= softmax.correction[lane_row];
    }
    if (half == 0 && tile > begin && (tile - begin) % TOGETHER == 0) add_aside(tile - begin > TOGETHER, put_aside);
    start_PV(tile, half, P_frag);
  };
  const auto first_half = [&](int tile, bool may_be_masked) {
    start_QK(tile, 1, S_high);
    weigh(tile, 0, S_low, P_low, may_be_masked, [&] { wgmma_wait<0>(O_frag, S_high, P_high); });  // safe to touch them
  };
  const auto second_half = [&](int tile, bool may_be_masked) {
    start_QK(tile + 1, 0, S_low);
    weigh(tile, 1, S_high, P_high, may_be_masked, [&] { wgmma_wait<0>(O_frag, S_low, P_low); });  // safe to touch them
  };

  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN], 0, S_low);
  wgmma_wait<0>(S_low);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = work[Work::END];
    softmax.begin(work.number(SCALE_LOG2));
    for (auto& tile : O_frag) {
      for (float& element : tile) element = 0;
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) aside_sum[lane_row] = 0, aside_times[lane_row] = 1;
    release_Q(smem.Q, round - 1);
    first_half(begin, true);
    int tile = begin;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = work[Work::WHOLE_END]; tile + 1 < whole_end; ++tile) {
        second_half(tile, false);
        first_half(tile + 1, false);
      }
    }
    for (; tile + 1 < end; ++tile) {  // two at most, but in a window all
      second_half(tile, true);
      first_half(tile + 1, true);
    }
    weigh(tile, 1, S_high, P_high, true, [&] { wgmma_wait<0>(O_frag, P_low); });
    wgmma_wait<0>(O_frag, P_high);  // safe to touch them: the last PV is done
    release(smem.V, tile);
    add_aside(end - begin > TOGETHER, [](uint32_t, const float(&)[4]) {});
    __syncwarp();        // safe to overwrite what was aside: all lanes have read it
    float normalise[2];  // 1 / the sum of weights; of a row that sees no key 0
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      normalise[lane_row] = softmax.base[lane_row] == NO_KEY ? 0 : work.number(V_SCALE) / aside_sum[lane_row];
    const auto store = [&] {
      // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them.
      store_rows<typename C::Element, BR, !Mask::IS_WHOLE>(
          smem.O, reinterpret_cast<const float(&)[PV_N_TILES][4]>(O_frag), normalise, work, p.heads, O_map);
    };
    ++round;
    smem.Q.wait_full(round);
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN], release);  // or all
    if (!smem.told(round)[Work::MORE]) {
      store();
      break;
    }
    start_QK(smem.told(round)[Work::BEGIN], 0, S_low);
    store();               // beside QK
    wgmma_wait<0>(S_low);  // safe to read S: QK is done
  }
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
  smem_name(smem.O, C::O_BYTES, "O", 128);
  if (threadIdx.x == 0) smem.init();
  smem.write_ones(threadIdx.x, C::THREADS);
  cluster_sync();  // safe to use the barriers, those of the other block, too, and the ones

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
