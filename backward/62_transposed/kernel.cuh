// 62_transposed: all seven products by mma.sync. The walk over queries computes S^T and dP^T, with the keys as rows:
//          then a lane holds P^T and dS^T as dV = P^T dO and dK = dS^T Q want them, and nothing is exchanged.
// Before:  61_recomputed multiplies on the CUDA cores.
// Tile:    64x64, 4 warps: a warp has 16 keys, or 16 queries.  Shared: 64.5 KiB (K, V, Q, dO 16 each; LSE, D).
//          Needs d = 128, n % BR == 0.
// Shapes:  Q, K, V, O, dO, dQ, dK, dV: [batch * heads, n, d] f16.
//          LSE, and D in the workspace: [batch * heads, n] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one row of an ldmatrix matrix, one vector load
constexpr int D_SLICES = HEAD_DIM / 16, COLUMN_TILES = HEAD_DIM / 8;
constexpr float LOG2E = 1.44269504088896341f;

// A block's rows, and those of a step of its walk: BR queries and BC keys, or the other way round.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t TILE_BYTES = BR * ROW_BYTES;
  static constexpr uint32_t SMEM_BYTES = 4 * TILE_BYTES + 2 * BR * 4;  // and LSE and D of a tile of queries
  static_assert(BR == BC && BR == 16 * WARPS, "a warp has 16 rows of either kind, and the diagonal crosses one tile");
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows, swizzled: 02_swizzle.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// Copies a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    const uint4 eight_halves = ld_global_v4(source + (row + first_row) * HEAD_DIM + chunk * 8);
    st_shared_v4(tile + chunk_offset(row + first_row, chunk), eight_halves);
  }
}

// C[16 x 8 TILES] = A[16 x d] B^T: scores, of a warp's 16 rows with a tile's. The rows of B are the columns of C.
template <int TILES>
__device__ __forceinline__ void multiply_rows(float (&C_frag)[TILES][4], uint32_t warp_A, uint32_t tile_B) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int d_slice = 0; d_slice < D_SLICES; ++d_slice) {
    const uint32_t offset = chunk_offset(lane % 16, d_slice * 2 + lane / 16);
    uint32_t A_frag[4];
    ldmatrix_x4(A_frag, warp_A + offset);
    for (int tile = 0; tile < TILES; tile += 2) {
      uint32_t B_frag[4];
      ldmatrix_x4(B_frag, tile_B + tile * 8 * ROW_BYTES + offset);
      mma_m16n8k16(C_frag[tile], A_frag, B_frag[0], B_frag[2]);
      mma_m16n8k16(C_frag[tile + 1], A_frag, B_frag[1], B_frag[3]);
    }
  }
}

// C[16 x d] += A[16 x 16] B: a gradient, of a warp's 16 rows, from 16 rows of a tile. They are the k dimension, so
// ldmatrix transposes them on their way into the registers.
__device__ __forceinline__ void add_rows(float (&C_frag)[COLUMN_TILES][4], const uint32_t (&A_frag)[4],
                                         uint32_t rows_B) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int column_tile = 0; column_tile < COLUMN_TILES; column_tile += 2) {
    uint32_t B_frag[4];
    ldmatrix_x4_trans(B_frag, rows_B + chunk_offset(lane % 16, column_tile + lane / 16));
    mma_m16n8k16(C_frag[column_tile], A_frag, B_frag[0], B_frag[1]);
    mma_m16n8k16(C_frag[column_tile + 1], A_frag, B_frag[2], B_frag[3]);
  }
}

// Each lane writes two halves per fragment and row; 4 lanes together write 16 B of a row.
__device__ __forceinline__ void store_rows(f16* rows, const float (&C_frag)[COLUMN_TILES][4], float factor) {
  const uint32_t lane = threadIdx.x % 32;
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    f16* row = rows + FragmentC::row(lane, 2 * lane_row) * HEAD_DIM + FragmentC::col(lane, 0);
    for (int column_tile = 0; column_tile < COLUMN_TILES; ++column_tile) {
      const float low = C_frag[column_tile][2 * lane_row] * factor,
                  high = C_frag[column_tile][2 * lane_row + 1] * factor;
      st_global_b32(row + column_tile * 8, pack_f16x2(low, high));
    }
  }
}

// D[query] = dot(dO[query], O[query]), eight lanes a row.   Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS) deltas(GradientParams p) {
  for (int row = threadIdx.x / 8; row < C::BR; row += C::THREADS / 8) {
    const size_t query = size_t(blockIdx.y) * p.n_q + blockIdx.x * C::BR + row;
    float sum = 0.0f;
    for (int chunk = threadIdx.x % 8; chunk < ROW_CHUNKS; chunk += 8) {
      const uint4 O = ld_global_v4(p.O + query * HEAD_DIM + chunk * 8);
      const uint4 dO = ld_global_v4(p.dO + query * HEAD_DIM + chunk * 8);
      const uint32_t O_pairs[4] = {O.x, O.y, O.z, O.w}, dO_pairs[4] = {dO.x, dO.y, dO.z, dO.w};
      for (int i = 0; i < 8; ++i)
        sum += to_float(f16{static_cast<uint16_t>(O_pairs[i / 2] >> (i % 2 * 16))}) *
               to_float(f16{static_cast<uint16_t>(dO_pairs[i / 2] >> (i % 2 * 16))});
    }
    sum += shfl_xor(sum, 1);
    sum += shfl_xor(sum, 2);
    sum += shfl_xor(sum, 4);
    if (threadIdx.x % 8 == 0) st_global_f32(static_cast<float*>(p.workspace) + query, sum);
  }
}

// dK and dV of BC keys, over all tiles of queries.   Grid (keys / BC, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 2) key_gradients(GradientParams p) {
  constexpr int BR = C::BR, BC = C::BC, THREADS = C::THREADS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n_q, block_rows = (head + blockIdx.x * BC) * HEAD_DIM;
  const uint32_t smem_K = smem_base(), smem_V = smem_K + C::TILE_BYTES, smem_Q = smem_V + C::TILE_BYTES,
                 smem_dO = smem_Q + C::TILE_BYTES, smem_LSE = smem_dO + C::TILE_BYTES, smem_D = smem_LSE + BR * 4;
  smem_name(smem_K, C::TILE_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::TILE_BYTES, "V", ROW_BYTES);
  smem_name(smem_Q, C::TILE_BYTES, "Q", ROW_BYTES);
  smem_name(smem_dO, C::TILE_BYTES, "dO", ROW_BYTES);
  smem_name(smem_LSE, BR * 4, "LSE");
  smem_name(smem_D, BR * 4, "D");
  const uint32_t warp_K = smem_K + warp * 16 * ROW_BYTES, warp_V = smem_V + warp * 16 * ROW_BYTES;
  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float dK_frag[COLUMN_TILES][4] = {}, dV_frag[COLUMN_TILES][4] = {};

  load_tile<BC, THREADS>(smem_K, p.K + block_rows);
  load_tile<BC, THREADS>(smem_V, p.V + block_rows);

  const int first_tile = p.causal ? blockIdx.x : 0;  // queries before these see none of the block's keys
  for (int tile = first_tile; tile < p.n_q / BR; ++tile) {
    // LOAD
    const size_t tile_queries = head + tile * BR;
    __syncthreads();  // safe to overwrite the tile: every warp has read the one before
    load_tile<BR, THREADS>(smem_Q, p.Q + tile_queries * HEAD_DIM);
    load_tile<BR, THREADS>(smem_dO, p.dO + tile_queries * HEAD_DIM);
    if (threadIdx.x < BR) {
      const float LSE_log2 = ld_global_f32(p.LSE + tile_queries + threadIdx.x) * LOG2E;
      const float D = ld_global_f32(static_cast<float*>(p.workspace) + tile_queries + threadIdx.x);
      st_shared_b32(smem_LSE + threadIdx.x * 4, __float_as_uint(LSE_log2));
      st_shared_b32(smem_D + threadIdx.x * 4, __float_as_uint(D));
    }
    __syncthreads();  // safe to read all of it: every thread has stored its part

    // QK  S^T[16 keys x BR queries] = K Q^T, and dP^T = V dO^T
    float S_frag[BR / 8][4] = {}, dP_frag[BR / 8][4] = {};
    multiply_rows(S_frag, warp_K, smem_Q);
    multiply_rows(dP_frag, warp_V, smem_dO);
    if (p.causal && tile == first_tile) {
      for (int query_tile = 0; query_tile < BR / 8; ++query_tile) {
        for (int i = 0; i < 4; ++i) {
          const int key = warp * 16 + FragmentC::row(lane, i), query = query_tile * 8 + FragmentC::col(lane, i);
          if (key > query) S_frag[query_tile][i] = -INFINITY;
        }
      }
    }

#pragma unroll
    for (int query_slice = 0; query_slice < BR / 16; ++query_slice) {
      // SOFTMAX  A lane's elements belong to two keys and, in a slice, to four queries: registers 0 and 1 of a C
      //          fragment to two that are neighbours, 2 and 3 to the same. Two C fragments side by side hold exactly
      //          the elements of one A fragment.
      uint32_t P_frag[4], dS_frag[4];
      for (int half = 0; half < 2; ++half) {
        const int query_tile = 2 * query_slice + half;
        const uint2 LSE = ld_shared_v2(smem_LSE + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        const uint2 D = ld_shared_v2(smem_D + (query_tile * 8 + FragmentC::col(lane, 0)) * 4);
        for (int lane_row = 0; lane_row < 2; ++lane_row) {
          const float low = ex2_approx(S_frag[query_tile][2 * lane_row] * scale_log2 - __uint_as_float(LSE.x));
          const float high = ex2_approx(S_frag[query_tile][2 * lane_row + 1] * scale_log2 - __uint_as_float(LSE.y));
          P_frag[2 * half + lane_row] = pack_f16x2(low, high);
          dS_frag[2 * half + lane_row] =
              pack_f16x2(low * (dP_frag[query_tile][2 * lane_row] - __uint_as_float(D.x)),
                         high * (dP_frag[query_tile][2 * lane_row + 1] - __uint_as_float(D.y)));
        }
      }
      // PV  dV += P^T dO, dK += dS^T Q
      add_rows(dV_frag, P_frag, smem_dO + query_slice * 16 * ROW_BYTES);
      add_rows(dK_frag, dS_frag, smem_Q + query_slice * 16 * ROW_BYTES);
    }
  }

  // STORE
  const size_t warp_rows = block_rows + warp * 16 * HEAD_DIM;
  store_rows(p.dK + warp_rows, dK_frag, p.softmax_scale);
  store_rows(p.dV + warp_rows, dV_frag, 1.0f);
}

// dQ of BR queries, over all tiles of keys: the same, with queries as rows.   Grid (queries / BR, batch * heads).
template <class C>
__global__ void __launch_bounds__(C::THREADS, 2) query_gradients(GradientParams p) {
  constexpr int BR = C::BR, BC = C::BC, THREADS = C::THREADS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n_k, block_queries = size_t(blockIdx.y) * p.n_q + blockIdx.x * BR;
  const uint32_t smem_Q = smem_base(), smem_dO = smem_Q + C::TILE_BYTES, smem_K = smem_dO + C::TILE_BYTES,
                 smem_V = smem_K + C::TILE_BYTES;
  smem_name(smem_Q, C::TILE_BYTES, "Q", ROW_BYTES);
  smem_name(smem_dO, C::TILE_BYTES, "dO", ROW_BYTES);
  smem_name(smem_K, C::TILE_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, C::TILE_BYTES, "V", ROW_BYTES);
  const uint32_t warp_Q = smem_Q + warp * 16 * ROW_BYTES, warp_dO = smem_dO + warp * 16 * ROW_BYTES;
  const float scale_log2 = p.softmax_scale * LOG2E;
  float dQ_frag[COLUMN_TILES][4] = {}, LSE_log2[2], D[2];  // [lane_row]: a lane has a share of two queries
  for (int lane_row = 0; lane_row < 2; ++lane_row) {
    const size_t query = block_queries + warp * 16 + FragmentC::row(lane, 2 * lane_row);
    LSE_log2[lane_row] = ld_global_f32(p.LSE + query) * LOG2E;
    D[lane_row] = ld_global_f32(static_cast<float*>(p.workspace) + query);
  }

  load_tile<BR, THREADS>(smem_Q, p.Q + block_queries * HEAD_DIM);
  load_tile<BR, THREADS>(smem_dO, p.dO + block_queries * HEAD_DIM);

  const int kv_tiles = p.causal ? blockIdx.x + 1 : p.n_k / BC;
  for (int tile = 0; tile < kv_tiles; ++tile) {
    // LOAD
    __syncthreads();  // safe to overwrite K and V: every warp has read the tile before
    load_tile<BC, THREADS>(smem_K, p.K + (head + tile * BC) * HEAD_DIM);
    load_tile<BC, THREADS>(smem_V, p.V + (head + tile * BC) * HEAD_DIM);
    __syncthreads();  // safe to read all of it: every thread has stored its part

    // QK  S[16 queries x BC keys] = Q K^T, and dP = dO V^T
    float S_frag[BC / 8][4] = {}, dP_frag[BC / 8][4] = {};
    multiply_rows(S_frag, warp_Q, smem_K);
    multiply_rows(dP_frag, warp_dO, smem_V);
    if (p.causal && tile + 1 == kv_tiles) {
      for (int key_tile = 0; key_tile < BC / 8; ++key_tile) {
        for (int i = 0; i < 4; ++i) {
          const int query = warp * 16 + FragmentC::row(lane, i), key = key_tile * 8 + FragmentC::col(lane, i);
          if (key > query) S_frag[key_tile][i] = -INFINITY;
        }
      }
    }

#pragma unroll
    for (int key_slice = 0; key_slice < BC / 16; ++key_slice) {
      // SOFTMAX
      uint32_t dS_frag[4];
      for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two queries; 2 and 3: keys 8-15
        const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
        const float low = ex2_approx(S_frag[key_tile][2 * lane_row] * scale_log2 - LSE_log2[lane_row]);
        const float high = ex2_approx(S_frag[key_tile][2 * lane_row + 1] * scale_log2 - LSE_log2[lane_row]);
        dS_frag[reg] = pack_f16x2(low * (dP_frag[key_tile][2 * lane_row] - D[lane_row]),
                                  high * (dP_frag[key_tile][2 * lane_row + 1] - D[lane_row]));
      }
      // PV  dQ += dS K
      add_rows(dQ_frag, dS_frag, smem_K + key_slice * 16 * ROW_BYTES);
    }
  }

  // STORE
  store_rows(p.dQ + (block_queries + warp * 16) * HEAD_DIM, dQ_frag, p.softmax_scale);
}

// LAUNCH  D first, which both others read. The pointers of `p` belong to the device; n is a multiple of BR.
template <class C>
void run(Device& device, const GradientParams& p) {
  const dim3 grid(p.n_q / C::BR, p.batch_heads);
  launch(device, deltas<C>, grid, dim3(C::THREADS), 0, p);
  launch(device, key_gradients<C>, grid, dim3(C::THREADS), C::SMEM_BYTES, p);
  launch(device, query_gradients<C>, grid, dim3(C::THREADS), 4 * C::TILE_BYTES, p);
}

}  // namespace
