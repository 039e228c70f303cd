// 84_meanwhile: a tile's dQ and dK are made under the next tile's exponentials.
// Before:  in 83_d64 tensor cores idle under the exponentials, and each tile ends at a barrier of all and a wait for dK.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 179 KiB (K, V 16 each; Q, dO, LSE, D 6 x 16.5; dS 2 x 16; dQ 16).
//          Needs d = 64, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] bf16, in any strides; a gradient
//          lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of dQ, BR * d
//          f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 64;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 64 halves = 128 B, the most that the engine swizzles
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;
constexpr int ROW_THREADS = 256;  // of a block of the kernels that go through rows or sequences, before and after
}  // namespace
#include "common/words/backward.cuh"
namespace {
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's BC keys, BR queries at a time, by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr uint32_t K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES, ROWS_BYTES = 2 * BR * 4;  // LSE and D
  static constexpr uint32_t STAGE_BYTES = 2 * Q_BYTES + ROWS_BYTES, dS_BYTES = BR * BC * 2,
                            dQ_BYTES = BR / 2 * ROW_BYTES * 2;  // of a warpgroup, f32
  static constexpr uint32_t SMEM_BYTES =
      2 * K_BYTES + STAGES * STAGE_BYTES + 2 * dS_BYTES + 2 * dQ_BYTES + (2 * STAGES + 6) * 8;  // and mbarriers
  static_assert(BC == 16 * WARPS && WARPS == 8 && BR == 64, "two warpgroups have 64 keys each, and 32 columns of dQ");
};

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES;
  constexpr int QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;

  // Which keys. The list's heads take turns, so many together; without a mask one after the other.
  const Sequence* const entry =
      list_of(p) + last_of(p.batch, blockIdx.x, [&](int place) { return ld_global_s32(&list_of(p)[place].before); });
  const uint4 first_half = ld_global_v4(entry), second_half = ld_global_v4(&entry->n_k);
  const Sequence of{int(first_half.x),  int(first_half.y),  int(first_half.z),  int(first_half.w),
                    int(second_half.x), int(second_half.y), int(second_half.z), int(second_half.w)};
  const int k_tiles = tiles_of<BC>(of.n_k), item = blockIdx.x - of.before;
  if (item >= k_tiles * p.kv_heads) return;  // there may be fewer tiles of keys than were allowed for
  const int turn = item % (k_tiles * of.together), first_key = turn / of.together * BC;
  const int kv_head = item / (k_tiles * of.together) * of.together + turn % of.together;

  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::K_BYTES, smem_Q = smem_V + C::K_BYTES,
                 smem_dO = smem_Q + STAGES * C::Q_BYTES, smem_dS = smem_dO + STAGES * C::Q_BYTES,
                 smem_dQ = smem_dS + 2 * C::dS_BYTES, smem_rows = smem_dQ + 2 * C::dQ_BYTES,
                 full_K = smem_rows + STAGES * C::ROWS_BYTES;
  const Ring<STAGES, C::STAGE_BYTES> ring{full_K + 8};
  const uint32_t full_dS = full_K + (2 * STAGES + 1) * 8;
  const uint32_t dQ_barriers = full_dS + 8;  // of each warpgroup: full, empty
  smem_name(smem_K, C::K_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::K_BYTES, "V", ROW_BYTES);
  smem_name(smem_Q, STAGES * C::Q_BYTES, "Q", ROW_BYTES);
  smem_name(smem_dO, STAGES * C::Q_BYTES, "dO", ROW_BYTES);
  smem_name(smem_dS, 2 * C::dS_BYTES, "dS", ROW_BYTES);
  smem_name(smem_rows, STAGES * C::ROWS_BYTES, "LSE, D");
  smem_name(smem_dQ, 2 * C::dQ_BYTES, "dQ");
  smem_name(full_K, (2 * STAGES + 6) * 8, "barriers");
  if (threadIdx.x == 0) {
    mbarrier_init(full_K, 1);
    ring.init(WARPS / 4);  // a warpgroup has read it
    mbarrier_init(full_dS, WARPS);
    for (const uint32_t full : {dQ_barriers, dQ_barriers + 16}) {
      mbarrier_init(full, 4);      // the warps of a warpgroup have stored dQ
      mbarrier_init(full + 8, 1);  // it has been read
    }
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
  }
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const Seen seen(p, of.n_q, of.n_k);
  const int first_tile = seen.first_tile<C>(first_key), end_tile = seen.end_tile<C>(first_key);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      mbarrier_arrive_expect_tx(full_K, 2 * C::K_BYTES);
      const Place keys = place_of<BC, VARLEN>(first_key, of.n_k, of.k_begin, kv_head, of.number);
      cp_async_bulk_tensor_4d(smem_K, K_map, 0, keys.y, keys.z, keys.w, full_K);
      cp_async_bulk_tensor_4d(smem_V, V_map, 0, keys.y, keys.z, keys.w, full_K);
      int head = kv_head * group, q_tile = first_tile;
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
      for (int tile = 0; tile < tiles; ++tile) {
        const uint32_t stage = tile % STAGES, full = ring.full_of(tile);
        const Place queries = place_of<BR, VARLEN>(q_tile * BR, of.n_q, of.q_begin, head, of.number);
        ring.claim(tile);
        cp_async_bulk_tensor_4d(smem_Q + stage * C::Q_BYTES, Q_map, 0, queries.y, queries.z, queries.w, full);
        cp_async_bulk_tensor_4d(smem_dO + stage * C::Q_BYTES, dO_map, 0, queries.y, queries.z, queries.w, full);
        cp_async_bulk(smem_rows + stage * C::ROWS_BYTES, rows_of<C>(p, of.first_tile + q_tile, head), C::ROWS_BYTES,
                      full);
        if (++q_tile == end_tile) q_tile = first_tile, ++head;
      }
    }
    // STORE  dQ of a tile whenever a warpgroup has stored its half: 16 KiB in the order of its registers, here and there.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0) {
      const uint32_t half = warp - WARPS - 1, full = dQ_barriers + half * 16, empty = full + 8;
      int head = kv_head * group, q_tile = first_tile;
#pragma unroll 1  // as above
      for (int tile = 0; tile < tiles; ++tile) {
        mbarrier_wait_parity(full, tile % 2);  // safe to read dQ: its warps have stored it
        cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, of.first_tile + q_tile, head) + half * (C::dQ_BYTES / 4),
                                     smem_dQ + half * C::dQ_BYTES, C::dQ_BYTES);
        if (++q_tile == end_tile) q_tile = first_tile, ++head;
        cp_async_bulk_commit();
        cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
        mbarrier_arrive(empty);
      }
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  // Descriptors. Rows of Q and dO are columns of S^T and dP^T (K-major), and the k dimension of dK and dV (MN-major). Rows of K are
  // the k dimension of dQ, of which a warpgroup has 32 columns.
  const uint64_t K_half = wgmma_descriptor(smem_K + warpgroup * 64), Q_tiles = wgmma_descriptor(smem_Q),
                 dO_tiles = wgmma_descriptor(smem_dO), dS_tiles = wgmma_descriptor(smem_dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = dQ_barriers + warpgroup * 16,
                 lane_dQ = smem_dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  float S_frag[BR / 8][4];
  uint32_t K_frag[D_SLICES][4], V_frag[D_SLICES][4], dS_frag[QUERY_SLICES][4];

  // Of a tile, when the next one's S has been started: dQ[64 queries x 32 columns] = dS K, of all keys of the block, and dK += dS^T Q.
  const auto start_dQ = [&](int tile, float(&dQ_frag)[COLUMN_TILES / 2][4]) {
    mbarrier_wait_parity(full_dS, tile % 2);  // safe to read dS, the other warpgroup's too
    wgmma_fence(dQ_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < KEY_SLICES; ++key_slice)
      wgmma_ss_bf16<true>(
          dQ_frag,
          wgmma_advance(dS_tiles, tile % 2 * C::dS_BYTES + key_slice % 4 * 32 + key_slice / 4 * BR * ROW_BYTES),
          wgmma_advance(K_half, key_slice * 16 * ROW_BYTES), key_slice > 0);
    wgmma_commit();
  };
  const auto start_dK = [&](int tile) {
    wgmma_fence(dK_frag, dS_frag);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      wgmma_rs_bf16<true>(dK_frag, dS_frag[query_slice],
                          wgmma_advance(Q_tiles, tile % STAGES * C::Q_BYTES + query_slice * 16 * ROW_BYTES));
    wgmma_commit();
  };
  const auto store_dQ = [&](int tile, const float(&dQ_frag)[COLUMN_TILES / 2][4]) {
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    // Registers side by side, lane beside lane: no bank conflicts, and the sum has the same order.
#pragma unroll
    for (int column_tile = 0; column_tile < COLUMN_TILES / 2; ++column_tile)
      st_shared_v4(lane_dQ + column_tile * 128 * 16,
                   {__float_as_uint(dQ_frag[column_tile][0]), __float_as_uint(dQ_frag[column_tile][1]),
                    __float_as_uint(dQ_frag[column_tile][2]), __float_as_uint(dQ_frag[column_tile][3])});
  };
  const auto release = [&](int tile) {  // dK and dV have read its Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_of(tile));
  };
  const auto mask = [&](int first_query) {
    const int last_key = first_key + BC - 1;
    if (last_key < of.n_k && seen.first_of(last_key) <= first_query && seen.last_of(first_key) >= first_query + BR - 1)
      return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of the tile's queries, the first that sees this lane's key, and the last.
      const int key = first_key + warp * 16 + FragmentC::row(lane, i);
      const int from = key >= of.n_k ? BR : seen.first_of(key) - first_query, to = seen.last_of(key) - first_query;
#pragma unroll
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        const int query = query_tile * 8 + FragmentC::col(lane, i);
        if (query < from || query > to) S_frag[query_tile][i] = -INFINITY;
      }
    }
  };
  const auto weigh = [&](int from, int to) {  // eights of queries
#pragma unroll
    for (int query_tile = from; query_tile < to; ++query_tile) {
      for (int i = 0; i < 4; ++i) S_frag[query_tile][i] = ex2_approx(S_frag[query_tile][i] * scale_log2);
    }
  };

  const auto step = [&](int tile, int q_tile, bool is_first) {
    const uint32_t stage = tile % STAGES, rows = smem_rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    // QK  S^T[64 keys x BR queries] = K Q^T - LSE
    ring.wait_full(tile);
    begin_with(S_frag, rows);
    wgmma_fence(S_frag, K_frag);
    issue_columns<0>(S_frag, K_frag, Q_here);
    wgmma_commit();

    // SOFTMAX  beside dQ and dK of the tile before, and beside dP: the tensor cores have no pause.
    float dP_frag[BR / 8][4];
    if (is_first) {
      begin_with(dP_frag, rows + BR * 4);
      wgmma_wait<0>(S_frag);  // safe to read S
      mask(q_tile * BR);
    } else {
      float dQ_frag[COLUMN_TILES / 2][4];
      start_dQ(tile - 1, dQ_frag);
      start_dK(tile - 1);
      wgmma_wait<2>(S_frag);  // safe to read S: its products are done, those of dQ and dK may go on
      mask(q_tile * BR);
      weigh(0, 1);
      wgmma_wait<1>(dQ_frag);  // safe to read dQ
      store_dQ(tile - 1, dQ_frag);
      weigh(1, 5);
      begin_with(dP_frag, rows + BR * 4);
      hand_over(full_dQ);
      wgmma_wait<0>(dK_frag, dS_frag);
      release(tile - 1);
    }
    // QK  dP^T = V dO^T - D
    wgmma_fence(dP_frag, V_frag);
    issue_columns<0>(dP_frag, V_frag, dO_here);
    wgmma_commit();
    weigh(is_first ? 0 : 5, BR / 8);

    uint32_t P_frag[QUERY_SLICES][4];
    pack_weights(P_frag, S_frag, [&](int query_tile, int i) { return S_frag[query_tile][i]; });

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
    issue_rows(dV_frag, P_frag, dO_here);
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
    pack_weights(dS_frag, S_frag,
                 [&](int query_tile, int i) { return S_frag[query_tile][i] * dP_frag[query_tile][i]; });

    // PV  dS goes to shared memory, queries as rows: stmatrix transposes it. Lane l addresses query l % 8, of the second eight
    //     from lane 16 on; the chunk is one of the warp's two eights of keys. What lay there the other warpgroup has read: it made
    //     that dQ before it handed over the dS that this one has waited for.
    const uint32_t lane_query = lane / 16 * 8 + lane % 8, chunk = warp % 4 * 2 + lane / 8 % 2;
    const uint32_t lane_dS =
        smem_dS + buffer + warpgroup * BR * ROW_BYTES + lane_query * ROW_BYTES + (chunk ^ (lane % 8)) * 16;
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      stmatrix_x4_trans(lane_dS + query_slice * 16 * ROW_BYTES, dS_frag[query_slice]);
    hand_over(full_dS);
    wgmma_wait<0>(dV_frag, P_frag);  // for ptxas: where a loop comes around nothing may be in flight
  };

  // K and V are A of S and dP, and stay in registers: each instruction reads 2 KiB of shared memory instead of 4.
  mbarrier_wait_parity(full_K, 0);  // safe to read K and V: they have landed
#pragma unroll
  for (int d_slice = 0; d_slice < D_SLICES; ++d_slice) {
    const uint32_t place = (warp * 16 + lane % 16) * ROW_BYTES + ((d_slice * 2 + lane / 16) ^ (lane % 8)) * 16;
    ldmatrix_x4(K_frag[d_slice], smem_K + place);
    ldmatrix_x4(V_frag[d_slice], smem_V + place);
  }
  if (tiles > 0) {
    step(0, first_tile, true);
    int q_tile = first_tile;
    for (int tile = 1; tile < tiles; ++tile) {
      if (++q_tile == end_tile) q_tile = first_tile;  // of the next head
      step(tile, q_tile, false);
    }
    float dQ_frag[COLUMN_TILES / 2][4];
    start_dQ(tiles - 1, dQ_frag);
    start_dK(tiles - 1);
    wgmma_wait<0>(dQ_frag, dK_frag, dS_frag);  // safe to read all of them
    store_dQ(tiles - 1, dQ_frag);
    hand_over(full_dQ);
  }

  // A key that no query sees: its sums are of zeros times numbers that may be NaN.
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const int key = first_key + warp * 16 + FragmentC::row(lane, 2 * lane_row);
    if (seen.last_of(key) >= 0 && seen.first_of(key) < of.n_q) continue;
#pragma unroll
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile) {
      for (int i = 2 * lane_row; i < 2 * lane_row + 2; ++i) dK_frag[column_tile][i] = dV_frag[column_tile][i] = 0;
    }
  }

  // STORE  Each warp has 16 rows of dK and dV, and puts them where K and V were.
  named_barrier_sync(1, WARPS * 32);  // safe to overwrite K and V: all warps' products have read them
  const uint32_t warp_rows = warp * 16 * ROW_BYTES;
  stage_rows(smem_V + warp_rows, dV_frag, 1.0f);
  stage_rows(smem_K + warp_rows, dK_frag, p.softmax_scale);
  fence_proxy_async_shared();  // the copy engine will find what this lane has stored
  __syncwarp();                // safe to copy: all lanes have stored
  const int key = first_key + warp * 16;
  if (lane == 0 && key < of.n_k) {
    const Place keys = place_of<16, VARLEN>(key, of.n_k, of.k_begin, kv_head, of.number);
    cp_async_bulk_tensor_store_4d(dV_map, 0, keys.y, keys.z, keys.w, smem_V + warp_rows);
    cp_async_bulk_tensor_store_4d(dK_map, 0, keys.y, keys.z, keys.w, smem_K + warp_rows);
    cp_async_bulk_commit();
    cp_async_bulk_wait_read<0>();  // safe to end: shared memory has been read
  }
}

// dQ, from the sum, when all blocks have added to it. Eight columns of a tile's rows r and r + 8 are 16 numbers of four lanes,
// side by side: a thread has these, and eight threads have 64 columns.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ModelGradientParams p) {
  const int head = blockIdx.y;
  const float scale = p.softmax_scale;
  const Tile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  for (int i = threadIdx.x; i < C::BR * ROW_CHUNKS / 2; i += ROW_THREADS) {
    const int column_tile = i % 4, four_lanes = i / 4 % 32, half = i / 128;  // of a warpgroup: its 32 times four lanes
    const float* const from =
        dQ_sum_of<C>(p, blockIdx.x, head) + half * (C::dQ_BYTES / 4) + column_tile * 512 + four_lanes * 16;
    uint32_t pairs[2][4];  // [lane_row]
    for (int lane = 0; lane < 4; ++lane) {
      const uint4 four = ld_global_v4(from + lane * 4);
      pairs[0][lane] = pack_bf16x2(__uint_as_float(four.x) * scale, __uint_as_float(four.y) * scale);
      pairs[1][lane] = pack_bf16x2(__uint_as_float(four.z) * scale, __uint_as_float(four.w) * scale);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const int row = four_lanes / 8 * 16 + lane_row * 8 + four_lanes % 8, query = tile.row + row;
      if (row >= tile.rows) continue;
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query));
      const uint32_t(&four)[4] = pairs[lane_row];  // without any key the sum is 0 times K, which may be NaN
      st_global_v4(p.dQ + offset_of(p.Q_strides, tile.sequence, head, query) + half * 32 + column_tile * 8,
                   LSE == -INFINITY ? uint4{0, 0, 0, 0} : uint4{four[0], four[1], four[2], four[3]});
    }
  }
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
//         A map tells the copy engine where rows end: what it asks for behind is zeros, and what it stores there is dropped. A
//         sequence among others ends where the tensor does not, so its map is 45's: y < ROWS rows from row z - ROWS on, for every
//         z. In a box that begins at y = ROWS - valid so many rows lie inside, and z says which.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto tile_map = [&](const bf16* tensor, const ModelGradientParams::Strides& strides, int of_heads, int n,
                            uint32_t rows) {
    const uint64_t row = strides.row * 2, head = strides.head * 2, sequence = strides.batch * 2;
    return VARLEN ? tensor_map_4d(device, tensor - rows * strides.row, {HEAD_DIM, rows, 1u << 31, uint32_t(of_heads)},
                                  {row, row, head}, {HEAD_DIM, rows, 1, 1})
                  : tensor_map_4d(device, tensor, {HEAD_DIM, uint32_t(n), uint32_t(of_heads), uint32_t(p.batch)},
                                  {row, head, sequence}, {HEAD_DIM, rows, 1, 1});
  };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, tile_map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           tile_map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), tile_map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           tile_map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), tile_map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           tile_map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace
