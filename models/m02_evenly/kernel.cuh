// m02_evenly: blocks take equal shares of work under a mask, and nobody divides whole numbers but when the kernel
// begins.
// Before:  in 96_done a head of three tiles is a share of two and one of one, and with 132 blocks, which is an even
//          number, half of them get nothing but the larger ones.
// Tile:    192x128, 12 warps: three warpgroups of 64 queries, and a fourth that copies.  Shared: 176 KiB and 256 B.
//          Needs d = 64, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace {

// 44_told spells these out, 38_seam release_Q, 45_varlen what starts a kernel, 48_scores the scores, 51_three the
// softmax, 99_unaided Heads.
using forward::blocks_for, forward::change_scores, forward::finish_rows, forward::Head, forward::Heads;
using forward::hide_unseen, forward::LOG2E, forward::Queries, forward::release_Q, forward::rows_map, forward::Score;
using forward::SoftmaxInTwo, forward::store_rows, forward::Work;

constexpr int HEAD_DIM = 64;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 64 halves = 128 B

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : forward::Tile<T, BR, BC, WARPS, STAGES, 1> {
  static constexpr uint32_t SMEM_BYTES =
      2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8 + 2 * Work::BYTES;  // and mbarriers and Works
  using Alone = Config;

  // There is no cluster.
  __device__ __forceinline__ static int rank() { return 0; }
  __device__ __forceinline__ static uint32_t cluster() { return blockIdx.x; }
  __device__ __forceinline__ static uint32_t clusters() { return gridDim.x; }
};

template <class C>
using Smem = forward::Smem<C, ROW_BYTES>;
template <class C, class Mask>
using Schedule = forward::Schedule<C, Mask, false, true>;

template <class C>
__device__ __forceinline__ void load(const Smem<C>& smem, const Queries& queries, const Head& at,
                                     const TensorMap& Q_map, const TensorMap& K_map, const TensorMap& V_map) {
  // LOAD
  constexpr int BR = C::BR, BC = C::BC;
  smem.Q.expect(queries.round);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * BR, at.head, at.sequence,
                          smem.Q.full_of(queries.round));
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    ring.wait_empty(tile);
    ring.expect(tile);
    cp_async_bulk_tensor_4d(ring.tiles + ring.at(tile), map, 0, queries.in_K(tile) * BC, at.kv_head, at.sequence,
                            ring.full_of(tile));
  };
  const int last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) request(K_map, smem.K, tile);
    if (tile > queries.first) request(V_map, smem.V, tile - 1);
  }
}

// What a warpgroup does: QK of each tile of keys that its 64 queries see beside PV of the one before.
template <class C, class Mask, class Function>
__device__ __forceinline__ void attend(const ScoreParams& p, const Smem<C>& smem, const Function& function,
                                       uint32_t warpgroup, SoftmaxInTwo<typename C::Element, C::BC>& softmax,
                                       float (&S_frag)[C::BC / 8][4], uint32_t (&P_frag)[C::BC / 16][4],
                                       float (&O_frag)[HEAD_DIM / 8][4], float (&normalise)[2],
                                       const TensorMap& O_map) {
  using Element = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint32_t lane = threadIdx.x % 32;

  // Descriptors: where the warpgroup's 64 rows of Q begin, and the tiles of K and V. Rows of V are the k dimension
  // (MN-major).
  const uint64_t Q_rows = wgmma_descriptor(smem.Q.tiles + warpgroup * 64 * ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem.K.tiles), V_tiles = wgmma_descriptor(smem.V.tiles);

  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_of(tile));
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
  const auto start_PV = [&](int tile, bool is_first) {
    const uint64_t V_here = wgmma_advance(V_tiles, smem.V.at(tile));
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);  // under QK, where one is running
    smem.V.wait_full(tile);
    wgmma_fence(O_frag, P_frag);
    // PV  Like QK; but P comes from registers.
    issue_PV<Element>(O_frag, P_frag, V_here, !is_first);
    wgmma_commit();
  };
  // A barrier for each warpgroup's turn: its own threads wait there, and those of the one before arrive.
  constexpr uint32_t WARPGROUPS = WARPS / 4;
  const auto turn_of = [](uint32_t warpgroup) { return 1 + WARPGROUPS + warpgroup; };
  int begin = 0, end = 0;  // of the tiles of keys that this warpgroup's queries see
  // One at least, masked where they see none, or lie outside. A slope leaves no register for it: then the block's.
  const auto own_end = [&](const Work& work) {
    if (Function::CHANGES) return work[Work::END];
    const int query = work[Work::QUERY] + int(warpgroup) * 64, last = min(query + 64, p.n_q) - 1;
    const int tiles = query < p.n_q ? (Mask(p).end_of(last) + BC - 1) / BC : 0;
    return max(begin + 1, min(work[Work::ZERO] + tiles, work[Work::END]));
  };
  const auto in_turn = [&](auto start_products) {
    named_barrier_sync(turn_of(warpgroup), 256);  // the one before has asked for its products
    start_products();
    named_barrier_arrive(turn_of((warpgroup + 1) % WARPGROUPS), 256);
  };
  const auto step = [&](int tile, bool may_be_masked = false) {
    in_turn([&] {
      start_QK(tile);
      start_PV(tile - 1, tile - 1 == begin);
    });
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(smem.K, tile);
    change_scores(S_frag, function, p, smem.told(round), tile);
    const bool may_begin = may_be_masked && hide_unseen(S_frag, Mask(p), smem.told(round), tile);
    // SOFTMAX
    softmax.scale(S_frag, false, may_begin);
    wgmma_wait<0>(O_frag, P_frag);  // safe to touch O and P: PV is done
    release(smem.V, tile - 1);
    softmax.weigh(S_frag, P_frag, false);
  };
  const auto finish = [&](int tile, bool has_turn) {
    has_turn ? in_turn([&] { start_PV(tile, tile == begin); }) : start_PV(tile, tile == begin);
    finish_rows<Mask>(p, smem.told(round), softmax, normalise);  // beside PV
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q later: the four warps' last product has read it
    wgmma_wait<0>(O_frag, P_frag);           // safe to touch O: the last PV is done
    release(smem.V, tile);
  };
  const auto let_pass = [&](int tile) {
    if (tile > end) in_turn([] {});
    if (threadIdx.x % 128 == 0) {
      smem.K.wait_full(tile);  // safe to release: it is not on its way any more
      mbarrier_arrive(smem.K.empty_of(tile));
      smem.V.wait_full(tile);
      mbarrier_arrive(smem.V.empty_of(tile));
    }
    __syncwarp();  // products and barriers take whole warps
  };
  const auto store = [&](int round) {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them.
    const Work work = smem.told(round);
    const auto at = [&](int head) -> Head {
      const int sequence = work[Work::SEQUENCE];
      return {sequence, head - sequence * p.heads, 0};
    };
    store_rows<Element, BR, !Mask::IS_WHOLE>(smem.Q.tiles + smem.Q.at(round), O_frag, normalise, work, at, O_map);
  };
  if (warpgroup == WARPGROUPS - 1) named_barrier_arrive(turn_of(0), 256);  // the first turn
  smem.Q.wait_full(0);
  start_QK(smem.told(0)[Work::BEGIN]);
  wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  while (true) {
    const Work work = smem.told(round);
    begin = work[Work::BEGIN], end = own_end(work);
    release(smem.K, begin);
    change_scores(S_frag, function, p, work, begin);
    hide_unseen(S_frag, Mask(p), work, begin);
    softmax.begin(work.number(Work::SINK), lane % 4 == 0);
    softmax.scale(S_frag, true, true);
    softmax.weigh(S_frag, P_frag, true);
    release_Q(smem.Q, round - 1);
    int tile = begin + 1;
    if constexpr (!Mask::IS_WINDOW) {
      for (const int whole_end = min(work[Work::WHOLE_END], end); tile < whole_end; ++tile) step(tile);
    }
    for (; tile < end; ++tile) step(tile, true);
    const int block_end = smem.told(round)[Work::END];
    finish(end - 1, tile < block_end);
#pragma unroll 1
    for (; tile < block_end; ++tile) let_pass(tile);
    ++round;
    smem.Q.wait_full(round);
    if (!smem.told(round)[Work::MORE]) break;
    start_QK(smem.told(round)[Work::BEGIN]);
    store(round - 1);       // beside QK
    wgmma_wait<0>(S_frag);  // safe to read S: QK is done
  }
  if (warpgroup == 0) named_barrier_sync(turn_of(0), 256);  // nobody's turn: the last one had been told
  store(round - 1);
  release_Q(smem.Q, round - 1);
}

template <class C, class Mask, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(ScoreParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  constexpr int QK_N_TILES = BC / 8;                              // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  // 512 threads start with 128 registers each. Of four warpgroups: 4 x 128 = 32 + 3 x 160.
  constexpr int PRODUCER_REGISTERS = 32, CONSUMER_REGISTERS = 160;

  const uint32_t warp = threadIdx.x / 32;
  // From one lane, so that ptxas knows it to be the same in all: a loop's end depends on it, and products follow.
  const uint32_t warpgroup = shfl(warp / 4, 0);
  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  const Function function(p);
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      Schedule<C, Mask> walk(p);
      const Heads heads(p);
      while (const auto queries = walk.next()) {
        const Head at = heads(queries.head);
        smem.Q.wait_empty(queries.round);
        walk.tell(queries, smem.told(queries.round), p, function.scale, at);
        load(smem, queries, at, Q_map, K_map, V_map);
      }
      smem.Q.wait_empty(walk.round);
      smem.told(walk.round).tell({walk.first});  // and no more
      mbarrier_arrive(smem.Q.full_of(walk.round));
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  SoftmaxInTwo<typename C::Element, C::BC> softmax = {};
  softmax.scale_log2 = function.scale * LOG2E;
  float O_frag[PV_N_TILES][4], S_frag[QK_N_TILES][4];  // FragmentC: registers 0, 1 are of a row, 2, 3 of 8 below
  uint32_t P_frag[PV_K_TILES][4];
  float normalise[2];
  attend<C, Mask>(p, smem, function, warpgroup, softmax, S_frag, P_frag, O_frag, normalise, O_map);
}

// LAUNCH  As many blocks as run at the same time, one per SM, or fewer where there is less to do. The pointers of `p`
//         belong to the device and are multiples of 16 B, as are strides. A map tells the copy engine where rows end:
//         what it asks for behind is zeros, and what it stores there is dropped.
template <class C, class Mask, class Function>
void start(Device& device, const ScoreParams& p) {
  const auto map = [&](const void* tensor, const ForwardParams::Strides& strides, int heads, int n, int rows) {
    return rows_map<typename C::Element>(device, tensor, strides, p.d, n, heads, p.batch, rows);
  };
  launch(device, flash_attention<C, Mask, Function>, dim3(blocks_for<C, Mask, true>(device, p)), dim3(C::THREADS),
         C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
         map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
         map(p.O, p.O_strides, p.heads, p.n_q, 16));
}

template <class C>
void run(Device& device, const ScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  forward::start_function<C, Score>(
      p, [&]<class Config, class Mask, class Function>() { start<Config, Mask, Function>(device, p); });
}

}  // namespace
