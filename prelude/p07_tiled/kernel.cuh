// 00b_tiled: a whole tile of keys takes one step: a lane has eight of its keys, so what it reads of Q serves eight scores.
// Before:    00af_wholescores reads all of Q again, and corrects O, for every eight keys.
// Tile:      64x64, 4 warps.   Shared: 64 KiB (Q 16, K 16, V 16, P 16).   Needs d = 128, n % BR == 0, n % BC == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
constexpr float LOG2E = 1.44269504088896341f;

template <int BR, int BC>
constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES + BR * 4 * BC;

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

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], uint32_t address) {
  const uint4 chunk = ld_shared_v4(address);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16))});
}

template <int BR, int BC, int WARPS>
__global__ void __launch_bounds__(WARPS * 32) flash_attention(AttentionParams p) {
  constexpr int THREADS = WARPS * 32;
  constexpr int ROWS = 4, KEYS = BC / 8;  // of S per lane: a warp's 16 rows are shared by 4 x 8 lanes, 8 to a row
  constexpr int COLS = HEAD_DIM / 8;      // of O per lane
  static_assert(BR == 16 * WARPS, "each warp owns 16 rows");
  static_assert(BC % 32 == 0, "a lane's keys come in groups of 4");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first_row = warp * 16 + lane / 8 * ROWS, column = lane % 8;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const f16 *K = p.K + head, *V = p.V + head;                           // the tile at hand
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  const uint32_t smem_P = smem_V + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q");
  smem_name(smem_K, BC * ROW_BYTES, "K");
  smem_name(smem_V, BC * ROW_BYTES, "V");
  smem_name(smem_P, BR * BC * 4, "P");

  float O_frag[ROWS][COLS] = {};
  float row_max[ROWS], row_sum[ROWS] = {};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) row_max[r] = -INFINITY;

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);

  const int kv_tiles = p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD
    __syncthreads();  // safe to overwrite K and V: every warp has finished PV of the tile before
    load_tile<BC, THREADS>(smem_K, K);
    load_tile<BC, THREADS>(smem_V, V);
    __syncthreads();  // safe to read Q, K and V: every thread has stored its part

    // QK  Key j of a lane is row column * 4 + j / 4 * 32 + j % 4 of K. Rows are a multiple of 128 B apart, so eight
    //     lanes that read the same chunk of eight rows would meet in one bank: each begins its sum at another chunk.
    float S_frag[ROWS][KEYS] = {};
#pragma unroll 1
    for (int c = 0; c < ROW_CHUNKS; ++c) {
      const uint32_t chunk = c ^ column;
      float Q_part[ROWS][8], K_part[8];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) load_chunk(Q_part[r], smem_Q + chunk_offset(first_row + r, chunk));
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        load_chunk(K_part, smem_K + chunk_offset(column * 4 + j / 4 * 32 + j % 4, chunk));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
          for (int i = 0; i < 8; ++i) S_frag[r][j] += Q_part[r][i] * K_part[i];
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 8 neighbouring lanes, so three exchanges complete a maximum or a sum.
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        S_frag[r][j] *= p.softmax_scale;
        tile_max = fmaxf(tile_max, S_frag[r][j]);
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 4));

      const float new_max = fmaxf(row_max[r], tile_max);
      const float correction = ex2_approx((row_max[r] - new_max) * LOG2E);  // <= 1; 0 on the first tile
      row_max[r] = new_max;

      float tile_sum = 0.0f;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        S_frag[r][j] = ex2_approx((S_frag[r][j] - new_max) * LOG2E);
        tile_sum += S_frag[r][j];
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      tile_sum += shfl_xor(tile_sum, 4);
      row_sum[r] = row_sum[r] * correction + tile_sum;
#pragma unroll
      for (int c = 0; c < COLS; ++c) O_frag[r][c] *= correction;

#pragma unroll
      // In PV a lane needs all weights of its rows, and has an eighth of them: P goes through shared memory.
      for (int j = 0; j < KEYS; j += 4) {
        const uint4 four_weights = {__float_as_uint(S_frag[r][j]), __float_as_uint(S_frag[r][j + 1]),
                                    __float_as_uint(S_frag[r][j + 2]), __float_as_uint(S_frag[r][j + 3])};
        st_shared_v4(smem_P + ((first_row + r) * BC + j * 8 + column * 4) * 4, four_weights);
      }
    }
    __syncwarp();  // safe to read P: its rows belong to this warp, and all lanes have stored their part

    // PV  Columns column * 8 to column * 8 + 7 of O, and the same 64 further: a chunk each of a row of V.
#pragma unroll 1
    for (int k = 0; k < BC; k += 4) {
      float P_part[ROWS][4], V_part[8];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const uint4 four_weights = ld_shared_v4(smem_P + ((first_row + r) * BC + k) * 4);
        P_part[r][0] = __uint_as_float(four_weights.x), P_part[r][1] = __uint_as_float(four_weights.y);
        P_part[r][2] = __uint_as_float(four_weights.z), P_part[r][3] = __uint_as_float(four_weights.w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
          if (c % 8 == 0) load_chunk(V_part, smem_V + chunk_offset(k + i, column + c));
#pragma unroll
          for (int r = 0; r < ROWS; ++r) O_frag[r][c] += P_part[r][i] * V_part[c % 8];
        }
      }
    }
  }

  // STORE  Eight lanes together write 128 B of a row, twice; and one of them its log-sum-exp.
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float normalise = 1.0f / row_sum[r];
    f16* O_row = p.O + block_rows + (first_row + r) * HEAD_DIM + column * 8;
#pragma unroll
    for (int c = 0; c < COLS; c += 8) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = pack_f16x2(O_frag[r][c + 2 * i] * normalise, O_frag[r][c + 2 * i + 1] * normalise);
      st_global_v4(O_row + c * 8, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
    }
    float* LSE_row = p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x * BR + first_row + r;
    if (column == 0) st_global_f32(LSE_row, row_max[r] + logf(row_sum[r]));
  }
}

}  // namespace
