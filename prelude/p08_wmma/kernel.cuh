// p08_wmma: both products on tensor cores, by WMMA. Its fragments are opaque, so S, P and P V go through shared memory.
// Before:  p07_tiled multiplies on the FP32 units, one product per lane and instruction.
// Tile:    64x32, 4 warps.  Shared: 48 KiB (Q 16, K 8, V 8, S 10, P 6).  Needs d = 128, n % BR == 0, n % BC == 0.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one vector load
constexpr float LOG2E = 1.44269504088896341f;
constexpr int PAD_BYTES = 32;  // after each row of S and P, or their rows would meet in one bank; WMMA allows no less

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr int S_LD = BC + PAD_BYTES / 4, P_LD = BC + PAD_BYTES / 2;  // leading dimensions, in f32 and in f16
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * BC) * ROW_BYTES + BR * S_LD * 4 + BR * P_LD * 2;
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + chunk * 16;
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

// A lane's share of a row of S or of P V: four neighbouring columns of every 32.
template <int KEYS>
__device__ __forceinline__ void load_share(float (&values)[KEYS], uint32_t address) {
  for (int j = 0; j < KEYS; j += 4) {
    const uint4 four = ld_shared_v4(address + j * 8 * 4);
    values[j] = __uint_as_float(four.x), values[j + 1] = __uint_as_float(four.y);
    values[j + 2] = __uint_as_float(four.z), values[j + 3] = __uint_as_float(four.w);
  }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) flash_attention(AttentionParams p) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, THREADS = C::THREADS, S_LD = C::S_LD, P_LD = C::P_LD;
  constexpr int ROWS = 4, KEYS = BC / 8;  // of S per lane: a warp's 16 rows are shared by 4 x 8 lanes, 8 to a row
  constexpr int QK_N_TILES = BC / 16, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int SLABS = HEAD_DIM / BC, PV_N_TILES = BC / 16, PV_K_TILES = BC / 16;  // O[16 x d], BC columns at a time
  static_assert(BR == 16 * WARPS, "each warp owns 16 rows");
  static_assert(BC % 32 == 0 && HEAD_DIM % BC == 0, "a lane's keys come in fours, O's columns in slabs of BC");
  static_assert(BR % (THREADS / ROW_CHUNKS) == 0 && BC % (THREADS / ROW_CHUNKS) == 0, "load_tile copies whole passes");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t first_row = warp * 16 + (lane / 8) * ROWS, eighth = lane % 8;  // 4 columns of every 32
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  const f16 *K = p.K + head, *V = p.V + head;                           // the tile at hand
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  const uint32_t smem_S = smem_V + BC * ROW_BYTES, smem_P = smem_S + BR * S_LD * 4;
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, BC * ROW_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, BC * ROW_BYTES, "V", ROW_BYTES);
  smem_name(smem_S, BR * S_LD * 4, "S", S_LD * 4);
  smem_name(smem_P, BR * P_LD * 2, "P", P_LD * 2);
  const uint32_t warp_Q = smem_Q + warp * 16 * ROW_BYTES;
  const uint32_t warp_S = smem_S + warp * 16 * S_LD * 4, lane_S = smem_S + (first_row * S_LD + eighth * 4) * 4;
  const uint32_t warp_P = smem_P + warp * 16 * P_LD * 2, lane_P = smem_P + (first_row * P_LD + eighth * 4) * 2;

  float O_part[ROWS][SLABS][KEYS] = {};
  float row_max[ROWS], row_sum[ROWS] = {};
  for (int lane_row = 0; lane_row < ROWS; ++lane_row) row_max[lane_row] = -INFINITY;

  load_tile<BR, THREADS>(smem_Q, p.Q + block_rows);

  const int kv_tiles = p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD
    __syncthreads();  // safe to overwrite K and V: every warp has finished PV of the tile before
    load_tile<BC, THREADS>(smem_K, K);
    load_tile<BC, THREADS>(smem_V, V);
    __syncthreads();  // safe to read Q, K and V: every thread has stored its part

    // QK    K's rows are keys: read by columns, they are K^T. A row of 256 B goes twice around the banks, so the eight
    //       rows that are read together meet in the same ones: 8-way conflicts, here and in PV.
    WmmaAccumulator S_tiles[QK_N_TILES];
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) wmma_fill(S_tiles[key_tile], 0.0f);
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      WmmaA Q_tile;
      wmma_load_a(Q_tile, warp_Q + d_slice * 32, HEAD_DIM);
      for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
        WmmaBCol K_tile;
        wmma_load_b_col(K_tile, smem_K + key_tile * 16 * ROW_BYTES + d_slice * 32, HEAD_DIM);
        wmma_mma(S_tiles[key_tile], Q_tile, K_tile);
      }
    }
    for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile)
      wmma_store_d(warp_S + key_tile * 64, S_tiles[key_tile], S_LD);
    __syncwarp();  // safe to read S: its rows belong to this warp, and the whole warp has stored them

    // SOFTMAX  A row's scores are spread over 8 neighbouring lanes, so three exchanges complete a maximum or a sum.
    for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
      float S_part[KEYS];
      load_share(S_part, lane_S + lane_row * S_LD * 4);
      float tile_max = -INFINITY;
      for (int j = 0; j < KEYS; ++j) {
        S_part[j] *= p.softmax_scale;
        tile_max = fmaxf(tile_max, S_part[j]);
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 4));

      const float new_max = fmaxf(row_max[lane_row], tile_max);
      const float correction = ex2_approx((row_max[lane_row] - new_max) * LOG2E);  // <= 1; 0 on the first tile
      row_max[lane_row] = new_max;

      float tile_sum = 0.0f;
      for (int j = 0; j < KEYS; ++j) {
        S_part[j] = ex2_approx((S_part[j] - new_max) * LOG2E);
        tile_sum += S_part[j];
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      tile_sum += shfl_xor(tile_sum, 4);
      row_sum[lane_row] = row_sum[lane_row] * correction + tile_sum;
      for (int slab = 0; slab < SLABS; ++slab) {
        for (int j = 0; j < KEYS; ++j) O_part[lane_row][slab][j] *= correction;
      }
      // Nor can a lane put its weights into a fragment: P goes through shared memory, as f16.
      for (int j = 0; j < KEYS; j += 4) {
        const uint2 four_weights = {pack_f16x2(S_part[j], S_part[j + 1]), pack_f16x2(S_part[j + 2], S_part[j + 3])};
        st_shared_v2(lane_P + (lane_row * P_LD + j * 8) * 2, four_weights);
      }
    }
    __syncwarp();  // safe to read P, and to overwrite S: all lanes have stored their weights and read their scores

    // PV    BC columns at a time, through the memory that S has left: a lane adds its share of them to its rows of O.
    WmmaA P_tiles[PV_K_TILES];
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice)
      wmma_load_a(P_tiles[key_slice], warp_P + key_slice * 32, P_LD);
    for (int slab = 0; slab < SLABS; ++slab) {
      for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
        WmmaAccumulator PV_tile;
        wmma_fill(PV_tile, 0.0f);
        for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
          WmmaBRow V_tile;
          wmma_load_b_row(V_tile, smem_V + key_slice * 16 * ROW_BYTES + (slab * BC + column_tile * 16) * 2, HEAD_DIM);
          wmma_mma(PV_tile, P_tiles[key_slice], V_tile);
        }
        wmma_store_d(warp_S + column_tile * 64, PV_tile, S_LD);
      }
      __syncwarp();  // safe to read: the whole warp has stored its rows
      for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
        float PV_part[KEYS];
        load_share(PV_part, lane_S + lane_row * S_LD * 4);
        for (int j = 0; j < KEYS; ++j) O_part[lane_row][slab][j] += PV_part[j];
      }
      __syncwarp();  // safe to overwrite: all lanes have read their share
    }
  }

  // STORE  Eight lanes together write 64 B of a row, four times.
  for (int lane_row = 0; lane_row < ROWS; ++lane_row) {
    const float normalise = 1.0f / row_sum[lane_row];
    f16* O_row = p.O + block_rows + (first_row + lane_row) * HEAD_DIM + eighth * 4;
    for (int slab = 0; slab < SLABS; ++slab) {
      const float(&O)[KEYS] = O_part[lane_row][slab];
      for (int j = 0; j < KEYS; j += 2)
        st_global_b32(O_row + slab * BC + (j / 4) * 32 + j % 4, pack_f16x2(O[j] * normalise, O[j + 1] * normalise));
    }
  }
}

// LAUNCH  One block per BR queries of one head. The pointers of `p` belong to the device; n is a multiple of BR and BC.
template <class C>
void run(Device& device, const AttentionParams& p) {
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
