// 33_remember: a warp that a tile has surprised is careful with its next queries from their first tile on.
// Before:      in 32 each tile of queries begins with guesses, and where scores are extreme the first ones are wrong.
// Tile:      128x128, 8 warps: two warpgroups of 64 queries, and a third that copies.  Shared: 192 KiB and 96 B.
//            Needs d = 128, n % BR == 0, BR == BC, sm_90a.
// Shapes:    Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8 while a warp is careful
constexpr float SUM_LIMIT = 30000.0f;  // of a lane's weights of a row and tile: f16, in which P is, ends at 65504
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr int BLOCKS = 2;                  // of a cluster: they share K and V
  static constexpr uint32_t SMEM_BYTES = 2 * (BR + STAGES * BC) * ROW_BYTES + (4 * STAGES + 4) * 8;  // and mbarriers
};

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    flash_attention(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap O_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, STAGES = C::STAGES, BLOCKS = C::BLOCKS;
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[64 x BC] = Q[64 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[64 x d] += P[64 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS && WARPS % 4 == 0, "each warp owns 16 rows, and four warps multiply together");
  static_assert(BR == BC, "one tile of keys is on the diagonal");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + 2 * Q_BYTES, smem_V = smem_K + STAGES * TILE_BYTES;
  const uint32_t barriers = smem_V + STAGES * TILE_BYTES;
  const Ring<STAGES, TILE_BYTES> K{barriers, smem_K}, V{K.end, smem_V};
  const Ring<2, Q_BYTES> Q{V.end, smem_Q};  // by the round
  smem_name(smem_Q, 2 * Q_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_K, STAGES * TILE_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, STAGES * TILE_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(barriers, (4 * STAGES + 4) * 8, "barriers");
  // Descriptors. Rows of V are the k dimension (MN-major), so the distance from one panel to the next is told as well.
  const uint64_t Q_rows = wgmma_descriptor(smem_Q + warpgroup * 64 * PANEL_ROW_BYTES);
  const uint64_t K_tiles = wgmma_descriptor(smem_K), V_tiles = wgmma_descriptor(smem_V, BC * PANEL_ROW_BYTES);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[PV_N_TILES][4];   // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[2], row_sum[2];  // [lane_row]: a lane has a share of two rows; in log2 units

  // A cluster's work is pairs of tiles of queries, head after head. A pair's second tile may lie outside: it reads
  // zeros and stores nothing. Tiles of K or V are numbered since the block began; `first` is the first for these
  // queries.
  const int q_tiles = p.n / BR, pairs = (q_tiles + 1) / BLOCKS, cluster = blockIdx.x / BLOCKS,
            clusters = gridDim.x / BLOCKS;
  int turn = 0, round = -1, head = 0, q_tile = 0, kv_tiles = 0, first = 0;
  const auto next_queries = [&] {  // whether there are any more
    first += kv_tiles;
    ++round;
    int pair;
    if (p.causal) {  // a head's longest pair, its shortest, its second longest ...: two by two they are equally long
      if (turn % 2 == 1 && 2 * (q_tile / BLOCKS) + 1 == pairs) ++turn;  // the one in the middle is alone
      const int couples = (pairs + 1) / 2, couple = cluster + turn / 2 * clusters;
      head = couple / couples;
      pair = turn % 2 == 0 ? pairs - 1 - couple % couples : couple % couples;
    } else {
      head = (cluster + turn * clusters) / pairs;
      pair = (cluster + turn * clusters) % pairs;
    }
    ++turn;
    q_tile = pair * BLOCKS + cluster_rank();
    kv_tiles = p.causal && (pair + 1) * BLOCKS < q_tiles ? (pair + 1) * BLOCKS : q_tiles;  // to the one on the diagonal
    return head < p.batch_heads;
  };
  // LOAD  Requests this block's panel of a tile of K or V, for both blocks; the other block's panel lands here as well.
  const auto request = [&](const TensorMap& map, const auto& ring, int tile) {
    if (tile >= first + kv_tiles) return;
    ring.claim(tile);
    const uint32_t panel = cluster_rank(), target = ring.tiles + ring.at(tile) + panel * BC * PANEL_ROW_BYTES;
    cp_async_bulk_tensor_4d_multicast(target, map, 0, (first + kv_tiles - 1 - tile) * BC, panel, head,
                                      ring.full_of(tile), 0b11);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      for (const uint32_t full : {K.full, V.full}) mbarrier_init(full + stage * 8, 1);  // landed: the producer says it
      for (const uint32_t empty : {K.empty, V.empty}) mbarrier_init(empty + stage * 8, BLOCKS * WARPS / 4);  // read
    }
    Q.init(WARPS);          // a warp has stored its O from there
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
  }
  cluster_sync();  // safe to use the barriers, those of the other block, too

  if (warp >= WARPS) {  // LOAD  K is asked for a tile ahead of V, as it is read.
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    while (threadIdx.x == WARPS * 32 && next_queries()) {
      Q.claim(round);  // O of two rounds ago has left
      cp_async_bulk_tensor_4d(smem_Q + Q.at(round), Q_map, 0, q_tile * BR, 0, head, Q.full_of(round));
      for (int tile = first - 1; tile < first + kv_tiles; ++tile) {
        request(K_map, K, tile + 1);
        if (tile >= first) request(V_map, V, tile);
      }
    }
    __syncwarp();    // the cluster's barrier takes whole warps
    cluster_sync();  // safe to end: as below
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  float S_frag[QK_N_TILES][4], correction[2];
  uint32_t P_even[PV_K_TILES][4], P_odd[PV_K_TILES][4];  // by the tile's number: one is made while PV reads the other
  using Weights = uint32_t(&)[PV_K_TILES][4];
  const auto start_QK = [&](int tile) {
    const uint64_t Q_here = wgmma_advance(Q_rows, Q.at(round)), K_here = wgmma_advance(K_tiles, K.at(tile));
    // QK  A warp's accumulators are its 16 rows of S, a FragmentC for every eight keys. The products run on by
    //     themselves: between the fence, which hands S over, and the wait nobody may touch it.
    K.wait_full(tile);
    wgmma_fence(S_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {  // 16 columns: 32 B of a row, four in a panel
      const uint32_t on = (d_slice % 4) * 32 + (d_slice / 4) * BC * PANEL_ROW_BYTES;        // BR is BC
      wgmma_ss(S_frag, wgmma_advance(Q_here, on), wgmma_advance(K_here, on), d_slice > 0);  // the first overwrites S
    }
    wgmma_commit();
  };
  const auto release = [&](const auto& ring, int tile) {  // this warpgroup has read the tile
    const uint32_t block = threadIdx.x % 128;             // of the cluster: a thread for each of them
    if (block < BLOCKS) mbarrier_arrive_remote(ring.empty_of(tile), block);
  };

  const auto make_weights = [&](Weights P_frag, float scale, const float(&base)[2], float(&tile_sum)[2]) {
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) S_frag[key_tile][i] = S_frag[key_tile][i] * scale - base[i / 2];
    }
    // PV  The weights first. Two C fragments side by side hold exactly the elements of one A fragment, and wgmma takes
    //     A from registers: P needs no exchange, only rounding.
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
        const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
        const float low = ex2_approx(S_frag[key_tile][2 * lane_row]);
        const float high = ex2_approx(S_frag[key_tile][2 * lane_row + 1]);
        tile_sum[lane_row] += low + high;
        P_frag[key_slice][reg] = pack_f16x2(low, high);
      }
    }
  };
  bool careful, surprised = false;  // the whole warp or none of it; a later tile of these queries raised a maximum
  const auto largest = [&](int lane_row) {
    float score = -INFINITY;
#pragma unroll
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile)
      score = fmaxf(score, fmaxf(S_frag[key_tile][2 * lane_row], S_frag[key_tile][2 * lane_row + 1]));
    return score;
  };
  const auto raise_max = [&](float(&growth)[2], bool is_first) {  // by the growth of the row, over its four lanes
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      growth[lane_row] = quad_max(growth[lane_row]);
      correction[lane_row] = ex2_approx(-fmaxf(growth[lane_row], 0.0f));  // 1 where nothing has grown
      if (!is_first) growth[lane_row] = fmaxf(growth[lane_row], 0.0f);
      row_max[lane_row] += growth[lane_row];
      row_sum[lane_row] *= correction[lane_row];
    }
  };
  const auto softmax = [&](Weights P_frag, bool is_first) {
    // SOFTMAX  S becomes relative to row_max, the same in a row's four lanes. A careful warp looks first whether a
    //          score has outgrown it, and so does every warp on the first tile. Otherwise the sum of the weights tells:
    //          too large or infinite, and they are made again. The whole warp does all of it: an exchange needs it.
    const bool looks = careful || is_first;
    bool rescale = false;
    float tile_sum[2];
    if (looks) {
      float growth[2] = {largest(0) * scale_log2 - row_max[0], largest(1) * scale_log2 - row_max[1]};
      rescale = vote_any(is_first || fmaxf(growth[0], growth[1]) > RESCALE_ABOVE);
      if (rescale) raise_max(growth, is_first);
    }
    make_weights(P_frag, scale_log2, row_max, tile_sum);
    if (!looks && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= SUM_LIMIT)) {
      rescale = careful = true;  // from now on; and S is relative by now, in log2 units
      float growth[2] = {largest(0), largest(1)};
      raise_max(growth, false);
      make_weights(P_frag, 1, growth, tile_sum);
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) row_sum[lane_row] += tile_sum[lane_row];
    return rescale;
  };

  const auto start_PV = [&](int tile, Weights P_frag) {
    const uint32_t here = V.at(tile), parity = tile / STAGES % 2;  // and no V.wait_full: for ptxas
    const uint64_t V_here = wgmma_advance(V_tiles, here);
    mbarrier_wait_parity(V.full_of(tile), parity);  // safe to read: V[tile] has landed
    wgmma_fence(O_frag, P_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice)  // 16 keys are 16 rows of V
      wgmma_rs<true>(O_frag, P_frag[key_slice], wgmma_advance(V_here, key_slice * 16 * PANEL_ROW_BYTES));
    wgmma_commit();
  };
  const auto step = [&](int tile, Weights P_before, Weights P_here) {
    start_QK(tile);
    start_PV(tile - 1, P_before);
    wgmma_wait<1>(S_frag);  // safe to read S: QK is done, PV may go on
    release(K, tile);
    const bool rescale = softmax(P_here, false);
    surprised |= rescale;
    wgmma_wait<0>(O_frag, P_before);  // safe to touch O and the old P: PV is done
    release(V, tile - 1);
#pragma unroll
    for (int column_tile = 0; rescale && column_tile < PV_N_TILES; ++column_tile) {
      for (int i = 0; i < 4; ++i) O_frag[column_tile][i] *= correction[i / 2];
    }
  };
  const auto finish = [&](Weights P_last) {
    start_PV(first + kv_tiles - 1, P_last);
    wgmma_wait<0>(O_frag, P_last);  // safe to touch O: the last PV is done
    release(V, first + kv_tiles - 1);
  };

  const auto store = [&] {
    // STORE  Each warp writes O over its rows of Q, which nobody needs now, swizzled like them. Lane l addresses row
    //        l % 16, chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, two C fragments.
    for (float& sum : row_sum) sum = quad_sum(sum);
    const float normalise[2] = {1.0f / row_sum[0], 1.0f / row_sum[1]};
    const uint32_t warp_O = smem_Q + Q.at(round) + warp * 16 * PANEL_ROW_BYTES;
    const uint32_t lane_O = warp_O + lane % 16 * PANEL_ROW_BYTES;
    named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite Q: the four warps' last product has read it
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
      uint32_t matrices[4];
      for (int i = 0; i < 4; ++i) {
        const float* const two = &O_frag[column_tile + i / 2][2 * (i % 2)];
        matrices[i] = pack_f16x2(two[0] * normalise[i % 2], two[1] * normalise[i % 2]);
      }
      const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
      stmatrix_x4(lane_O + panel * BR * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices);
    }
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to copy: all lanes have stored
    if (lane == 0) {
      for (int panel = 0; panel < PANELS; ++panel)
        cp_async_bulk_tensor_store_4d(O_map, 0, q_tile * BR + warp * 16, panel, head,
                                      warp_O + panel * BR * PANEL_ROW_BYTES);
      cp_async_bulk_commit();
    }
    __syncwarp();  // for ptxas: a warp that diverges here would count as diverged in the next loop, which costs 5 %
  };
  const auto release_Q = [&](int of_round) {
    if (lane == 0) {
      cp_async_bulk_wait_read<0>();  // safe to overwrite or to end: shared memory has been read
      mbarrier_arrive(Q.empty_of(of_round));
    }
    __syncwarp();  // products and barriers take whole warps
  };

  while (next_queries()) {
#pragma unroll
    for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
      for (int i = 0; i < 4; ++i) O_frag[column_tile][i] = 0;
    }
    for (int lane_row = 0; lane_row < 2; ++lane_row) row_max[lane_row] = row_sum[lane_row] = 0;
    careful = surprised;  // by the queries before
    surprised = false;
    mbarrier_wait_parity(Q.full_of(round), round / 2 % 2);  // safe to read Q
    // K comes from the end, so that the first tile that counts is the one on the diagonal: each row sees a key of it.
    // The first block of a pair lets pass what comes before it, the tile on the other block's diagonal. Who releases
    // that waits for it, and nobody else: a warp that came late would miss the phase.
    const int end = first + kv_tiles, begin = p.causal && q_tile < kv_tiles ? end - 1 - q_tile : first;
    for (int tile = first; threadIdx.x % 128 < BLOCKS && tile < begin; ++tile) {
      const uint32_t here = tile % STAGES, parity = tile / STAGES % 2;
      mbarrier_wait_parity(K.full + here * 8, parity);  // safe to release: it is not on its way any more
      release(K, tile);
      mbarrier_wait_parity(V.full + here * 8, parity);
      release(V, tile);
    }
    __syncwarp();  // products take whole warps
    start_QK(begin);
    if (round > 0) release_Q(round - 1);  // beside QK
    wgmma_wait<0>(S_frag);                // safe to read S: QK is done
    release(K, begin);
#pragma unroll
    for (int key_tile = 0; p.causal && key_tile < QK_N_TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {  // keys and queries of the tile on the diagonal have the same numbers
        const int key = key_tile * 8 + FragmentC::col(lane, i), query = warp * 16 + FragmentC::row(lane, i);
        if (key > query) S_frag[key_tile][i] = -INFINITY;
      }
    }
    softmax(P_even, true);
    for (int tile = begin + 1; tile < end; tile += 2) {
      step(tile, P_even, P_odd);
      if (tile + 1 < end) step(tile + 1, P_odd, P_even);
    }
    // An end for each P: ptxas would wait, too, if registers were copied while a product reads them.
    if ((end - begin) % 2 == 0) {
      finish(P_odd);
    } else {
      finish(P_even);
    }
    store();
  }
  if (round > 0) release_Q(round - 1);
  cluster_sync();  // safe to end: the other block does not copy here, nor arrive, any more
}

// LAUNCH  As many blocks as run at the same time, one per SM, in pairs, or fewer where there is less to do.
template <class C>
void run(Device& device, const AttentionParams& p) {
  const uint32_t n = p.n, heads = p.batch_heads;
  const auto tile_map = [&](const f16* tensor, uint32_t rows, uint32_t panels) {  // [head][panel][row][panel's column]
    return tensor_map_4d(device, tensor, {PANEL_COLS, n, PANELS, heads},
                         {ROW_BYTES, PANEL_ROW_BYTES, uint64_t(n) * ROW_BYTES}, {PANEL_COLS, rows, panels, 1});
  };
  const uint32_t pairs = (n / C::BR + 1) / C::BLOCKS, sms = multiprocessors(device) / C::BLOCKS;
  const uint32_t shares = (p.causal ? (pairs + 1) / 2 : pairs) * heads;  // two pairs or one
  launch_clusters(device, flash_attention<C>, dim3((shares < sms ? shares : sms) * C::BLOCKS), dim3(C::THREADS),
                  C::BLOCKS, C::SMEM_BYTES, p, tile_map(p.Q, C::BR, PANELS), tile_map(p.K, C::BC, 1),
                  tile_map(p.V, C::BC, 1), tile_map(p.O, 16, 1));
}

}  // namespace
