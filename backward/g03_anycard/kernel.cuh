// g03_anycard: gradients as models ask for them, with mma.sync and cp.async alone. A warp has 32 rows of each of the
//          five products, so what it loads serves twice as many; P and dS pass through shared memory, in 16 bits.
// Before:  79_groups has one length, f16 and 193 KiB of shared memory. An A100 gives a block 163, an RTX card 99.
// Tile:    64x128, 8 warps.  Shared: 145 KiB (K, V 32 each; two of Q and dO, 16 each; P, dS 16 each; two of LSE and D,
//          1). Or 64x64, 4 warps, 97 KiB. With 64 columns that is 57.
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, BR * d f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_models.cuh"

namespace {

using namespace backward::models;

// A block has BC keys, a step of its walk BR queries. Of a product with keys as rows, S^T, dP^T, dV and dK, a warp has
// 32 of them and a share of the columns; of dQ 32 queries and a share of the columns. PER_SM blocks run beside each
// other where there is room for them.
template <class T_, int D, int BR_, int BC_, int WARPS_, int PER_SM_>
struct Config {
  using T = T_;
  static constexpr int HEAD_DIM = D, BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32, PER_SM = PER_SM_;
  static constexpr bool IN_TURN = false;  // no block waits for another one's additions to dQ
  static constexpr int SUM_COLUMNS = D, KEY_WARPS = BC / 32, QUERY_WARPS = BR / 32;
  static constexpr int S_TILES = BR / (WARPS / KEY_WARPS) / 8, COLUMN_TILES = D / (WARPS / KEY_WARPS) / 8,
                       dQ_TILES = D / (WARPS / QUERY_WARPS) / 8;                  // of 8 columns, of a warp's share
  static constexpr int ROW_CHUNKS = D / 8, ROWS_PER_PASS = THREADS / ROW_CHUNKS;  // of a copy by all threads, 16 B each
  static constexpr uint32_t ROW_BYTES = D * 2, K_BYTES = BC * ROW_BYTES, Q_BYTES = BR * ROW_BYTES;
  static constexpr uint32_t dS_BYTES = BC * BR * 2, ROWS_BYTES = 2 * BR * 4;  // -LSE and -D of a tile
  static constexpr uint32_t SMEM_BYTES = 2 * K_BYTES + 3 * Q_BYTES + 2 * dS_BYTES + 2 * ROWS_BYTES;
  static_assert(BR == 64, "a row of dS^T is 128 B: eight chunks are all 32 banks");
  static_assert(ROWS_PER_PASS % 8 == 0, "a pass begins where the swizzle does");
  static_assert(S_TILES % 2 == 0 && COLUMN_TILES % 2 == 0 && dQ_TILES % 2 == 0,
                "B is read 16 rows or columns at a time");

  // Byte offset of a chunk of 16 B within a tile, swizzled; and within P^T or dS^T.
  __device__ __forceinline__ static uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
    return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
  }
  __device__ __forceinline__ static uint32_t dS_offset(uint32_t key, uint32_t chunk) {
    return key * (BR * 2) + (chunk ^ (key % 8)) * 16;
  }
};

// Starts to copy a tile of ROWS rows: of a head's from `row` on, of which `rows` are its own. What lies behind these,
// and behind column d, becomes zeros.
template <class C, int ROWS>
__device__ __forceinline__ void start_tile(uint32_t tile, const void* tensor,
                                           const ModelGradientParams::Strides& strides, int sequence, int head, int row,
                                           int rows, int d) {
  const int thread_row = threadIdx.x / C::ROW_CHUNKS, chunk = threadIdx.x % C::ROW_CHUNKS;
  const auto* const source =
      static_cast<const typename C::T*>(tensor) + offset_of(strides, sequence, head, row + thread_row) + chunk * 8;
  const uint32_t thread_tile = tile + C::chunk_offset(thread_row, chunk);
#pragma unroll
  for (int first_row = 0; first_row < ROWS; first_row += C::ROWS_PER_PASS)
    cp_async_16(thread_tile + first_row * C::ROW_BYTES, source + first_row * strides.row,
                chunk * 8 < d && first_row + thread_row < rows ? 16 : 0);
}

// Where a lane's ldmatrix points in a tile: row l % 16, chunk l / 16 of 16 x 16 numbers. ACROSS, the second matrix is
// the one beside the first, so that the two registers of a B fragment lie side by side. XOR goes on from an even chunk.
template <class C, bool ACROSS = false>
__device__ __forceinline__ uint32_t lane_chunk(uint32_t chunk = 0) {
  const uint32_t lane = threadIdx.x % 32;
  return ACROSS ? C::chunk_offset(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2)
                : C::chunk_offset(lane % 16, chunk + lane / 16);
}

// C[32 x 8 TILES] += A[32 x d] B^T: scores, of a warp's 32 rows. The rows of B are the columns of C.
template <class C, int TILES>
__device__ __forceinline__ void multiply_rows(float (&C_frag)[2][TILES][4], uint32_t rows_A, uint32_t rows_B) {
  const uint32_t lane_A = rows_A + lane_chunk<C>(), lane_B = rows_B + lane_chunk<C, true>();
#pragma unroll
  for (int d_slice = 0; d_slice < C::HEAD_DIM / 16; ++d_slice) {
    uint32_t A_frag[2][4];
    for (int half = 0; half < 2; ++half)
      ldmatrix_x4(A_frag[half], (lane_A ^ (d_slice * 32)) + half * 16 * C::ROW_BYTES);
    for (int pair = 0; pair < TILES / 2; ++pair) {
      uint32_t B_frag[4];
      ldmatrix_x4(B_frag, (lane_B ^ (d_slice * 32)) + pair * 16 * C::ROW_BYTES);
      for (int half = 0; half < 2; ++half) {
        ::mma<typename C::T>(C_frag[half][2 * pair], A_frag[half], B_frag[0], B_frag[1]);
        ::mma<typename C::T>(C_frag[half][2 * pair + 1], A_frag[half], B_frag[2], B_frag[3]);
      }
    }
  }
}

// C[32 x 8 TILES] += A[32 x 16 SLICES] B: a gradient, from a tile of that many rows and its columns from `chunk` on.
// They are the k dimension, so ldmatrix transposes them on their way into the registers. load_A(fragment, half, slice).
template <class C, int SLICES, int TILES, class Load>
__device__ __forceinline__ void add_rows(float (&C_frag)[2][TILES][4], uint32_t tile_B, uint32_t chunk, Load load_A) {
  const uint32_t lane_B = tile_B + lane_chunk<C>(chunk);
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    uint32_t A_frag[2][4];
    for (int half = 0; half < 2; ++half) load_A(A_frag[half], half, slice);
    for (int column_tile = 0; column_tile < TILES; column_tile += 2) {
      uint32_t B_frag[4];
      ldmatrix_x4_trans(B_frag, (lane_B ^ (column_tile * 16)) + slice * 16 * C::ROW_BYTES);
      for (int half = 0; half < 2; ++half) {
        ::mma<typename C::T>(C_frag[half][column_tile], A_frag[half], B_frag[0], B_frag[1]);
        ::mma<typename C::T>(C_frag[half][column_tile + 1], A_frag[half], B_frag[2], B_frag[3]);
      }
    }
  }
}

// Of a tile's sum of dQ: where a warp's lane 0 has its first number, and 32 further each lane its next one. An addition
// of a warp is 128 B in a row (77_laneorder).
template <class C>
__device__ __forceinline__ int warp_sum(int warp) {
  return warp * (C::BR * C::HEAD_DIM / C::WARPS);
}

// dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to dQ.
// Grid (tiles of keys * kv_heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) gradients(ModelGradientParams p) {
  using T = typename C::T;
  constexpr int BR = C::BR, BC = C::BC;
  Keys<C> keys;
  if (!keys.find(p)) return;
  const Sequence& sequence = keys.sequence;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t warp_key = warp % C::KEY_WARPS * 32, share = warp / C::KEY_WARPS;  // of products with keys as rows
  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::K_BYTES, smem_ring = smem_V + C::K_BYTES,
                 smem_dO = smem_ring + 2 * C::Q_BYTES, smem_P = smem_dO + C::Q_BYTES, smem_dS = smem_P + C::dS_BYTES,
                 smem_ring_rows = smem_dS + C::dS_BYTES;
  smem_name(smem_K, C::K_BYTES, "K", C::ROW_BYTES);
  smem_name(smem_V, C::K_BYTES, "V", C::ROW_BYTES);
  smem_name(smem_ring, 2 * C::Q_BYTES, "Q", C::ROW_BYTES);
  smem_name(smem_dO, C::Q_BYTES, "dO", C::ROW_BYTES);
  smem_name(smem_P, C::dS_BYTES, "P", BR * 2);
  smem_name(smem_dS, C::dS_BYTES, "dS", BR * 2);
  smem_name(smem_ring_rows, 2 * C::ROWS_BYTES, "LSE, D");

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, sequence.n_q, sequence.n_k);
  const int first_tile = seers.template first_tile<C>(keys.first_key),
            end_tile = seers.template end_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);
  const bool is_varlen = p.cu_seqlens_q != nullptr;  // rows are numbered among those of all
  const int q_begin = is_varlen ? sequence.q_begin : 0, k_row = (is_varlen ? sequence.k_begin : 0) + keys.first_key;

  const auto start_K = [&](uint32_t tile, const void* tensor, const ModelGradientParams::Strides& strides) {
    start_tile<C, BC>(tile, tensor, strides, sequence.number, keys.kv_head, k_row, sequence.n_k - keys.first_key, p.d);
  };
  const auto start_Q = [&](uint32_t tile, const void* tensor, const ModelGradientParams::Strides& strides, int head,
                           int q_tile) {
    start_tile<C, BR>(tile, tensor, strides, sequence.number, head, q_begin + q_tile * BR, sequence.n_q - q_tile * BR,
                      p.d);
  };
  const auto start_rows = [&](uint32_t rows, int head, int q_tile) {
    if (threadIdx.x < C::ROWS_BYTES / 16)
      cp_async_16(rows + threadIdx.x * 16, rows_of<C>(p, sequence.first_tile + q_tile, head) + threadIdx.x * 4);
  };

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float dK_frag[2][C::COLUMN_TILES][4] = {}, dV_frag[2][C::COLUMN_TILES][4] = {};

  int head = keys.kv_head * group, q_tile = first_tile;
  if (tiles > 0) {
    start_K(smem_K, p.K, p.K_strides);
    start_K(smem_V, p.V, p.V_strides);
    start_Q(smem_ring, p.Q, p.Q_strides, head, q_tile);
    start_Q(smem_dO, p.dO, p.O_strides, head, q_tile);
    start_rows(smem_ring_rows, head, q_tile);
    cp_async_commit();
  }
  for (int tile = 0; tile < tiles; ++tile) {
    // LOAD  The next Q is requested behind the scores of this tile, the next dO when dV has read this one.
    const uint32_t slot = tile % 2, smem_Q = smem_ring + slot * C::Q_BYTES,
                   smem_rows = smem_ring_rows + slot * C::ROWS_BYTES;
    const bool is_last_of_head = q_tile + 1 == end_tile;
    const int next_head = head + is_last_of_head, next_tile = is_last_of_head ? first_tile : q_tile + 1;
    cp_async_wait<0>();  // this thread's part of the tile (and of K and V) has landed
    __syncthreads();     // safe to read it: everybody's part has; safe to overwrite P, dS, and Q, LSE and D of the tile
                         // before: all have made its dK and dQ
    // QK  S^T[32 keys x queries] = K Q^T - LSE, and dP^T = V dO^T - D: sums begin with what is subtracted (74_initial).
    float S_frag[2][C::S_TILES][4], dP_frag[2][C::S_TILES][4];
    for (int pair = 0; pair < C::S_TILES / 2; ++pair) {
      const uint32_t lane_rows = smem_rows + (share * C::S_TILES / 2 + pair) * 64 + lane % 4 * 16;
      const uint4 LSE = ld_shared_v4(lane_rows), D = ld_shared_v4(lane_rows + BR * 4);
      for (int half = 0; half < 2; ++half) {
        begin_with(S_frag[half][2 * pair], S_frag[half][2 * pair + 1], LSE);
        begin_with(dP_frag[half][2 * pair], dP_frag[half][2 * pair + 1], D);
      }
    }
    const uint32_t share_rows = share * C::S_TILES * 8 * C::ROW_BYTES;
    multiply_rows<C>(S_frag, smem_K + warp_key * C::ROW_BYTES, smem_Q + share_rows);
    multiply_rows<C>(dP_frag, smem_V + warp_key * C::ROW_BYTES, smem_dO + share_rows);

    if (tile + 1 < tiles) {
      start_Q(smem_ring + (slot ^ 1) * C::Q_BYTES, p.Q, p.Q_strides, next_head, next_tile);
      start_rows(smem_ring_rows + (slot ^ 1) * C::ROWS_BYTES, next_head, next_tile);
    }

    // SOFTMAX  P^T = 2^S^T and dS^T = P^T dP^T, but for pairs that do not see each other. Two neighbouring queries of a
    //          key: four lanes together 16 B of its row.
    const int lane_key = keys.first_key + warp_key + FragmentC::row(lane, 0), tile_query = q_tile * BR;
    const int last_key = keys.first_key + BC - 1;
    if (last_key >= sequence.n_k || seers.first_query(last_key) > tile_query ||
        seers.last_query(keys.first_key) < tile_query + BR - 1) {
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const int key = lane_key + row * 8, share_query = tile_query + share * C::S_TILES * 8 + FragmentC::col(lane, 0);
        const int from = key >= sequence.n_k ? BR : seers.first_query(key) - share_query,
                  to = seers.last_query(key) - share_query;
        for (int query_tile = 0; query_tile < C::S_TILES; ++query_tile)
          for (int i = 0; i < 2; ++i)
            if (query_tile * 8 + i < from || query_tile * 8 + i > to)
              S_frag[row / 2][query_tile][row % 2 * 2 + i] = -INFINITY;
      }
    }
#pragma unroll
    for (int query_tile = 0; query_tile < C::S_TILES; ++query_tile) {
      for (int row = 0; row < 4; ++row) {
        const float* const S = &S_frag[row / 2][query_tile][row % 2 * 2];
        const float* const dP = &dP_frag[row / 2][query_tile][row % 2 * 2];
        const float low = ex2_approx(S[0] * scale_log2), high = ex2_approx(S[1] * scale_log2);
        const uint32_t at = C::dS_offset(warp_key + row * 8 + lane / 4, share * C::S_TILES + query_tile) + lane % 4 * 4;
        st_shared_b32(smem_P + at, pack<T>(low, high));
        st_shared_b32(smem_dS + at, pack<T>(low * dP[0], high * dP[1]));
      }
    }
    __syncthreads();  // safe to read P and dS: every warp has stored its share

    // PV  dV += P^T dO, dK += dS^T Q, and dQ = dS K, for which dS^T is transposed on its way.
    const uint32_t lane_A = C::dS_offset(warp_key + lane % 16, lane / 16),
                   lane_dS = smem_dS + C::dS_offset(lane % 8 + lane / 16 * 8, warp % C::QUERY_WARPS * 4 + lane / 8 % 2);
    const auto load_rows = [&](uint32_t tile_A) {
      return [=](uint32_t(&A_frag)[4], int half, int query_slice) {
        ldmatrix_x4(A_frag, ((tile_A + lane_A) ^ (query_slice * 32)) + half * 16 * (BR * 2));
      };
    };
    const auto load_transposed = [&](uint32_t(&A_frag)[4], int half, int key_slice) {
      ldmatrix_x4_trans(A_frag, (lane_dS ^ (half * 32)) + key_slice * 16 * (BR * 2));
    };
    add_rows<C, BR / 16>(dV_frag, smem_dO, share * C::COLUMN_TILES, load_rows(smem_P));
    __syncthreads();  // safe to overwrite dO: every warp has read it
    if (tile + 1 < tiles) start_Q(smem_dO, p.dO, p.O_strides, next_head, next_tile);
    cp_async_commit();  // with the next Q, LSE and D
    add_rows<C, BR / 16>(dK_frag, smem_Q, share * C::COLUMN_TILES, load_rows(smem_dS));

    float dQ_frag[2][C::dQ_TILES][4] = {};
    add_rows<C, BC / 16>(dQ_frag, smem_K, warp / C::QUERY_WARPS * C::dQ_TILES, load_transposed);
    float* const lane_sum = dQ_sum_of<C>(p, sequence.first_tile + q_tile, head) + warp_sum<C>(warp) + lane;
#pragma unroll
    for (int element = 0; element < C::dQ_TILES * 8; ++element)
      red_global_add_f32(lane_sum + element * 32,
                         dQ_frag[element / 4 / C::dQ_TILES][element / 4 % C::dQ_TILES][element % 4]);
    head = next_head, q_tile = next_tile;
  }

  // STORE  dK and dV, to where K and V were, and from there row by row. A key that no query sees has sums of zeros
  //        times numbers that may be NaN.
  __syncthreads();  // safe to overwrite K and V: every warp has read them
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    const uint32_t block_key = warp_key + row * 8 + lane / 4;
    const int key = keys.first_key + block_key;
    const bool is_seen = seers.last_query(key) >= 0 && seers.first_query(key) < sequence.n_q;
    for (int column_tile = 0; column_tile < C::COLUMN_TILES; ++column_tile) {
      const float* const dK = &dK_frag[row / 2][column_tile][row % 2 * 2];
      const float* const dV = &dV_frag[row / 2][column_tile][row % 2 * 2];
      const uint32_t at = C::chunk_offset(block_key, share * C::COLUMN_TILES + column_tile) + lane % 4 * 4;
      st_shared_b32(smem_K + at, is_seen ? pack<T>(dK[0] * p.softmax_scale, dK[1] * p.softmax_scale) : 0);
      st_shared_b32(smem_V + at, is_seen ? pack<T>(dV[0], dV[1]) : 0);
    }
  }
  __syncthreads();  // safe to read them: every warp has stored its share
  const int chunk = threadIdx.x % C::ROW_CHUNKS;
#pragma unroll
  for (int first_row = 0; first_row < BC; first_row += C::ROWS_PER_PASS) {
    const int row = first_row + threadIdx.x / C::ROW_CHUNKS;
    if (keys.first_key + row >= sequence.n_k || chunk * 8 >= p.d) continue;
    const auto store = [&](void* tensor, const ModelGradientParams::Strides& strides, uint32_t tile) {
      st_global_v4(static_cast<T*>(tensor) + offset_of(strides, sequence.number, keys.kv_head, k_row + row) + chunk * 8,
                   ld_shared_v4(tile + C::chunk_offset(row, chunk)));
    };
    store(p.dK, p.K_strides, smem_K);
    store(p.dV, p.V_strides, smem_V);
  }
}

// dQ, from the sum, when all blocks have added to it. A thread has eight columns of a row: two numbers of each of four
// lanes that lie side by side.   Grid (tiles of queries, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients(ModelGradientParams p) {
  using T = typename C::T;
  const QueryTile<C> tile(p, blockIdx.x);
  const float scale = p.softmax_scale;
  for (int i = threadIdx.x; i < C::BR * C::ROW_CHUNKS; i += ROW_THREADS) {
    const int row = i / C::ROW_CHUNKS, chunk = i % C::ROW_CHUNKS, half = row % 32 / 16, lane_row = row % 16 / 8;
    if (row >= tile.rows || chunk * 8 >= p.d) continue;
    const int warp = row / 32 + chunk / C::dQ_TILES * C::QUERY_WARPS,
              element = (half * C::dQ_TILES + chunk % C::dQ_TILES) * 4 + lane_row * 2;
    const float* const lanes = dQ_sum_of<C>(p, blockIdx.x, blockIdx.y) + warp_sum<C>(warp) + element * 32 + row % 8 * 4;
    const uint4 even = ld_global_v4(lanes), odd = ld_global_v4(lanes + 32);
    const auto both = [&](uint32_t low, uint32_t high) {
      return pack<T>(__uint_as_float(low) * scale, __uint_as_float(high) * scale);
    };
    const float LSE = ld_global_f32(p.LSE + offset_of(p.LSE_strides, tile.sequence, blockIdx.y, tile.row + row));
    st_global_v4(static_cast<T*>(p.dQ) + offset_of(p.Q_strides, tile.sequence, blockIdx.y, tile.row + row) + chunk * 8,
                 LSE == -INFINITY  // without any key the sum is 0 times K, which may be NaN
                     ? uint4{0, 0, 0, 0}
                     : uint4{both(even.x, odd.x), both(even.y, odd.y), both(even.z, odd.z), both(even.w, odd.w)});
  }
}

// LAUNCH  The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are multiples of 16 B, as
//         are strides.
template <class C>
void run(Device& device, const ModelGradientParams& p) {
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q), p.heads);
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p);
  launch(device, query_gradients<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

}  // namespace
