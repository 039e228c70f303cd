// 00f_mmaqk: QK with mma.sync too, on fragments that ldmatrix brings. Q K^T comes out where the softmax wants it: S stays
//            in registers, and nothing but Q, K and V passes through shared memory.
// Before:    00e_mmapv stores S from opaque fragments, only to read it back in a layout that is known.
// Tile:      64x32, 4 warps.   Shared: 32 KiB (Q 16, K 8, V 8).   Needs d = 128, n % BR == 0, n % BC == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one row of an ldmatrix matrix, one vector load
constexpr float LOG2E = 1.44269504088896341f;

template <int BR, int BC>
constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES;

// Byte offset of a 16-byte chunk within a tile of 256-byte rows.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + chunk * 16;
}

// Copies a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
#pragma unroll
  for (int pass = 0; pass < ROWS; pass += ROWS_PER_PASS) {
    const uint4 eight_halves = ld_global_v4(source + (row + pass) * HEAD_DIM + chunk * 8);
    st_shared_v4(tile + chunk_offset(row + pass, chunk), eight_halves);
  }
}

template <int BR, int BC, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) flash_attention(AttentionParams p) {
  constexpr int THREADS = WARPS * 32;
  constexpr int M_TILES = 1;                                      // 16-row groups of queries per warp
  constexpr int ROWS = 2 * M_TILES;                               // of S and O per lane
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS, "each warp owns 16 rows");
  static_assert(BC % 16 == 0, "K is read 16 keys at a time");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first_row = warp * 16 + FragmentC::row(lane, 0), column = FragmentC::col(lane, 0);
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const f16 *K = p.K + head, *V = p.V + head;                           // the tile at hand
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q");
  smem_name(smem_K, BC * ROW_BYTES, "K");
  smem_name(smem_V, BC * ROW_BYTES, "V");
  const uint32_t warp_Q = smem_Q + warp * 16 * ROW_BYTES;

  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[ROWS], row_sum[ROWS] = {};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) row_max[r] = -INFINITY;

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);

  const int first_query = blockIdx.x * BR;
  const int kv_tiles =
      p.causal ? (first_query + BR - 1) / BC + 1 : p.n / BC;  // to the tile of the last query's own key
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD
    __syncthreads();  // safe to overwrite K and V: every warp has finished PV of the tile before
    load_tile<BC, THREADS>(smem_K, K);
    load_tile<BC, THREADS>(smem_V, V);
    __syncthreads();  // safe to read Q, K and V: every thread has stored its part

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block: four 8x8 matrices, rows 0-7 and 8-15, then the
    //     next 8 columns. For K, whose rows are keys, matrices 0 and 2 are the B fragment of keys 0-7, 1 and 3 of 8-15.
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int k = 0; k < QK_K_TILES; ++k) {
        uint32_t Q_frag[4];
        ldmatrix_x4(Q_frag, warp_Q + m * 16 * ROW_BYTES + chunk_offset(lane % 16, k * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < QK_N_TILES; n += 2) {
          uint32_t K_frag[4];
          ldmatrix_x4(K_frag, smem_K + n * 8 * ROW_BYTES + chunk_offset(lane % 16, k * 2 + lane / 16));
          mma_m16n8k16(S_frag[m][n], Q_frag, K_frag[0], K_frag[2]);
          mma_m16n8k16(S_frag[m][n + 1], Q_frag, K_frag[1], K_frag[3]);
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum or a sum. Row r of
    //          a lane lies r * 8 below its first: registers r % 2 * 2 and the next.
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < QK_N_TILES; ++n) {
        float &left = S_frag[r / 2][n][r % 2 * 2], &right = S_frag[r / 2][n][r % 2 * 2 + 1];
        left *= p.softmax_scale, right *= p.softmax_scale;
        const int key = tile * BC + n * 8 + column, query = first_query + first_row + r * 8;
        if (p.causal && key > query) left = -INFINITY;  // weight 0; key 0 is seen by all: no maximum is -inf
        if (p.causal && key + 1 > query) right = -INFINITY;
        tile_max = fmaxf(tile_max, fmaxf(left, right));
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));

      const float new_max = fmaxf(row_max[r], tile_max);
      const float correction = ex2_approx((row_max[r] - new_max) * LOG2E);  // <= 1; 0 on the first tile
      row_max[r] = new_max;

      float tile_sum = 0.0f;
#pragma unroll
      for (int n = 0; n < QK_N_TILES; ++n) {
        float &left = S_frag[r / 2][n][r % 2 * 2], &right = S_frag[r / 2][n][r % 2 * 2 + 1];
        left = ex2_approx((left - new_max) * LOG2E), right = ex2_approx((right - new_max) * LOG2E);
        tile_sum += left + right;
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      row_sum[r] = row_sum[r] * correction + tile_sum;
#pragma unroll
      for (int n = 0; n < PV_N_TILES; ++n) {
        O_frag[r / 2][n][r % 2 * 2] *= correction;
        O_frag[r / 2][n][r % 2 * 2 + 1] *= correction;
      }
    }
    // Two C fragments side by side hold exactly the elements of one A fragment: P needs no exchange, only rounding.
    uint32_t P_frag[M_TILES][PV_K_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int k = 0; k < PV_K_TILES; ++k) {
        P_frag[m][k][0] = pack_f16x2(S_frag[m][2 * k][0], S_frag[m][2 * k][1]);
        P_frag[m][k][1] = pack_f16x2(S_frag[m][2 * k][2], S_frag[m][2 * k][3]);
        P_frag[m][k][2] = pack_f16x2(S_frag[m][2 * k + 1][0], S_frag[m][2 * k + 1][1]);
        P_frag[m][k][3] = pack_f16x2(S_frag[m][2 * k + 1][2], S_frag[m][2 * k + 1][3]);
      }
    }

    // PV  V's rows are the k dimension of B, so ldmatrix transposes each 8x8 matrix on its way into the registers.
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int k = 0; k < PV_K_TILES; ++k) {
#pragma unroll
        for (int n = 0; n < PV_N_TILES; ++n) {
          uint32_t V_frag[2];
          ldmatrix_x2_trans(V_frag, smem_V + k * 16 * ROW_BYTES + chunk_offset(lane % 16, n));
          mma_m16n8k16(O_frag[m][n], P_frag[m][k], V_frag[0], V_frag[1]);
        }
      }
    }
  }

  // STORE  Each lane writes two halves per fragment and row; 4 lanes together write 16 B of a row.
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float normalise = 1.0f / row_sum[2 * m + r];
      const int row = (warp * M_TILES + m) * 16 + FragmentC::row(lane, 2 * r);
      f16* O_row = p.O + block_rows + row * HEAD_DIM + FragmentC::col(lane, 0);
#pragma unroll
      for (int n = 0; n < PV_N_TILES; ++n) {
        const float low = O_frag[m][n][2 * r] * normalise, high = O_frag[m][n][2 * r + 1] * normalise;
        st_global_b32(O_row + n * 8, pack_f16x2(low, high));
      }
      float* LSE_row = p.LSE + size_t(blockIdx.y) * p.n + first_query + row;
      if (lane % 4 == 0) st_global_f32(LSE_row, row_max[2 * m + r] + logf(row_sum[2 * m + r]));
    }
  }
}

}  // namespace
