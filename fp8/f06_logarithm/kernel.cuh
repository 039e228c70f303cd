// f06_logarithm: a weight's byte is eight times its logarithm, rounded: no exponential. The products add weights up.
// Before:  f02_two makes an exponential of each score, has room for half a second accumulator, and adds it each tile.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 196 KiB and 256 B.
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

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : bytes::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  using Base = bytes::Tile<T, BR, BC, WARPS, STAGES, BLOCKS>;
  static constexpr uint32_t SMEM_BYTES = Base::SMEM_BYTES + STAGES * ONES_BYTES;
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
template <int BC>
struct Softmax {
  using Scores = float (&)[BC / 8][4];
  using Weights = uint32_t (&)[BC / SLICE][4];
  float scale_log2;              // exp(s * softmax_scale * both scales) = 2^(s * scale_log2)
  float base[2], correction[2];  // [lane_row]; base in log2 units
  bool rescale;                  // O, by `correction`, before the next PV

  __device__ __forceinline__ void begin(float scale) {
    scale_log2 = scale;
    base[0] = base[1] = NO_KEY;
  }
  // The whole warp: an exchange needs it. A score that is NaN makes the row NaN: `encode` would make it 0.
  __device__ __forceinline__ void look(Scores S, bool is_first LADDER_SITE_PARAMETER) {
    float to[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int tile = 0; tile < BC / 8; ++tile) {
      for (int i = 0; i < 4; ++i) to[i / 2] = max_nan(to[i / 2], S[tile][i]);
    }
    for (float& of_row : to) of_row *= scale_log2;
    rescale = is_first || vote_any(!(max_nan(to[0] - base[0], to[1] - base[1]) <= ROOM) LADDER_SITE);
    if (!rescale) return;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      for (int lanes = 1; lanes < 4; lanes *= 2)
        to[lane_row] = max_nan(to[lane_row], shfl_xor(to[lane_row], lanes LADDER_SITE));
      to[lane_row] = max_nan(to[lane_row], base[lane_row]);
      correction[lane_row] = ex2_approx(base[lane_row] - to[lane_row]);
      base[lane_row] = to[lane_row];
    }
  }
  // S becomes numbers whose last bits are the weights', and they the bytes of P. A hidden score, -infinity, becomes 0.
  __device__ __forceinline__ void encode(Scores S) const {
    const float by = scale_log2 * (CODES * OF_LAST);
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float offset = CODE_OF_MAX * OF_LAST - base[lane_row] * (CODES * OF_LAST);
#pragma unroll
      for (int tile = 0; tile < BC / 8; ++tile) {
        for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i)
          S[tile][i] = saturate(S[tile][i] * by + offset) * LAST_CODE + 0x1p23f;  // a float's last bit is 1 there
      }
    }
  }
  __device__ __forceinline__ static void pack(Scores S, Weights P) {
#pragma unroll
    for (int slice = 0; slice < BC / SLICE; ++slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-15 of the two rows; 2 and 3: keys 16-31
        const float(&low)[4] = S[4 * slice + reg / 2 * 2], (&high)[4] = S[4 * slice + reg / 2 * 2 + 1];
        const auto two = [&](const float(&of)[4]) {
          return prmt_b32(__float_as_uint(of[reg % 2 * 2]), __float_as_uint(of[reg % 2 * 2 + 1]), 0x0040);
        };
        P[slice][reg] = prmt_b32(two(low), two(high), 0x5410);
      }
    }
  }
};

// ---- the kernel ----------------------------------------------------------------------------------------------------

// What a warpgroup does: weights of a tile of keys that its 64 queries see while the other one multiplies.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8;                                 // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / SLICE;  // O[64 x d] += P[64 x BC] V[BC x d]
  constexpr int TOGETHER = 4;                                        // tiles of keys that the tensor core adds up
  const uint32_t warpgroup = threadIdx.x / 128;

  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
  Softmax<BC> softmax = {};
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  float sum[2];                                        // [lane_row]: of weights, the same in a row's four lanes
  float new_O[PV_N_TILES + 1][4];                      // of the last tiles of keys; eight more columns, of `sum`
  uint32_t P_frag[PV_K_TILES][4];

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
    issue_QK(S_frag, Q_here, K_here);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    smem.V.wait_full(tile);
    wgmma_fence(new_O, P_frag);
    // PV  Like QK; but P comes from registers. The sums begin anew every few tiles: a tensor core keeps 14 bits.
#pragma unroll
    for (int slice = 0; slice < PV_K_TILES; ++slice)
      wgmma_rs_e4m3(new_O, P_frag[slice], wgmma_advance(V_here, slice * SLICE), slice > 0 || !is_first);
    wgmma_commit();
  };
  const auto add = [&] {
#pragma unroll
    for (int tile = 0; tile < PV_N_TILES; ++tile) {
      for (int i = 0; i < 4; ++i) O_frag[tile][i] += new_O[tile][i];
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += new_O[PV_N_TILES][2 * lane_row];
  };
  int begin = 0, end = 0;  // of the tiles of keys
  const auto step = [&](int tile, bool may_be_masked = false) {
    start_QK(tile);
    start_PV(tile - 1, (tile - 1 - begin) % TOGETHER == 0);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    if (may_be_masked) hide_unseen(S_frag, Mask(p), smem.told(round), tile);
    // SOFTMAX
    softmax.look(S_frag, false);
    softmax.encode(S_frag);
    if (softmax.rescale) {  // a branch: ptxas moves waits past such lines as `encode` has, but not past branches
      scale_rows(O_frag, softmax.correction);
      for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] *= softmax.correction[lane_row];
    }
    wgmma_wait<0>(new_O, P_frag);  // safe to touch P and what it was multiplied to: PV is done
    release(smem.V, tile - 1);
    if (softmax.rescale) scale_rows(new_O, softmax.correction);
    if ((tile - begin) % TOGETHER == 0) add();
    softmax.pack(S_frag, P_frag);
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
    softmax.look(S_frag, true);
    softmax.encode(S_frag);
    softmax.pack(S_frag, P_frag);
    for (auto& tile : O_frag) {
      for (float& element : tile) element = 0;
    }
    sum[0] = sum[1] = 0;
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = work[Work::WHOLE_END]; tile < whole_end; ++tile) step(tile);
    }
    for (; tile < end; ++tile) step(tile, true);  // two at most, but in a window all
    start_PV(end - 1, (end - 1 - begin) % TOGETHER == 0);
    wgmma_wait<0>(new_O, P_frag);  // safe to touch them: the last PV is done
    release(smem.V, end - 1);
    add();
    float normalise[2];  // 1 / the sum of weights; of a row that sees no key 0
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      normalise[lane_row] = softmax.base[lane_row] == NO_KEY ? 0 : work.number(V_SCALE) / sum[lane_row];
    const auto store = [&] {
      // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them.
      store_rows<typename C::Element, BR, !Mask::IS_WHOLE>(smem.O, O_frag, normalise, work, p.heads, O_map);
    };
    ++round;
    smem.Q.wait_full(round);
    let_pass<Mask::GROWS, BLOCKS>(smem.K, smem.V, end, smem.told(round)[Work::BEGIN], release);  // or all
    if (!smem.told(round)[Work::MORE]) {
      store();
      break;
    }
    start_QK(smem.told(round)[Work::BEGIN]);
    store();                // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
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
