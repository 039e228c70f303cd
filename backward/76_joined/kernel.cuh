// 76_joined: the problems of 73_lengths at the speed of 75_handover: S begins with -LSE, dP with -D, and dQ is handed over late.
// Before:  in 73_lengths lanes wait for LSE, for D, and for their dQ to lie in shared memory.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 193 KiB (K, V 32 each; Q, dO, LSE, D 2 x 32.5; dS 2 x 16; dQ 32).
//          Needs d = 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] bf16, in any strides; a gradient
//          lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of dQ, BR * d
//          f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr int COLUMN_TILES = HEAD_DIM / 8, D_SLICES = HEAD_DIM / 16;
constexpr int ROW_THREADS = 256;  // of a block of the kernels that go through rows or sequences, before and after
constexpr size_t TOGETHER_BYTES = 32 << 20;  // of 50 MiB that an H100 has, and an H200
constexpr float LOG2E = 1.44269504088896341f;
// 384 threads start with 168 registers each (65536 / 384, in eights). Of three warpgroups: 3 x 168 = 24 + 2 x 240.
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// A block's BC keys, BR queries at a time, by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int STAGES_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int THREADS = WARPS * 32 + 128;  // of a warpgroup that copies, too
  static constexpr uint32_t K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES, ROWS_BYTES = 2 * BR * 4;  // LSE and D
  static constexpr uint32_t STAGE_BYTES = 2 * Q_BYTES + ROWS_BYTES, dS_BYTES = BR * BC * 2,
                            dQ_BYTES = BR * PANEL_COLS * 4;  // of a warpgroup
  static constexpr uint32_t SMEM_BYTES =
      2 * K_BYTES + STAGES * STAGE_BYTES + 2 * dS_BYTES + 2 * dQ_BYTES + (2 * STAGES + 5) * 8;  // and mbarriers
  static_assert(BC == 16 * WARPS && WARPS == 8, "two warpgroups have 64 keys each, and 64 columns of dQ");
  static_assert(BR == 64 && BC % BR == 0, "dQ has 64 rows; BC / BR tiles are on the diagonal");
};

// A sequence: which one; where its rows begin among all of Q and of K, and how many it has; its first tile in the workspace; how
// many heads of keys take turns; and how many blocks the sequences before it in the list have.
struct Sequence {
  int number, q_begin, n_q, k_begin, n_k, first_tile, together, before;
};
struct Place {  // coordinates of a box, beside that of its columns
  int y, z, w;
};

template <int ROWS>
__host__ __device__ __forceinline__ int tiles_of(int n) {
  return (n + ROWS - 1) / ROWS;
}
// Tiles of queries of all sequences, or of keys: where lengths are not known, as many as there may be.
template <int ROWS>
int all_tiles(const int* cu_seqlens, int batch, int n, int total) {
  return cu_seqlens != nullptr ? total / ROWS + batch : batch * tiles_of<ROWS>(n);
}
__device__ __forceinline__ int begin_of(const int* cu_seqlens, int sequence, int n) {
  return cu_seqlens != nullptr ? ld_global_s32(cu_seqlens + sequence) : sequence * n;
}
// A sequence's first tile in the workspace. Among rows one behind the other, n rows pass n / BR multiples of BR, rounded down or
// up; with one tile more each has as many as it needs, and nobody adds up lengths.
template <class C>
__device__ __forceinline__ int first_tile_of(const ModelGradientParams& p, int sequence) {
  return p.cu_seqlens_q != nullptr ? ld_global_s32(p.cu_seqlens_q + sequence) / C::BR + sequence
                                   : sequence * tiles_of<C::BR>(p.n_q);
}
// Of `count`, which begin in rising order, the last one that begins at `value` or before.
template <class Begin>
__device__ __forceinline__ int last_of(int count, int value, Begin begin) {
  int found = 0;
  for (int behind = count; behind - found > 1;) {
    const int middle = (found + behind) / 2;
    (begin(middle) <= value ? found : behind) = middle;
  }
  return found;
}
__device__ __forceinline__ Sequence* list_of(const ModelGradientParams& p) {
  return static_cast<Sequence*>(p.workspace);
}
// The sum of dQ of a tile and head, and behind it -LSE and -D.
template <class C>
__device__ __forceinline__ float* dQ_sum_of(const ModelGradientParams& p, int tile, int head) {
  return reinterpret_cast<float*>(list_of(p) + p.batch) + (size_t(tile) * p.heads + head) * C::BR * (HEAD_DIM + 2);
}
template <class C>
__device__ __forceinline__ float* rows_of(const ModelGradientParams& p, int tile, int head) {
  return dQ_sum_of<C>(p, tile, head) + C::BR * HEAD_DIM;
}
__device__ __forceinline__ int64_t offset_of(const ModelGradientParams::Strides& strides, int sequence, int head,
                                             int row) {
  return sequence * strides.batch + head * strides.head + row * strides.row;
}

// A tile of the workspace: whose it is, its first row in that sequence, or among the rows of all where they lie one behind the other,
// and how many rows there are from there on.
template <class C>
struct Tile {
  int sequence, row, rows;

  __device__ __forceinline__ Tile(const ModelGradientParams& p, int tile) {
    sequence = last_of(p.batch, tile, [&](int other) { return first_tile_of<C>(p, other); });
    const int begin = begin_of(p.cu_seqlens_q, sequence, p.n_q);
    row = (tile - first_tile_of<C>(p, sequence)) * C::BR;
    rows = begin_of(p.cu_seqlens_q, sequence + 1, p.n_q) - begin - row;
    if (p.cu_seqlens_q != nullptr) row += begin;
  }
};

// Stores 16 rows of a warp in shared memory, as two panels that are swizzled as the engine swizzles. Lane l addresses row l % 16,
// chunk l / 16 of four 8x8 matrices: rows 0-7 and 8-15, then the next 8 columns, which are two C fragments side by side.
__device__ __forceinline__ void stage_rows(uint32_t smem_rows, const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32, lane_row = smem_rows + lane % 16 * PANEL_ROW_BYTES;
#pragma unroll
  for (int column_tile = 0; column_tile < COLUMN_TILES; column_tile += 2) {
    uint32_t matrices[4];
    for (int i = 0; i < 4; ++i) {
      const float* const two = &C_frag[column_tile + i / 2][2 * (i % 2)];
      matrices[i] = pack_bf16x2(two[0] * factor, two[1] * factor);
    }
    const uint32_t panel = column_tile / 8, chunk = column_tile % 8 + lane / 16;
    stmatrix_x4(lane_row + panel * 16 * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16, matrices);
  }
}

// PLAN  The list: sequences with the longest walks first. A thread looks for a sequence's place among all. Under a mask the longest
//       walks of several heads begin together, of so many that what they walk over, Q, dO and the sum of dQ of one head of queries
//       each, 8 B an element, stays in the L2 cache.
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) plan(ModelGradientParams p) {
  const auto length_of = [](const int* cu_seqlens, int s, int n) {
    return begin_of(cu_seqlens, s + 1, n) - begin_of(cu_seqlens, s, n);
  };
  const auto n_q_of = [&](int s) { return length_of(p.cu_seqlens_q, s, p.n_q); };
  const auto n_k_of = [&](int s) { return length_of(p.cu_seqlens_k, s, p.n_k); };
  const auto walk_of = [&](int s) {  // in tiles, of its first keys
    const int n_q = n_q_of(s), n_k = n_k_of(s);
    return tiles_of<C::BR>(n_q) - (p.causal ? max(n_q - n_k, 0) / C::BR : 0);
  };
  for (int s = threadIdx.x; s < p.batch; s += ROW_THREADS) {
    const int walk = walk_of(s), n_q = n_q_of(s);
    int place = 0, before = 0, together = 1;
    for (int other = 0; other < p.batch; ++other) {
      const int of_other = walk_of(other);
      if (of_other > walk || (of_other == walk && other < s))
        ++place, before += p.kv_heads * tiles_of<C::BC>(n_k_of(other));
    }
    while (p.causal && p.kv_heads % (2 * together) == 0 && 2 * together * size_t(n_q) * HEAD_DIM * 8 <= TOGETHER_BYTES)
      together *= 2;
    Sequence* const entry = list_of(p) + place;
    st_global_v4(entry, {uint32_t(s), uint32_t(begin_of(p.cu_seqlens_q, s, p.n_q)), uint32_t(n_q),
                         uint32_t(begin_of(p.cu_seqlens_k, s, p.n_k))});
    st_global_v4(&entry->n_k,
                 {uint32_t(n_k_of(s)), uint32_t(first_tile_of<C>(p, s)), uint32_t(together), uint32_t(before)});
  }
}

// -LSE in units of Q K^T, -D[query] = -dot(dO[query], O[query]), eight lanes a row, and zeros for the sum of dQ. Queries past the end,
// and those that see no key, get -infinity and 0: all their weights are 0, and so is dS.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas(ModelGradientParams p) {
  const int head = blockIdx.y;
  const Tile<C> tile(p, blockIdx.x);
  if (tile.rows <= 0) return;  // a tile that no sequence has
  float* const sum_of_dQ = dQ_sum_of<C>(p, blockIdx.x, head);
  for (int tile_row = threadIdx.x / 8; tile_row < C::BR; tile_row += ROW_THREADS / 8) {
    const int query = tile.row + min(tile_row, tile.rows - 1);
    const int64_t from = offset_of(p.O_strides, tile.sequence, head, query);
    float sum = 0.0f;
    for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
      const uint4 O = ld_global_v4(p.O + from + chunk * 8), dO = ld_global_v4(p.dO + from + chunk * 8);
      const uint32_t O_pairs[4] = {O.x, O.y, O.z, O.w}, dO_pairs[4] = {dO.x, dO.y, dO.z, dO.w};
      for (int i = 0; i < 8; ++i)
        sum += to_float(bf16{static_cast<uint16_t>(O_pairs[i / 2] >> (i % 2 * 16))}) *
               to_float(bf16{static_cast<uint16_t>(dO_pairs[i / 2] >> (i % 2 * 16))});
    }
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    sum += shfl_xor(sum, 4);
    if (threadIdx.x % 8 == 0) {
      // Of 16 queries a lane of a fragment has the columns c, c + 1, c + 8 and c + 9: they lie side by side.
      float* const place = rows_of<C>(p, blockIdx.x, head) + tile_row / 16 * 16 + tile_row % 8 / 2 * 4 +
                           tile_row % 16 / 8 * 2 + tile_row % 2;
      const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, head, query));
      const bool sees = tile_row < tile.rows && LSE != -INFINITY;
      st_global_f32(place, sees ? -LSE / p.softmax_scale : -INFINITY);
      st_global_f32(place + C::BR, sees ? -sum : 0.0f);
    }
    for (int column = threadIdx.x % 8 * 4; column < HEAD_DIM; column += 32)
      st_global_v4(sum_of_dQ + tile_row * HEAD_DIM + column, {0, 0, 0, 0});
  }
}

// How far slices of 16 columns, each an instruction's share, go on in a tile of ROWS rows: 32 B each, four in a panel.
template <int ROWS>
__device__ __forceinline__ uint32_t slices_on(uint32_t slices) {
  return (slices % 4) * 32 + (slices / 4) * ROWS * PANEL_ROW_BYTES;
}

// Where a box of so many rows lies in its map (LAUNCH says what maps those are), from a row of n on, which the sequence has.
template <int ROWS, bool VARLEN>
__device__ __forceinline__ Place place_of(int row, int n, int begin, int head, int sequence) {
  if (!VARLEN) return {row, head, sequence};
  const int valid = min(n - row, ROWS);
  return {ROWS - valid, begin + row + valid, head};
}

// The accumulators of 16 queries by 16 keys begin with a number of each query: two C fragments, of whose columns a lane has two each.
__device__ __forceinline__ void begin_with(float (&left)[4], float (&right)[4], uint4 of_queries) {
  for (int i = 0; i < 4; ++i) {
    left[i] = __uint_as_float(i % 2 == 0 ? of_queries.x : of_queries.y);
    right[i] = __uint_as_float(i % 2 == 0 ? of_queries.z : of_queries.w);
  }
}

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
  const uint32_t dQ_barriers = full_K + (2 * STAGES + 1) * 8;  // of each warpgroup: full, empty
  smem_name(smem_K, C::K_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, C::K_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(smem_Q, STAGES * C::Q_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_dO, STAGES * C::Q_BYTES, "dO", PANEL_ROW_BYTES);
  smem_name(smem_dS, 2 * C::dS_BYTES, "dS", PANEL_ROW_BYTES);
  smem_name(smem_rows, STAGES * C::ROWS_BYTES, "LSE, D");
  smem_name(smem_dQ, 2 * C::dQ_BYTES, "dQ");
  smem_name(full_K, (2 * STAGES + 5) * 8, "barriers");
  if (threadIdx.x == 0) {
    mbarrier_init(full_K, 1);
    ring.init(WARPS / 4);  // a warpgroup has read it
    for (const uint32_t full : {dQ_barriers, dQ_barriers + 16}) {
      mbarrier_init(full, 4);      // the warps of a warpgroup have stored dQ
      mbarrier_init(full + 8, 1);  // it has been read
    }
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
  }
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles see none of the block's keys. Without queries there is no tile.
  const int q_tiles = tiles_of<BR>(of.n_q), later = of.n_q - of.n_k;
  const int first_tile = p.causal ? max(first_key + later, 0) / BR : 0;
  const int group = p.heads / p.kv_heads, head_tiles = q_tiles - first_tile, tiles = group * head_tiles;

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32) {
      mbarrier_arrive_expect_tx(full_K, 2 * C::K_BYTES);
      const Place keys = place_of<BC, VARLEN>(first_key, of.n_k, of.k_begin, kv_head, of.number);
      for (int panel = 0; panel < PANELS; ++panel) {
        const uint32_t panel_bytes = panel * BC * PANEL_ROW_BYTES;
        cp_async_bulk_tensor_4d(smem_K + panel_bytes, K_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, full_K);
        cp_async_bulk_tensor_4d(smem_V + panel_bytes, V_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, full_K);
      }
      int head = kv_head * group, q_tile = first_tile;
#pragma unroll 1  // unrolled, it would not fit into the registers of a thread that copies
      for (int tile = 0; tile < tiles; ++tile) {
        const uint32_t stage = tile % STAGES, full = ring.full_of(tile);
        const Place queries = place_of<BR, VARLEN>(q_tile * BR, of.n_q, of.q_begin, head, of.number);
        ring.claim(tile);
        for (int panel = 0; panel < PANELS; ++panel) {
          const uint32_t target = stage * C::Q_BYTES + panel * BR * PANEL_ROW_BYTES;
          cp_async_bulk_tensor_4d(smem_Q + target, Q_map, panel * PANEL_COLS, queries.y, queries.z, queries.w, full);
          cp_async_bulk_tensor_4d(smem_dO + target, dO_map, panel * PANEL_COLS, queries.y, queries.z, queries.w, full);
        }
        cp_async_bulk(smem_rows + stage * C::ROWS_BYTES, rows_of<C>(p, of.first_tile + q_tile, head), C::ROWS_BYTES,
                      full);
        if (++q_tile == q_tiles) q_tile = first_tile, ++head;
      }
    }
    // STORE  dQ of a tile whenever a warpgroup has stored its half: 16 KiB in the order of its registers, here and there.
    if (warp > WARPS && warp <= WARPS + 2 && lane == 0) {
      const uint32_t half = warp - WARPS - 1, full = dQ_barriers + half * 16, empty = full + 8;
      int head = kv_head * group, q_tile = first_tile;
#pragma unroll 1  // as above
      for (int tile = 0; tile < tiles; ++tile) {
        mbarrier_wait_parity(full, tile % 2);  // safe to read dQ: its warps have stored it
        cp_reduce_async_bulk_add_f32(dQ_sum_of<C>(p, of.first_tile + q_tile, head) + half * PANEL_COLS * BR,
                                     smem_dQ + half * C::dQ_BYTES, C::dQ_BYTES);
        if (++q_tile == q_tiles) q_tile = first_tile, ++head;
        cp_async_bulk_commit();
        cp_async_bulk_wait_read<0>();  // safe to overwrite dQ: it has been read. The kernel's end waits for the sums
        mbarrier_arrive(empty);
      }
    }
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back

  // Descriptors. Rows of Q and dO are columns of S^T and dP^T (K-major), and the k dimension of dK and dV (MN-major), for which
  // the distance from one panel to the next is told. Rows of K are those of S^T, and the k dimension of dQ, of which a
  // warpgroup has the columns of a panel.
  const uint64_t K_rows = wgmma_descriptor(smem_K + warpgroup * 64 * PANEL_ROW_BYTES),
                 V_rows = wgmma_descriptor(smem_V + warpgroup * 64 * PANEL_ROW_BYTES),
                 K_panel = wgmma_descriptor(smem_K + warpgroup * BC * PANEL_ROW_BYTES),
                 Q_tiles = wgmma_descriptor(smem_Q, BR * PANEL_ROW_BYTES),
                 dO_tiles = wgmma_descriptor(smem_dO, BR * PANEL_ROW_BYTES), dS_tiles = wgmma_descriptor(smem_dS);
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  const uint32_t full_dQ = dQ_barriers + warpgroup * 16,
                 lane_dQ = smem_dQ + warpgroup * C::dQ_BYTES + threadIdx.x % 128 * 16;
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};  // 0 is right where there are no queries
  const auto hand_over_dQ = [&] {
    fence_proxy_async_shared();  // the copy engine will find what this lane has stored
    __syncwarp();                // safe to hand over: all lanes have stored
    if (lane == 0) mbarrier_arrive(full_dQ);
    __syncwarp();  // products take whole warps
  };
  mbarrier_wait_parity(full_K, 0);  // safe to read K and V: they have landed
  int q_tile = first_tile;
  for (int tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % STAGES, rows = smem_rows + stage * C::ROWS_BYTES, buffer = tile % 2 * C::dS_BYTES;
    const uint64_t Q_here = wgmma_advance(Q_tiles, stage * C::Q_BYTES),
                   dO_here = wgmma_advance(dO_tiles, stage * C::Q_BYTES);
    float S_frag[BR / 8][4], dP_frag[BR / 8][4];

    // QK  S^T[64 keys x BR queries] = K Q^T - LSE, and dP^T = V dO^T - D
    ring.wait_full(tile);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice) {
      const uint32_t four = rows + (query_slice * 16 + lane % 4 * 4) * 4;
      begin_with(S_frag[2 * query_slice], S_frag[2 * query_slice + 1], ld_shared_v4(four));
      begin_with(dP_frag[2 * query_slice], dP_frag[2 * query_slice + 1], ld_shared_v4(four + BR * 4));
    }
    wgmma_fence(S_frag, dP_frag);
#pragma unroll
    for (int d_slice = 0; d_slice < D_SLICES; ++d_slice)
      wgmma_ss_bf16(S_frag, wgmma_advance(K_rows, slices_on<BC>(d_slice)),
                    wgmma_advance(Q_here, slices_on<BR>(d_slice)));
    wgmma_commit();
#pragma unroll
    for (int d_slice = 0; d_slice < D_SLICES; ++d_slice)
      wgmma_ss_bf16(dP_frag, wgmma_advance(V_rows, slices_on<BC>(d_slice)),
                    wgmma_advance(dO_here, slices_on<BR>(d_slice)));
    wgmma_commit();
    if (tile > 0) hand_over_dQ();  // of the tile before
    wgmma_wait<1>(S_frag);         // safe to read S: its products are done, those of dP may go on
    const int first_query = q_tile * BR;
    if (first_key + BC > of.n_k || (p.causal && first_key + BC > first_query + 1 - later)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Of the tile's queries, the first that sees this lane's key.
        const int key = first_key + warp * 16 + FragmentC::row(lane, i);
        const int from = key >= of.n_k ? BR : p.causal ? key + later - first_query : 0;
#pragma unroll
        for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
          if (query_tile * 8 + FragmentC::col(lane, i) < from) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

    // SOFTMAX  A lane has two keys, and two neighbouring queries of every eight. Two C fragments side by side hold exactly the
    //          elements of one A fragment, and wgmma takes A from registers.
    uint32_t P_frag[QUERY_SLICES][4], dS_frag[QUERY_SLICES][4];
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      for (int i = 0; i < 4; ++i) S_frag[query_tile][i] = ex2_approx(S_frag[query_tile][i] * scale_log2);
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        P_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] =
            pack_bf16x2(S_frag[query_tile][2 * lane_row], S_frag[query_tile][2 * lane_row + 1]);
    }

    // PV  dV += P^T dO
    wgmma_fence(dV_frag, P_frag);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      wgmma_rs_bf16<true>(dV_frag, P_frag[query_slice], wgmma_advance(dO_here, query_slice * 16 * PANEL_ROW_BYTES));
    wgmma_commit();
    wgmma_wait<1>(dP_frag);  // safe to read dP: its products are done, those of dV may go on
#pragma unroll
    for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
      for (int lane_row = 0; lane_row < 2; ++lane_row)
        dS_frag[query_tile / 2][query_tile % 2 * 2 + lane_row] =
            pack_bf16x2(S_frag[query_tile][2 * lane_row] * dP_frag[query_tile][2 * lane_row],
                        S_frag[query_tile][2 * lane_row + 1] * dP_frag[query_tile][2 * lane_row + 1]);
    }

    // PV  dS goes to shared memory, queries as rows: stmatrix transposes it. Lane l addresses query l % 8, of the second eight
    //     from lane 16 on; the chunk is one of the warp's two eights of keys.
    const uint32_t lane_query = lane / 16 * 8 + lane % 8, chunk = warp % 4 * 2 + lane / 8 % 2;
    const uint32_t lane_dS =
        smem_dS + buffer + warpgroup * BR * PANEL_ROW_BYTES + lane_query * PANEL_ROW_BYTES + (chunk ^ (lane % 8)) * 16;
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      stmatrix_x4_trans(lane_dS + query_slice * 16 * PANEL_ROW_BYTES, dS_frag[query_slice]);
    fence_proxy_async_shared();         // wgmma will find what this lane has stored
    named_barrier_sync(1, WARPS * 32);  // safe to read dS, and to store the next one

    // PV  dQ[BR queries x 64 columns] = dS K, of all keys of the block.
    float dQ_frag[PANEL_COLS / 8][4];
    wgmma_fence(dQ_frag);
#pragma unroll
    for (int key_slice = 0; key_slice < KEY_SLICES; ++key_slice)
      wgmma_ss_bf16<true>(dQ_frag, wgmma_advance(dS_tiles, buffer + slices_on<BR>(key_slice)),
                          wgmma_advance(K_panel, key_slice * 16 * PANEL_ROW_BYTES), key_slice > 0);
    wgmma_commit();

    // PV  dK += dS^T Q, under which dQ leaves
    wgmma_fence(dK_frag, dS_frag);
#pragma unroll
    for (int query_slice = 0; query_slice < QUERY_SLICES; ++query_slice)
      wgmma_rs_bf16<true>(dK_frag, dS_frag[query_slice], wgmma_advance(Q_here, query_slice * 16 * PANEL_ROW_BYTES));
    wgmma_commit();
    wgmma_wait<1>(dV_frag, P_frag, dQ_frag);            // safe to read dQ: its products are done, those of dK may go on
    mbarrier_wait_parity(full_dQ + 8, (tile % 2) ^ 1);  // safe to overwrite: the dQ before has been read
    // Registers side by side, lane beside lane: no bank conflicts, and the sum has the same order.
#pragma unroll
    for (int column_tile = 0; column_tile < PANEL_COLS / 8; ++column_tile)
      st_shared_v4(lane_dQ + column_tile * 128 * 16,
                   {__float_as_uint(dQ_frag[column_tile][0]), __float_as_uint(dQ_frag[column_tile][1]),
                    __float_as_uint(dQ_frag[column_tile][2]), __float_as_uint(dQ_frag[column_tile][3])});
    wgmma_wait<0>(dK_frag, dS_frag);  // safe to overwrite the stage: dK and dV have read Q and dO
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_of(tile));
    if (++q_tile == q_tiles) q_tile = first_tile;  // of the next head
  }
  hand_over_dQ();  // of the last tile; where there was none, nobody waits for it

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
    for (int panel = 0; panel < PANELS; ++panel) {
      const uint32_t from = warp_rows + panel * 16 * PANEL_ROW_BYTES;
      cp_async_bulk_tensor_store_4d(dV_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem_V + from);
      cp_async_bulk_tensor_store_4d(dK_map, panel * PANEL_COLS, keys.y, keys.z, keys.w, smem_K + from);
    }
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
    const int column_tile = i % 8, four_lanes = i / 8 % 32, panel = i / 256;  // of a warpgroup: its 32 times four lanes
    const float* const from =
        dQ_sum_of<C>(p, blockIdx.x, head) + panel * PANEL_COLS * C::BR + column_tile * 512 + four_lanes * 16;
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
      st_global_v4(p.dQ + offset_of(p.Q_strides, tile.sequence, head, query) + panel * PANEL_COLS + column_tile * 8,
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
                                  {row, row, head}, {PANEL_COLS, rows, 1, 1})
                  : tensor_map_4d(device, tensor, {HEAD_DIM, uint32_t(n), uint32_t(of_heads), uint32_t(p.batch)},
                                  {row, head, sequence}, {PANEL_COLS, rows, 1, 1});
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
