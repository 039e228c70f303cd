// p11_lse: beside O, the logarithm of each row's sum of weights: with it, another kernel can compute any weight of the
//          row again, and join this O with one over other keys.
// Before:  p07_tiled knows each row's maximum and sum at its end, and lets go of both.
// Tile:    64x64, 4 warps.  Shared: 64 KiB (Q 16, K 16, V 16, P 16).  Needs d = 128, n % BR == 0, n % BC == 0.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.   LSE: [batch * heads, n] f32.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
constexpr int CHUNKS = 2;                   // of these, a lane has two: 16 of a row's 128 columns
constexpr float LOG2E = 1.44269504088896341f;

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES + BR * BC * 4;
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + chunk * 16;
}

// Copies a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory. SWIZZLED, XOR with a number
// puts the same chunk of every fourth row in another bank group.
template <int ROWS, int THREADS, bool SWIZZLED = false>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS) {
    const uint4 eight_halves = ld_global_v4(source + (row + first_row) * HEAD_DIM + chunk * 8);
    const uint32_t swizzle = SWIZZLED ? (row / 4 ^ first_row / 4) % 8 : 0;
    st_shared_v4(tile + chunk_offset(row + first_row, chunk ^ swizzle), eight_halves);
  }
}

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], uint32_t address) {
  const uint4 chunk = ld_shared_v4(address);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) flash_attention(AttentionParams p) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, THREADS = C::THREADS;
  constexpr int ROWS = 4, KEYS = BC / 8;  // of S per lane: a warp's 16 rows are shared by 4 x 8 lanes, 8 to a row
  static_assert(BR == 16 * WARPS, "each warp owns 16 rows");
  static_assert(BC % 32 == 0, "a lane's keys come in fours");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first_row = warp * 16 + (lane / 8) * ROWS, eighth = lane % 8;  // chunks eighth, eighth + 8
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const f16 *K = p.K + head, *V = p.V + head;                           // the tile at hand
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  const uint32_t smem_P = smem_V + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, BC * ROW_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, BC * ROW_BYTES, "V", ROW_BYTES);
  smem_name(smem_P, BR * BC * 4, "P", BC * 4);

  float O_part[ROWS][CHUNKS][8] = {};
  float row_max[ROWS], row_sum[ROWS] = {};
  for (int lane_row = 0; lane_row < ROWS; ++lane_row) row_max[lane_row] = -INFINITY;

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);

  const int kv_tiles = p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD
    __syncthreads();  // safe to overwrite K and V: every warp has finished PV of the tile before
    load_tile<BC, THREADS, true>(smem_K, K);
    load_tile<BC, THREADS>(smem_V, V);
    __syncthreads();  // safe to read Q, K and V: every thread has stored its part

    // QK    Key j of a lane is row eighth * 4 + (j / 4) * 32 + j % 4 of K. Eight lanes read the same chunk of eight
    //       rows, which is swizzled. So all sum in the same order, and keys that are alike have one score, however
    //       large it is.
    float S_part[ROWS][KEYS] = {};
#pragma unroll 1
    for (int step = 0; step < ROW_CHUNKS; ++step) {
      float Q_part[ROWS][8], K_part[8];
      for (int lane_row = 0; lane_row < ROWS; ++lane_row)
        load_chunk(Q_part[lane_row], smem_Q + chunk_offset(first_row + lane_row, step));
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        load_chunk(K_part, smem_K + chunk_offset(eighth * 4 + (j / 4) * 32 + j % 4, step ^ eighth));
        for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
          for (int i = 0; i < 8; ++i) S_part[lane_row][j] += Q_part[lane_row][i] * K_part[i];
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 8 neighbouring lanes, so three exchanges complete a maximum or a sum.
    for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
      float tile_max = -INFINITY;
      for (int j = 0; j < KEYS; ++j) {
        S_part[lane_row][j] *= p.softmax_scale;
        tile_max = fmaxf(tile_max, S_part[lane_row][j]);
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 4));

      const float new_max = fmaxf(row_max[lane_row], tile_max);
      const float correction = ex2_approx((row_max[lane_row] - new_max) * LOG2E);  // <= 1; 0 on the first tile
      row_max[lane_row] = new_max;

      float tile_sum = 0.0f;
      for (int j = 0; j < KEYS; ++j) {
        S_part[lane_row][j] = ex2_approx((S_part[lane_row][j] - new_max) * LOG2E);
        tile_sum += S_part[lane_row][j];
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      tile_sum += shfl_xor(tile_sum, 4);
      row_sum[lane_row] = row_sum[lane_row] * correction + tile_sum;
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        for (int i = 0; i < 8; ++i) O_part[lane_row][chunk][i] *= correction;
      }
      // In PV a lane needs all weights of its rows, and has an eighth of them: P goes through shared memory.
      for (int j = 0; j < KEYS; j += 4) {
        const uint4 four_weights = {__float_as_uint(S_part[lane_row][j]), __float_as_uint(S_part[lane_row][j + 1]),
                                    __float_as_uint(S_part[lane_row][j + 2]), __float_as_uint(S_part[lane_row][j + 3])};
        st_shared_v4(smem_P + ((first_row + lane_row) * BC + eighth * 4 + j * 8) * 4, four_weights);
      }
    }
    __syncwarp();  // safe to read P: its rows belong to this warp, and all lanes have stored their part

    // PV
#pragma unroll 1
    for (int first_key = 0; first_key < BC; first_key += 4) {
      float weight[ROWS][4];
      for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
        const uint4 four_weights = ld_shared_v4(smem_P + ((first_row + lane_row) * BC + first_key) * 4);
        weight[lane_row][0] = __uint_as_float(four_weights.x), weight[lane_row][1] = __uint_as_float(four_weights.y);
        weight[lane_row][2] = __uint_as_float(four_weights.z), weight[lane_row][3] = __uint_as_float(four_weights.w);
      }
      for (int key = 0; key < 4; ++key) {
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
          float V_part[8];
          load_chunk(V_part, smem_V + chunk_offset(first_key + key, eighth + chunk * 8));
          for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
            for (int i = 0; i < 8; ++i) O_part[lane_row][chunk][i] += weight[lane_row][key] * V_part[i];
          }
        }
      }
    }
  }

  // STORE  Eight lanes together write 128 B of a row, twice; and one of them its log-sum-exp.
  for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
    const float normalise = 1.0f / row_sum[lane_row];
    f16* O_row = p.O + block_rows + (first_row + lane_row) * HEAD_DIM + eighth * 8;
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const float(&O)[8] = O_part[lane_row][chunk];
      uint32_t pairs[4];
      for (int i = 0; i < 4; ++i) pairs[i] = pack_f16x2(O[2 * i] * normalise, O[2 * i + 1] * normalise);
      st_global_v4(O_row + chunk * 64, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
    }
    float* LSE_row = p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x * BR + first_row + lane_row;
    if (eighth == 0) st_global_f32(LSE_row, row_max[lane_row] + logf(row_sum[lane_row]));
  }
}

// LAUNCH  One block per BR queries of one head. The pointers of `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
