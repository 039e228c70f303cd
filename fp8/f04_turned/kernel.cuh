// f04_turned: V is turned in the kernel, on its way, by warps of the warpgroup that copies.
// Before:  f03_ahead turns V in a launch before, which reads and writes all of it.
// Tile:    128x128, 8 warps: two warpgroups of 64 queries, a third that copies and turns.  Shared: 224 KiB and 288 B.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, BR == BC == 128, sm_90a.
// Shapes:  Q: [batch, heads, n_q, d] e4m3; K, V: [batch, kv_heads, n_k, d] e4m3; O: as Q, f16 or bf16; in any strides.
//          Their scales: [batch, heads] and [batch, kv_heads] f32. LSE: [batch, heads, n_q] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/bytes.cuh"

namespace {

// f01_e4m3 spells these out, f03_ahead the softmax.
using bytes::Half, bytes::HEAD_DIM, bytes::ROW_BYTES, bytes::Scales, bytes::SLICE, bytes::Softmax;
// 44_told spells these out, 43_window the softmax, 45_varlen what starts a kernel.
using forward::blocks_for, forward::Causal, forward::CONSUMER_REGISTERS, forward::end_together, forward::finish_rows;
using forward::hide_unseen, forward::let_pass, forward::LOG2E, forward::NoMask;
using forward::PRODUCER_REGISTERS, forward::Queries, forward::rows_map, forward::Schedule, forward::Tail;
using forward::Window, forward::Work;

constexpr int TURNERS = 2;  // warps that turn V, by turns: each has a place for a tile as it comes

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes. O, of 16
// bits, has a place of its own.
template <class T, int BR, int BC, int WARPS, int STAGES, int BLOCKS = 2>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, BLOCKS> {
  static constexpr uint32_t O_BYTES = BR * HEAD_DIM * 2;
  static constexpr uint32_t RAW_BYTES = BC * ROW_BYTES;
  static constexpr uint32_t SMEM_BYTES = (2 * BR + (2 * STAGES + TURNERS) * BC) * ROW_BYTES + O_BYTES +
                                         (4 * STAGES + 4 + 2 * TURNERS) * 8 + 2 * Work::BYTES;  // and mbarriers, Works
  using Alone = Config<T, BR, BC, WARPS, STAGES, 1>;
};

// Beside K, V, Q and O: V as it comes, a ring of its own.
template <class C>
struct Smem : forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + TURNERS * C::RAW_BYTES + 2 * TURNERS * 8> {
  using Base = forward::Smem<C, ROW_BYTES, 2, C::O_BYTES + TURNERS * C::RAW_BYTES + 2 * TURNERS * 8>;
  uint32_t tiles_raw = Base::more + C::O_BYTES, barriers_raw = tiles_raw + TURNERS * C::RAW_BYTES;
  Ring<TURNERS, C::RAW_BYTES> raw{barriers_raw, tiles_raw};

  __device__ __forceinline__ void name() const {
    Base::name();
    smem_name(Base::more, C::O_BYTES, "O", 128);
    smem_name(tiles_raw, TURNERS * C::RAW_BYTES, "V as it comes", 128);
    smem_name(barriers_raw, 2 * TURNERS * 8, "its barriers");
  }
  __device__ __forceinline__ void init() const {
    raw.init(C::BLOCKS);
    Base::init();
  }
};

// What the thread that copies tells of a tile of queries, beside its head: f32.
enum { SCALE_LOG2 = Work::BESIDES, V_SCALE };

// ---- what brings tiles ---------------------------------------------------------------------------------------------

// LOAD  A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K or V to
//       both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C>
__device__ __forceinline__ void load(const ByteInputParams& p, const Smem<C>& smem, const Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  constexpr int PART = 128 / C::BLOCKS;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round));
  const int part = cluster_rank() * PART, last = queries.first + queries.kv_tiles - 1;
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.claim(tile);
    cp_async_bulk_tensor_4d_multicast(ring.tiles + ring.at(tile) + part * ROW_BYTES, map, 0,
                                      queries.in_K(tile) * C::BC + part, kv_head, sequence, ring.full_of(tile),
                                      (1 << C::BLOCKS) - 1);
  };
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.raw, tile - 1);
  }
}

// TURN  A product of bytes sums along rows, of both factors: V's columns must be rows. ldmatrix transposes 8x8 elements
//       of 16 bits, which are two columns of a key: lane 4u + c gets columns 2u and 2u + 1 of keys 2c and 2c + 1, and
//       in the next register of keys 8 + 2c and 9 + 2c. The four bytes of one column are what a register of P wants
//       beside each other. So two permutations make a row's four bytes of each of two columns, and stmatrix writes
//       rows of 16 keys. Lanes from 16 on write the other 16 keys first: rows 8 apart would lie in the same banks.
template <class C, class Mask>
__device__ __forceinline__ void turn(const ByteInputParams& p, const Smem<C>& smem, int turner) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
  const bool is_upper = lane >= 16;
  const uint32_t from = (matrix * 8 + row) * ROW_BYTES, column = 2 * row + matrix % 2;
  const uint32_t to = column * C::BC, keys_16 = (row / 4) ^ (matrix / 2) ^ (column % 8);  // where it writes: V's keys
  Schedule<C, Mask> walk(p);
  while (const auto queries = walk.next()) {
    for (int tile = queries.first; tile < queries.first + queries.kv_tiles; ++tile) {
      if (tile % TURNERS != turner) continue;
      smem.V.wait_empty(tile);
      smem.raw.wait_full(tile);
      const uint32_t raw = smem.raw.tiles + smem.raw.at(tile) + from, V = smem.V.tiles + smem.V.at(tile) + to;
#pragma unroll
      for (int keys = 0; keys < C::BC; keys += 32) {
        for (int columns = 0; columns < HEAD_DIM; columns += 16) {
          uint32_t of_keys[4];  // 0-7, 8-15, 16-23 and 24-31
          ldmatrix_x4_trans(of_keys, raw + keys * ROW_BYTES + ((columns / 16) ^ row) * 16);
          uint32_t rows[2][2];  // [16 keys][column 2u, 2u + 1]
          for (int i = 0; i < 2; ++i) {
            rows[i][0] = prmt_b32(of_keys[2 * i], of_keys[2 * i + 1], 0x6420);
            rows[i][1] = prmt_b32(of_keys[2 * i], of_keys[2 * i + 1], 0x7531);
          }
          stmatrix_x4(V + columns * C::BC + ((keys / 16) ^ keys_16) * 16,
                      {is_upper ? rows[1][0] : rows[0][0], is_upper ? rows[1][1] : rows[0][1],
                       is_upper ? rows[0][0] : rows[1][0], is_upper ? rows[0][1] : rows[1][1]});
        }
      }
      fence_proxy_async_shared();  // the tensor cores will find what this lane has stored
      __syncwarp();                // safe to tell: all lanes have stored, and read
      if (lane < C::BLOCKS) mbarrier_arrive_remote(smem.raw.empty_of(tile), lane);
      if (lane == 0) mbarrier_arrive(smem.V.full_of(tile));
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask>
__device__ __forceinline__ void attend(const ByteInputParams& p, const Smem<C>& smem, const TensorMap& O_map) {
  constexpr int BR = C::BR, BC = C::BC, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 16, QK_K_TILES = HEAD_DIM / SLICE;  // S[64 x BC / 2] = Q[64 x d] K^T[d x BC / 2]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / SLICE;   // O[64 x d] += P[64 x BC] V[BC x d]
  constexpr int HALF = PV_N_TILES / 2;                                // of d, at a time
  constexpr int O_PANEL_COLS = 64;                                    // of O, in 128 B
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);
  Softmax<BC> softmax = {};
  using Scores = typename Softmax<BC>::Scores;
  using Weights = typename Softmax<BC>::Weights;
  float O_frag[PV_N_TILES][4];                           // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  float S_low[QK_N_TILES][4], S_high[QK_N_TILES][4];     // of a tile's first 64 keys, and of the others
  float new_O[HALF][4];                                  // of one tile of keys, and half of the columns
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other

  // This warpgroup has read the tile. A thread tells a block; of V, which each block turns for itself, both its own.
  const auto release = [&](const auto& ring, int tile) {
    if (threadIdx.x % 128 < BLOCKS)
      mbarrier_arrive_remote(ring.empty_of(tile), &ring == &smem.V ? cluster_rank() : threadIdx.x % 128);
  };
  int round = 0;  // of Q and Work
  const auto start_QK = [&](int tile, int half, Scores S) {
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    const uint64_t Q_here = wgmma_advance(Q_rows, smem.Q.at(round));
    const uint64_t K_here = wgmma_advance(K_tiles, smem.K.at(tile) + half * (BC / 2) * ROW_BYTES);
    if (half == 0) smem.K.wait_full(tile);
    wgmma_fence(S);
#pragma unroll
    for (int slice = 0; slice < QK_K_TILES; ++slice)
      wgmma_ss_e4m3(S, wgmma_advance(Q_here, slice * SLICE), wgmma_advance(K_here, slice * SLICE), slice > 0);
    wgmma_commit();
  };
  const auto start_PV = [&](int tile, Weights P_frag, float(&to)[HALF][4], int half) {
    // V's rows here are columns of O: the second 64 of them.
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile) + half * (HEAD_DIM / 2) * C::BC);
    half == 0 ? wgmma_fence(to, P_frag) : wgmma_fence(to);  // P may be on its way already
    // PV  Like QK; but P comes from registers. The sums begin anew: a tensor core keeps 14 bits, enough for 128 keys.
#pragma unroll
    for (int slice = 0; slice < PV_K_TILES; ++slice)
      wgmma_rs_e4m3(to, P_frag[slice], wgmma_advance(V_here, slice * SLICE), slice > 0);
    wgmma_commit();
  };
  const auto add = [&](const float(&sums)[HALF][4], int half, const float(&correction)[2]) {
#pragma unroll
    for (int tile = 0; tile < HALF; ++tile) {
      for (int i = 0; i < 4; ++i) {
        float& sum = O_frag[half * HALF + tile][i];
        sum = sum * correction[i / 2] + sums[tile][i];  // in f32; and to rescale costs nothing
      }
    }
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
    add(new_O, 0, correction);
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
    add(new_O, 1, correction);
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
    add(new_O, 0, softmax.correction);
    add(other_half, 1, softmax.correction);
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O as 16 bits, in two panels of 64 columns, swizzled as the copy engine reads them. Lane l
    //        addresses row l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns.
    const uint32_t warp_O = smem.more + warp * 16 * 128, lane_O = warp_O + lane % 16 * 128;
    store_scaled<typename C::Element, BR, !Mask::IS_WHOLE>(lane_O, O_frag, normalise);
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      const Work work = smem.told(round);
      const int head = work[Work::HEAD];
      for (int panel = 0; panel < HEAD_DIM / O_PANEL_COLS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, panel * O_PANEL_COLS, work[Work::QUERY] + warp * 16, head % p.heads,
                                      head / p.heads, warp_O + panel * BR * 128);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop
  };
  const auto release_Q = [&](int round) {
    if (lane == 0 && round >= 0) {
      cp_async_bulk_wait_read<0>();  // safe to overwrite O's place or to end: shared memory has been read
      mbarrier_arrive(smem.Q.empty_of(round));
    }
    __syncwarp();  // products and barriers take whole warps
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
    release_Q(round - 1);
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
  release_Q(round - 1);
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
  if (threadIdx.x == 0) smem.init();
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (const int producer = threadIdx.x / 32 - WARPS; producer >= 0) {
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
    } else if (producer > 0 && producer <= TURNERS) {
      turn<C, Mask>(p, smem, producer - 1);
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
void start(Device& device, const ByteInputParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, uint32_t rows) {
    return tensor_map_4d(device, static_cast<const e4m3*>(tensor),
                         {uint32_t(p.d), uint32_t(n), uint32_t(heads), uint32_t(p.batch)},
                         {uint64_t(strides.row), uint64_t(strides.head), uint64_t(strides.batch)}, {128, rows, 1, 1});
  };
  launch_clusters(device, flash_attention<C, Mask>, dim3(blocks_for<C, Mask>(device, p)), dim3(C::THREADS), C::BLOCKS,
                  C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
                  map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC / C::BLOCKS),
                  rows_map<typename C::Element>(device, p.O, p.O_strides, p.d, p.n_q, p.heads, p.batch, 16));
}

template <class C>
void run(Device& device, const ByteInputParams& p) {
  if (p.n_k == 0) {
    forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  } else if (p.left >= 0 || p.right > 0) {
    start<typename C::Alone, Window>(device, p);
  } else if (p.causal) {
    start<C, Causal>(device, p);
  } else {
    p.n_k % C::BC != 0 ? start<C, Tail>(device, p) : start<C, NoMask>(device, p);
  }
}

}  // namespace
