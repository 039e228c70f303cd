// 07_dbuf: K and V fragments are fetched one step ahead, into the other half of a pair of register buffers.
// Before:  06_batched starts each group of mma only when its ldmatrix has returned, unless the compiler moved it up.
// Tile:    128x64, 4 warps, M_TILES = 2.  Shared: 64 KiB (Q 32, K 16, V 16).  Needs d = 128, n % BR == 0, n % BC == 0.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one row of an ldmatrix matrix, one vector load
constexpr float LOG2E = 1.44269504088896341f;
constexpr float HUGE_SCORE = 0x1p20f;  // log2 units: up to here a maximum loses no more than 1/32 when it is rounded

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES;
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows. Eight chunks fill all 32 banks once; XOR with the row
// puts the same chunk of eight consecutive rows in eight different bank groups.
// It is its own inverse: writers and readers agree.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// Starts to copy a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS)
    cp_async_16(tile + chunk_offset(row + first_row, chunk), source + (row + first_row) * HEAD_DIM + chunk * 8);
}

// Two blocks fit on an SM, and saying so lets the compiler use all 255 registers of a thread.
template <class C>
__global__ void __launch_bounds__(C::THREADS, 2) flash_attention(AttentionParams p) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, THREADS = C::THREADS;
  constexpr int M_TILES = BR / (16 * WARPS);                      // 16-row groups of queries per warp
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS * M_TILES, "each warp owns whole 16-row groups");
  static_assert(BC % 16 == 0, "K is read 16 keys at a time");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const f16 *K = p.K + head, *V = p.V + head;                           // the tile at hand
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, BC * ROW_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, BC * ROW_BYTES, "V", ROW_BYTES);
  const uint32_t warp_Q = smem_Q + warp * M_TILES * 16 * ROW_BYTES;

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[M_TILES][2], row_sum[M_TILES][2] = {};  // [group][lane_row]: a lane has a share of two rows per group
  for (int group = 0; group < M_TILES; ++group) row_max[group][0] = row_max[group][1] = -INFINITY;

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);
  load_tile<BC, THREADS>(smem_K, K);
  cp_async_commit();

  const int kv_tiles = p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD  K[tile] was requested one iteration ago; V[tile] is requested now and needed only after the softmax.
    cp_async_wait<0>();  // this thread's part of K[tile] (and of Q) has landed
    __syncthreads();     // safe to read K: everybody's part has landed; safe to overwrite V: every warp has finished PV
    load_tile<BC, THREADS>(smem_V, V);
    cp_async_commit();

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block: four 8x8 matrices, rows 0-7 and 8-15, then the
    //     next 8 columns. For K, whose rows are keys, matrices 0 and 2 are the B fragment of keys 0-7, 1 and 3 of 8-15.
    float S_frag[M_TILES][QK_N_TILES][4] = {};
    uint32_t K_frag[2][4];  // the fragments in use and the ones on their way
    ldmatrix_x4(K_frag[0], smem_K + chunk_offset(lane % 16, lane / 16));
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      uint32_t Q_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group)
        ldmatrix_x4(Q_frag[group], warp_Q + group * 16 * ROW_BYTES + chunk_offset(lane % 16, d_slice * 2 + lane / 16));
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        const int step = (d_slice * QK_N_TILES + key_tile) / 2, next = step + 1;
        const int next_d_slice = next / (QK_N_TILES / 2), next_key_tile = (next % (QK_N_TILES / 2)) * 2;
        if (next_d_slice < QK_K_TILES)
          ldmatrix_x4(K_frag[next % 2],
                      smem_K + next_key_tile * 8 * ROW_BYTES + chunk_offset(lane % 16, next_d_slice * 2 + lane / 16));
        for (int group = 0; group < M_TILES; ++group) {
          mma_m16n8k16(S_frag[group][key_tile], Q_frag[group], K_frag[step % 2][0], K_frag[step % 2][2]);
          mma_m16n8k16(S_frag[group][key_tile + 1], Q_frag[group], K_frag[step % 2][1], K_frag[step % 2][3]);
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum or a sum.
    float scale = scale_log2, new_max[M_TILES][2];  // in log2 units
    bool huge = false;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        float tile_max = -INFINITY;
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          const float low = S_frag[group][key_tile][2 * lane_row], high = S_frag[group][key_tile][2 * lane_row + 1];
          tile_max = fmaxf(tile_max, fmaxf(low, high));
        }
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));

        new_max[group][lane_row] = fmaxf(row_max[group][lane_row], tile_max * scale_log2);
        huge |= fabsf(new_max[group][lane_row]) > HUGE_SCORE;
      }
    }
    if (huge) {  // S * scale - row_max is one instruction, and rounds no product: 05 tells. Here each is rounded.
#pragma unroll
      for (int group = 0; group < M_TILES; ++group) {
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          for (int i = 0; i < 4; ++i)
            S_frag[group][key_tile][i] = fminf(S_frag[group][key_tile][i] * scale_log2, new_max[group][i / 2]);
        }
      }
      scale = 1;
    }
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        const float correction = ex2_approx(row_max[group][lane_row] - new_max[group][lane_row]);  // 0 at first
        row_max[group][lane_row] = new_max[group][lane_row];

        float tile_sum = 0.0f;
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          const float low = ex2_approx(S_frag[group][key_tile][2 * lane_row] * scale - row_max[group][lane_row]);
          const float high = ex2_approx(S_frag[group][key_tile][2 * lane_row + 1] * scale - row_max[group][lane_row]);
          S_frag[group][key_tile][2 * lane_row] = low;
          S_frag[group][key_tile][2 * lane_row + 1] = high;
          tile_sum += low + high;
        }
        tile_sum += shfl_xor(tile_sum, 1);
        tile_sum += shfl_xor(tile_sum, 2);
        row_sum[group][lane_row] = row_sum[group][lane_row] * correction + tile_sum;
        for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
          O_frag[group][column_tile][2 * lane_row] *= correction;
          O_frag[group][column_tile][2 * lane_row + 1] *= correction;
        }
      }
      // Two C fragments side by side hold exactly the elements of one A fragment: P needs no exchange, only rounding.
      for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
        const auto &left = S_frag[group][2 * key_slice], &right = S_frag[group][2 * key_slice + 1];
        P_frag[group][key_slice][0] = pack_f16x2(left[0], left[1]);
        P_frag[group][key_slice][1] = pack_f16x2(left[2], left[3]);
        P_frag[group][key_slice][2] = pack_f16x2(right[0], right[1]);
        P_frag[group][key_slice][3] = pack_f16x2(right[2], right[3]);
      }
    }

    // LOAD  V[tile] is needed now; K[tile + 1] is requested and arrives while PV runs.
    cp_async_wait<0>();  // this thread's part of V[tile] has landed
    __syncthreads();     // safe to read V: everybody's part has landed; safe to overwrite K: every warp has finished QK
    if (tile + 1 < kv_tiles) load_tile<BC, THREADS>(smem_K, K + BC * HEAD_DIM);
    cp_async_commit();

    // PV  V's rows are the k dimension of B, so ldmatrix transposes each 8x8 matrix on its way into the registers.
    //     Transposed, matrices 0 and 1 are the fragment of columns 0-7, 2 and 3 of 8-15 (for K: 0 and 2, 1 and 3).
    uint32_t V_frag[2][4];  // the fragments in use and the ones on their way
    ldmatrix_x4_trans(V_frag[0], smem_V + chunk_offset(lane % 16, lane / 16));
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        const int step = (key_slice * PV_N_TILES + column_tile) / 2, next = step + 1;
        const int next_key_slice = next / (PV_N_TILES / 2), next_column_tile = (next % (PV_N_TILES / 2)) * 2;
        if (next_key_slice < PV_K_TILES)
          ldmatrix_x4_trans(V_frag[next % 2], smem_V + next_key_slice * 16 * ROW_BYTES +
                                                  chunk_offset(lane % 16, next_column_tile + lane / 16));
        for (int group = 0; group < M_TILES; ++group) {
          mma_m16n8k16(O_frag[group][column_tile], P_frag[group][key_slice], V_frag[step % 2][0], V_frag[step % 2][1]);
          mma_m16n8k16(O_frag[group][column_tile + 1], P_frag[group][key_slice], V_frag[step % 2][2],
                       V_frag[step % 2][3]);
        }
      }
    }
  }

  // STORE  Each lane writes two halves per fragment and row; 4 lanes together write 16 B of a row.
  for (int group = 0; group < M_TILES; ++group) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float normalise = 1.0f / row_sum[group][lane_row];
      const int row = (warp * M_TILES + group) * 16 + FragmentC::row(lane, 2 * lane_row);
      f16* O_row = p.O + block_rows + row * HEAD_DIM + FragmentC::col(lane, 0);
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        const float low = O_frag[group][column_tile][2 * lane_row] * normalise;
        const float high = O_frag[group][column_tile][2 * lane_row + 1] * normalise;
        st_global_b32(O_row + column_tile * 8, pack_f16x2(low, high));
      }
    }
  }
}

// LAUNCH  One block per BR queries of a head. The pointers of `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
