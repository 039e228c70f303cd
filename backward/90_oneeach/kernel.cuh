// 90_oneeach: heads of 256 columns: three warpgroups make a gradient each, and hand each other P and dS.
// Before:  in 89_chainrule a warpgroup keeps dK and dV of 64 keys. With 256 columns they would take 256 registers.
// Tile:    64x64, 12 warps and 4 that copy.  Shared: 226 KiB (K, V 32 each; Q, dO, LSE, D 2 x 64.5; dS 2 x 8; P 16), or
//          where d <= 192 as much (K, V 24 each; Q, dO, LSE, D 3 x 48.5).
//          Needs 128 < d <= 256, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          alibi_slopes, sinks: [heads] f32, or null; dsinks: [batch, heads] f32.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as warps hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_scores.cuh"

namespace {

using namespace backward::models;

// Four warpgroups start with 128 registers per thread: 4 x 128 = 2 x 200 + 88 + 24.
constexpr int KEEPER_REGISTERS = 200, ADDER_REGISTERS = 88;

constexpr int dQ_COLS = 32;  // of dQ at a time

template <class T_, int D, int STAGES_>
struct Config {
  using T = T_;
  static constexpr int HEAD_DIM = D, BR = 64, BC = 64, WARPS = 12, STAGES = STAGES_, THREADS = WARPS * 32 + 128;
  static constexpr int SUM_COLUMNS = D, PANELS = D / PANEL_COLS, COLUMN_TILES = D / 8, D_SLICES = D / 16;
  static constexpr int QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16, dQ_PIECES = D / dQ_COLS;
  static constexpr bool IN_TURN = false;
  static constexpr uint32_t ROW_BYTES = D * 2, K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  static constexpr uint32_t ROWS_BYTES = 2 * BR * 4;  // a number for each query, two times: LSE and D
  static constexpr uint32_t STAGE_BYTES = 2 * Q_BYTES + ROWS_BYTES;
  static constexpr uint32_t dS_BYTES = BR * BC * 2, dQ_BYTES = BR * BC * 2;  // P, in f32, has the place of dQ's halves
  static constexpr int MORE_BARRIERS = 0, ADDERS = 0, BARRIERS = 1 + 2 * STAGES + 2 + 6;  // K; the ring; dQ; P and dS
  static constexpr uint32_t SMEM_BYTES =
      2 * K_BYTES + STAGES * STAGE_BYTES + 2 * dS_BYTES + 2 * dQ_BYTES + BARRIERS * 8;
  static_assert(D % PANEL_COLS == 0 && D <= 256 && SMEM_BYTES <= 227 * 1024);
};

// What a warpgroup hands to the next one: each of its four warps says that all is there, and each of theirs that it has
// read it. P has one place, dS two.
struct Bowl {
  uint32_t full, empty = full + 8;

  __device__ __forceinline__ void init() const { mbarrier_init(full, 4), mbarrier_init(empty, 4); }
  // A warp's, when its lanes have stored, or have read.
  __device__ __forceinline__ static void say(uint32_t barrier) {
    __syncwarp();  // safe to say so: all lanes have
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
    __syncwarp();  // products take whole warps
  }
};
template <class C>
struct Smem : backward::Smem<C> {
  uint32_t P = this->dQ;
  Bowl P_bowl{this->dQ_barriers + 2 * 8}, dS_bowls{this->dQ_barriers + 4 * 8};

  __device__ __forceinline__ void init() const {
    backward::Smem<C>::init(8);  // the warps of dV and dK release a stage
    for (int bowl = 0; bowl < 3; ++bowl) Bowl{P_bowl.full + bowl * 16}.init();
  }
  __device__ __forceinline__ Bowl dS_bowl(int tile) const { return {dS_bowls.full + tile % 2 * 16}; }
};

// The tiles of queries that a block meets: from `first` on and before `end`, of each head that shares its keys.
struct Tiles {
  int first, end, count;
};
// -LSE or -D of a tile's queries, where the accumulators of a lane begin.
template <int TILES>
__device__ __forceinline__ void begin_tile(float (&frag)[TILES][4], uint32_t rows) {
#pragma unroll
  for (int query_slice = 0; query_slice < TILES / 2; ++query_slice)
    begin_with(frag[2 * query_slice], frag[2 * query_slice + 1],
               ld_shared_v4(rows + (query_slice * 16 + threadIdx.x % 4 * 4) * 4));
}
// P, rounded, for dV; and what the score's gradient needs, the weights times the function's derivative, to shared
// memory in the order of lanes: no bank conflicts, and nobody holds both. `rows` has -LSE of the tile's queries, which
// S has begun with where no function comes between; `from` is a lane's first distance.
template <class T, class Function, int TILES>
__device__ __forceinline__ void weigh_and_store(const float (&S)[TILES][4], uint32_t (&P)[TILES / 2][4],
                                                uint32_t lane_P, const Function& function, float slope, float from,
                                                uint32_t rows, float scale_log2) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    float weights[4];
    uint32_t gradients[4];
    if constexpr (Function::CHANGES) {
      const uint2 LSE = ld_shared_v2(rows + (query_tile / 2 * 16 + threadIdx.x % 4 * 4 + query_tile % 2 * 2) * 4);
      for (int i = 0; i < 4; ++i) {
        const auto changed =
            function(S[query_tile][i], from + (query_tile * 8 + FragmentC::col(0, i) - FragmentC::row(0, i)), slope);
        weights[i] = ex2_approx((changed.score + __uint_as_float(i % 2 == 0 ? LSE.x : LSE.y)) * scale_log2);
        gradients[i] = __float_as_uint(weights[i] * changed.derivative);
      }
    } else {
      for (int i = 0; i < 4; ++i)
        gradients[i] = __float_as_uint(weights[i] = ex2_approx(S[query_tile][i] * scale_log2));
    }
    st_shared_v4(lane_P + query_tile * 128 * 16, {gradients[0], gradients[1], gradients[2], gradients[3]});
    for (int lane_row = 0; lane_row < 2; ++lane_row)
      P[query_tile / 2][query_tile % 2 * 2 + lane_row] = pack<T>(weights[2 * lane_row], weights[2 * lane_row + 1]);
  }
}
// dS = P dP, rounded, of a P that lies there.
template <class T, int TILES>
__device__ __forceinline__ void multiply_stored(uint32_t (&dS)[TILES / 2][4], uint32_t lane_P,
                                                const float (&dP)[TILES][4]) {
#pragma unroll
  for (int query_tile = 0; query_tile < TILES; ++query_tile) {
    const uint4 P = ld_shared_v4(lane_P + query_tile * 128 * 16);
    uint32_t* const two = &dS[query_tile / 2][query_tile % 2 * 2];
    two[0] = pack<T>(__uint_as_float(P.x) * dP[query_tile][0], __uint_as_float(P.y) * dP[query_tile][1]);
    two[1] = pack<T>(__uint_as_float(P.z) * dP[query_tile][2], __uint_as_float(P.w) * dP[query_tile][3]);
  }
}

// dV += P^T dO, or dK += dS^T Q: of 256 columns in halves, for ptxas gives no instruction 128 accumulators where a
// kernel begins with 128 registers.
template <class C>
__device__ __forceinline__ void issue_gradient(float (&gradient)[C::COLUMN_TILES][4],
                                               const uint32_t (&P)[C::QUERY_SLICES][4], uint64_t dO) {
  constexpr int PARTS = C::HEAD_DIM / 128, TILES = C::COLUMN_TILES / PARTS;
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
    issue_PV<typename C::T>(reinterpret_cast<float(&)[TILES][4]>(gradient[part * TILES]), P,
                            wgmma_advance(dO, part * TILES / 8 * C::BR * PANEL_ROW_BYTES));
}

// The first warpgroup: S, P, and dV of the block's keys.
template <class C, class Function>
__device__ __forceinline__ void make_dV(const ScoreGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                        const SeersNearby& seers, const Tiles& tiles,
                                        float (&dV_frag)[C::COLUMN_TILES][4]) {
  using T = typename C::T;
  const Operands<C> at(smem, 0);
  const Function function(p);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t lane = threadIdx.x % 32;
  int q_tile = tiles.first, head = keys.kv_head * (p.heads / p.kv_heads);
  float slope = slope_of(p, head);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const uint32_t stage = tile % C::STAGES, rows = smem.rows + stage * C::ROWS_BYTES;
    float S_frag[C::BR / 8][4];
    uint32_t P_frag[C::QUERY_SLICES][4];

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE, or without LSE where a function comes between
    smem.ring.wait_full(tile);
    if constexpr (!Function::CHANGES) begin_tile(S_frag, rows);
    wgmma_fence(S_frag);
    issue_QK<T, C::HEAD_DIM, C::BC, C::BR>(S_frag, at.K_rows, wgmma_advance(at.Q_tiles, stage * C::Q_BYTES),
                                           !Function::CHANGES);
    wgmma_commit();
    wgmma_wait<0>(S_frag);  // safe to read S
    seers.hide<C>(S_frag, keys.first_key, q_tile * C::BR);

    // SOFTMAX  P is handed over: lane i of the next warpgroup has the same keys and queries.
    const int from = q_tile * C::BR + FragmentC::col(lane, 0) + keys.sequence.n_k - keys.sequence.n_q -
                     (keys.first_key + int(threadIdx.x / 32) * 16 + FragmentC::row(lane, 0));
    mbarrier_wait_parity(smem.P_bowl.empty, (tile % 2) ^ 1);  // safe to overwrite: the P before has been read
    weigh_and_store<T>(S_frag, P_frag, smem.P + threadIdx.x % 128 * 16, function, slope, from, rows, scale_log2);
    Bowl::say(smem.P_bowl.full);

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_gradient<C>(dV_frag, P_frag, wgmma_advance(at.dO_tiles, stage * C::Q_BYTES));
    wgmma_commit();
    wgmma_wait<0>(dV_frag, P_frag);  // safe to overwrite the stage: S and dV have read Q and dO
    Bowl::say(smem.ring.empty_of(tile));
    if (++q_tile == tiles.end) q_tile = tiles.first, slope = slope_of(p, ++head);
  }
}

// The second: dP, dS, and dK.
template <class C>
__device__ __forceinline__ void make_dK(const Smem<C>& smem, const Tiles& tiles, float (&dK_frag)[C::COLUMN_TILES][4]) {
  using T = typename C::T;
  const Operands<C> at(smem, 0);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const uint32_t stage = tile % C::STAGES;
    float dP_frag[C::BR / 8][4];
    uint32_t dS_frag[C::QUERY_SLICES][4];

    // QK  dP^T[64 keys x BR queries] = V dO^T - D
    smem.ring.wait_full(tile);
    begin_tile(dP_frag, smem.rows + stage * C::ROWS_BYTES + C::BR * 4);
    wgmma_fence(dP_frag);
    issue_scores<T, C::HEAD_DIM, C::BC, C::BR>(dP_frag, at.V_rows, wgmma_advance(at.dO_tiles, stage * C::Q_BYTES));
    wgmma_commit();
    wgmma_wait<0>(dP_frag);  // safe to read dP

    // SOFTMAX
    mbarrier_wait_parity(smem.P_bowl.full, tile % 2);  // safe to read P
    multiply_stored<T>(dS_frag, smem.P + threadIdx.x % 128 * 16, dP_frag);
    Bowl::say(smem.P_bowl.empty);

    // PV  dK += dS^T Q, under which dS is handed over, queries as rows.
    wgmma_fence(dK_frag, dS_frag);
    issue_gradient<C>(dK_frag, dS_frag, wgmma_advance(at.Q_tiles, stage * C::Q_BYTES));
    wgmma_commit();
    const Bowl bowl = smem.dS_bowl(tile);
    mbarrier_wait_parity(bowl.empty, (tile / 2 % 2) ^ 1);  // safe to overwrite: the dS two tiles before has been read
    store_transposed<C::BR>(smem.dS + tile % 2 * C::dS_BYTES - C::dS_BYTES, dS_frag);  // as if of a second 64 keys
    Bowl::say(bowl.full);
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dP and dK have read dO and Q
    Bowl::say(smem.ring.empty_of(tile));
  }
}

// The third: what the block's keys add to dQ, 32 columns at a time; while these are added the next ones are multiplied.
// The sum lies as warps hold it: number i of all lanes side by side, then number i + 1 (77_laneorder).
template <class C>
__device__ __forceinline__ void make_dQ(const ScoreGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                        const Tiles& tiles) {
  using T = typename C::T;
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint64_t K_tile = wgmma_descriptor(smem.K);
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K: it has landed
  const uint32_t lane_dS =  // rows are 128 B, and tiles whole rows, so slices of 32 B are found by exclusive or
      smem.dS + (warp * 16 + lane % 16) * PANEL_ROW_BYTES + ((lane / 16) ^ (lane % 8)) * 16;
  int q_tile = tiles.first, head = keys.kv_head * (p.heads / p.kv_heads);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const uint32_t here_dS = lane_dS + tile % 2 * C::dS_BYTES;
    const Bowl bowl = smem.dS_bowl(tile);
    uint32_t dS_frag[C::KEY_SLICES][4];
    float dQ_frag[2][dQ_COLS / 8][4];
    mbarrier_wait_parity(bowl.full, tile / 2 % 2);  // safe to read dS
    for (int slice = 0; slice < C::KEY_SLICES; ++slice) ldmatrix_x4(dS_frag[slice], here_dS ^ (slice * 32));
    Bowl::say(bowl.empty);

    // PV  dQ[BR queries x 32 columns] = dS K
    const auto start = [&](int piece, float(&dQ)[dQ_COLS / 8][4]) {
      const uint64_t K_here = wgmma_advance(K_tile, piece / 2 * C::BC * PANEL_ROW_BYTES + piece % 2 * dQ_COLS * 2);
      wgmma_fence(dQ);
#pragma unroll
      for (int slice = 0; slice < C::KEY_SLICES; ++slice)
        multiply_rs<T, true>(dQ, dS_frag[slice], wgmma_advance(K_here, slice * 16 * PANEL_ROW_BYTES), slice > 0);
      wgmma_commit();
    };
    float* const sum = dQ_sum_of<C>(p, keys.sequence.first_tile + q_tile, head) + warp * 16 * dQ_COLS + lane;
    wgmma_fence(dS_frag);
    start(0, dQ_frag[0]);
#pragma unroll
    for (int piece = 0; piece < C::dQ_PIECES; ++piece) {
      auto& dQ = dQ_frag[piece % 2];
      if (piece + 1 < C::dQ_PIECES) {
        start(piece + 1, dQ_frag[(piece + 1) % 2]);
        wgmma_wait<1>(dQ);  // safe to read this piece: its products are done, those of the next one may go on
      } else {
        wgmma_wait<0>(dQ, dS_frag);
      }
      // STORE
      for (int number = 0; number < dQ_COLS / 2; ++number)
        red_global_add_f32(sum + piece * C::BR * dQ_COLS + number * 32, dQ[number / 4][number % 4]);
    }
    if (++q_tile == tiles.end) q_tile = tiles.first, ++head;
  }
  named_barrier_sync(1, C::WARPS * 32);  // dQ has read K
}

// STORE  Each warp has 16 rows of dK or dV, and puts them where K or V was; then one lane has them copied.
template <bool VARLEN, class C>
__device__ __forceinline__ void store_gradient(uint32_t smem_tile, const TensorMap& map, const Keys<C>& keys,
                                               const float (&gradient)[C::COLUMN_TILES][4], float factor) {
  const uint32_t warp = threadIdx.x / 32 % 4, warp_rows = smem_tile + warp * 16 * C::ROW_BYTES;
  const int key = keys.first_key + warp * 16;
  stage_rows<typename C::T>(warp_rows, gradient, factor);
  fence_proxy_async_shared();  // the copy engine will find what this lane has stored
  __syncwarp();                // safe to copy: all lanes have stored
  if (threadIdx.x % 32 > 0 || key >= keys.sequence.n_k) return;
  const Box box = box_of<16, VARLEN>(key, keys.sequence.n_k, keys.sequence.k_begin, keys.kv_head, keys.sequence.number);
  for (int panel = 0; panel < C::PANELS; ++panel)
    cp_async_bulk_tensor_store_4d(map, panel * PANEL_COLS, box.y, box.z, box.w,
                                  warp_rows + panel * 16 * PANEL_ROW_BYTES);
  cp_async_bulk_commit();
  cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
}

// What the first warpgroup and the second one do: each keeps a gradient, and stores it.
template <bool VARLEN, class C, class Function>
__device__ __forceinline__ void keep(const ScoreGradientParams& p, const Smem<C>& smem, const Keys<C>& keys,
                                     const SeersNearby& seers, const Tiles& tiles, uint32_t warpgroup,
                                     const TensorMap& dK_map, const TensorMap& dV_map) {
  float frag[C::COLUMN_TILES][4] = {};   // 0 is right where there are no queries
  mbarrier_wait_parity(smem.full_K, 0);  // safe to read K and V: they have landed
  if (warpgroup == 0)
    make_dV<C, Function>(p, smem, keys, seers, tiles, frag);
  else
    make_dK(smem, tiles, frag);
  seers.clear_unseen<C>(frag, frag, keys.first_key - int(warpgroup) * C::BC);  // it numbers warps from the first one on
  named_barrier_sync(1, C::WARPS * 32);  // safe to overwrite K and V: all products have read them
  if (warpgroup == 0)
    store_gradient<VARLEN>(smem.V, dV_map, keys, frag, 1.0f);
  else
    store_gradient<VARLEN>(smem.K, dK_map, keys, frag, p.softmax_scale);
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN, class Function>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ScoreGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  const uint32_t warpgroup = threadIdx.x / 128;
  Keys<C> keys;
  if (!keys.find(p)) return;

  const Smem<C> smem;
  smem.name();
  smem_name(smem.P, 2 * C::dQ_BYTES, "P");
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int first_tile = seers.first_tile<C>(keys.first_key), end_tile = seers.end_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads;
  const Tiles tiles{first_tile, end_tile, group * (end_tile - first_tile)};

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warpgroup == 3) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == C::WARPS * 32)
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles.count);
    return;
  }
  if (warpgroup == 2) {
    setmaxnreg_dec<ADDER_REGISTERS>();
    make_dQ(p, smem, keys, tiles);
    return;
  }
  setmaxnreg_inc<KEEPER_REGISTERS>();  // waits until the others have given theirs back
  keep<VARLEN, C, Function>(p, smem, keys, seers, tiles, warpgroup, dK_map, dV_map);
}

// dQ, from the sum, when all blocks have added to it. Number i of four lanes are every second column of eight, of row
// lane / 4: a thread takes numbers i and i + 1 of them, eight columns, and all threads of a warp a row.
// Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ScoreGradientParams p) {
  using T = typename C::T;
  const int head = blockIdx.y;
  const float scale = p.softmax_scale;
  const QueryTile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  const int n_q = rows_of_sequence(p.cu_seqlens_q, tile.sequence, p.n_q),
            n_k = rows_of_sequence(p.cu_seqlens_k, tile.sequence, p.n_k);
  const SeersNearby seers(p, n_q, n_k);
  for (int i = threadIdx.x; i < C::BR * C::COLUMN_TILES; i += ROW_THREADS) {
    const int column_tile = i % C::COLUMN_TILES, row = i / C::COLUMN_TILES, piece = column_tile * 8 / dQ_COLS;
    if (column_tile * 8 >= p.d || row >= tile.rows) continue;
    const float* const from = dQ_sum_of<C>(p, blockIdx.x, head) + (piece * C::BR + row / 16 * 16) * dQ_COLS +
                              (column_tile % (dQ_COLS / 8) * 4 + row % 16 / 8 * 2) * 32 + row % 8 * 4;
    const uint4 even = ld_global_v4(from), odd = ld_global_v4(from + 32);
    const auto two = [&](uint32_t low, uint32_t high) {
      return pack<T>(__uint_as_float(low) * scale, __uint_as_float(high) * scale);
    };
    // Without any key the sum is 0 times K, which may be NaN. LSE does not say so: with a sink it is that.
    const int own = row + n_k - tile.rows;
    const bool sees = max(own - seers.behind, 0) <= min(own + seers.before, n_k - 1);
    st_global_v4(static_cast<T*>(p.dQ) + offset_of(p.Q_strides, tile.sequence, head, tile.row + row) + column_tile * 8,
                 sees ? uint4{two(even.x, odd.x), two(even.y, odd.y), two(even.z, odd.z), two(even.w, odd.w)}
                      : uint4{0, 0, 0, 0});
  }
}

// LAUNCH  The list, D and zeros first, dQ and the sinks' last. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C, bool VARLEN, class Function>
void start(Device& device, const ScoreGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  const ModelGradientParams& without_scores = p;
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, without_scores);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, without_scores);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN, Function>,
           dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads), dim3(C::THREADS),
           C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.sinks != nullptr)
    launch(device, sink_gradients<C>, dim3(p.batch, p.heads), dim3(ROW_THREADS), ROW_THREADS / 32 * 4, p);
}

template <class C, class Function>
void start_function(Device& device, const ScoreGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true, Function>(device, p) : start<C, false, Function>(device, p);
}

template <class C>
void run(Device& device, const ScoreGradientParams& p) {
  p.softcap > 0               ? start_function<C, Score<true>>(device, p)
  : p.alibi_slopes != nullptr ? start_function<C, Score<false>>(device, p)
                              : start_function<C, Unchanged>(device, p);
}

}  // namespace
