// 14_ring: K and V have three places, and the loop is unrolled once around them: in the code every place is a constant.
// Before:  in 13 a tile is requested when all have read the one before it: who is late lets the others wait.
// Tile:    256x64, 8 warps, M_TILES = 2.   Shared: 160 KiB (Q 64, K and V 3 x 16 each) and 48 B (six mbarriers).
//          Needs d = 128, n % BR == 0, n % BC == 0, sm_90.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile lies in shared memory as two panels of 64 columns, one behind the other. Their rows are 128 B = once around
// the 32 banks of 4 B, the most that the copy engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8, and f16 ends just below 2^16

template <int BR, int BC, int PLACES>
constexpr uint32_t SMEM_BYTES = (BR + 2 * PLACES * BC) * ROW_BYTES + 2 * PLACES * 8;  // and two mbarriers a place

// Byte offset of a 16-byte chunk within a panel, as the copy engine swizzles it: XOR with the row gives eight
// consecutive rows eight different slots for the same chunk.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * PANEL_ROW_BYTES + (chunk ^ row % 8) * 16;
}

// The address of a lane that is `chunks` chunks further along the row of a tile of ROWS rows: an even number before the
// swizzle, so an XOR, and behind chunk 7 the next panel.
template <int ROWS>
__device__ __forceinline__ uint32_t chunks_on(uint32_t lane_address, uint32_t chunks) {
  return (lane_address ^ chunks % 8 * 16) + chunks / 8 * ROWS * PANEL_ROW_BYTES;
}

// Eight warps fit on an SM with 255 registers a thread, in one block or in two.
template <int BR, int BC, int WARPS, int PLACES>
__global__ void __launch_bounds__(WARPS * 32, 8 / WARPS)
    flash_attention(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map) {
  constexpr int THREADS = WARPS * 32;
  constexpr int M_TILES = BR / (16 * WARPS);                      // 16-row groups of queries per warp
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS * M_TILES, "each warp owns whole 16-row groups");
  static_assert(BC % 16 == 0, "K is read 16 keys at a time");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_row = blockIdx.y * p.n, block_row = head_row + blockIdx.x * BR;  // of K and V, of Q and O
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + PLACES * TILE_BYTES;
  const uint32_t full = smem_V + PLACES * TILE_BYTES, empty = full + PLACES * 8;  // an mbarrier for each place, 8 bytes
  smem_name(smem_Q, BR * ROW_BYTES, "Q");
  smem_name(smem_K, PLACES * TILE_BYTES, "K");
  smem_name(smem_V, PLACES * TILE_BYTES, "V");
  smem_name(full, PLACES * 8, "full");
  smem_name(empty, PLACES * 8, "empty");
  // Where this lane's first ldmatrix of a tile points. Tiles begin at multiples of 1024 B, so the chunk is bits 4 to 6
  // of the address. It is chunk 0 or 1 before the swizzle, so going on by an even number of chunks is an XOR.
  const uint32_t lane_Q = smem_Q + warp * M_TILES * 16 * PANEL_ROW_BYTES + chunk_offset(lane % 16, lane / 16);
  const uint32_t lane_K = smem_K + chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t lane_V = smem_V + chunk_offset(lane % 16, lane / 16);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[M_TILES][2], row_sum[M_TILES][2] = {};
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) row_max[m][0] = row_max[m][1] = -INFINITY;

  const int kv_tiles = p.n / BC;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int place = 0; place < PLACES; ++place) {
      mbarrier_init(full + place * 8, 1);  // K and V have landed: thread 0 arrives and says how many bytes to expect
      mbarrier_init(empty + place * 8, THREADS);  // nobody reads them any more: a thread arrives after PV
    }
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
#pragma unroll
    for (int tile = 0; tile < PLACES - 1; ++tile) {
      if (tile == kv_tiles) break;
      mbarrier_arrive_expect_tx(full + tile * 8, (tile == 0 ? BR * ROW_BYTES : 0) + 2 * TILE_BYTES);
      if (tile == 0) cp_async_bulk_tensor_3d(smem_Q, Q_map, 0, block_row, 0, full);
      cp_async_bulk_tensor_3d(smem_K + tile * TILE_BYTES, K_map, 0, head_row + tile * BC, 0, full + tile * 8);
      cp_async_bulk_tensor_3d(smem_V + tile * TILE_BYTES, V_map, 0, head_row + tile * BC, 0, full + tile * 8);
    }
  }
  __syncthreads();  // safe to use the barriers

#pragma unroll PLACES
  for (int tile = 0; tile < kv_tiles; ++tile) {
    // LOAD  Tiles take turns in the places, and each turn is a phase of that place's barriers: tile t has phase
    //       t / PLACES, of which a wait wants to know the parity.
    const uint32_t here = tile % PLACES, parity = tile / PLACES % 2;
    const uint32_t K_here = lane_K + here * TILE_BYTES, V_here = lane_V + here * TILE_BYTES;
    mbarrier_wait_parity(full + here * 8, parity);  // safe to read K[tile], V[tile] (and Q): all of it has landed

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block of Q: four 8x8 matrices, rows 0-7 and 8-15, then the
    //     next 8 columns. Of K it addresses row l % 8 + l / 16 * 8, chunk l / 8 % 2: the same four matrices, but first both
    //     column halves of keys 0-7 (registers 0 and 1, one B fragment), then those of keys 8-15 (registers 2 and 3).
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int k = 0; k < QK_K_TILES; ++k) {
      uint32_t Q_frag[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) ldmatrix_x4(Q_frag[m], chunks_on<BR>(lane_Q, 2 * k) + m * 16 * PANEL_ROW_BYTES);
#pragma unroll
      for (int n = 0; n < QK_N_TILES; n += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, chunks_on<BC>(K_here, 2 * k) + n * 8 * PANEL_ROW_BYTES);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_m16n8k16(S_frag[m][n], Q_frag[m], K_frag[0], K_frag[1]);
          mma_m16n8k16(S_frag[m][n + 1], Q_frag[m], K_frag[2], K_frag[3]);
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum. Its sum stays
    //          spread: every lane adds up its own weights, and the lanes meet after the last tile.
    float correction[M_TILES][2];
    bool rescale = false;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float tile_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < QK_N_TILES; ++n)
          tile_max = fmaxf(tile_max, fmaxf(S_frag[m][n][2 * r], S_frag[m][n][2 * r + 1]));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2)) * scale_log2;  // row_max is in log2 units

        const bool grown = tile_max > row_max[m][r] + RESCALE_ABOVE;  // true on the first tile
        const float new_max = grown ? tile_max : row_max[m][r];
        correction[m][r] = ex2_approx(row_max[m][r] - new_max);  // 0 on the first tile, 1 where nothing has grown
        row_max[m][r] = new_max;
        rescale |= grown;
      }
    }
    if (vote_any(rescale)) {  // by the whole warp or not at all: mma needs its lanes together
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          row_sum[m][r] *= correction[m][r];
#pragma unroll
          for (int n = 0; n < PV_N_TILES; ++n) {
            O_frag[m][n][2 * r] *= correction[m][r];
            O_frag[m][n][2 * r + 1] *= correction[m][r];
          }
        }
      }
    }

    // LOAD  The tile that comes PLACES - 1 later is requested. Its place is empty when tile - 1, a phase before, has
    //       been read; at tile 0 nobody has read yet, and a new barrier lets parity 1 through.
    const int ahead = tile + PLACES - 1;
    if (threadIdx.x == 0 && ahead < kv_tiles) {
      const uint32_t place = ahead % PLACES;
      mbarrier_wait_parity(empty + place * 8, ahead / PLACES % 2 ^ 1);  // safe to overwrite: all threads have read it
      mbarrier_arrive_expect_tx(full + place * 8, 2 * TILE_BYTES);
      cp_async_bulk_tensor_3d(smem_K + place * TILE_BYTES, K_map, 0, head_row + ahead * BC, 0, full + place * 8);
      cp_async_bulk_tensor_3d(smem_V + place * TILE_BYTES, V_map, 0, head_row + ahead * BC, 0, full + place * 8);
    }

    // PV  16 keys at a time, their weights first. Two C fragments side by side hold exactly the elements of one A fragment:
    //     P needs no exchange, only rounding. V's rows are the k dimension of B, so ldmatrix transposes each 8x8 matrix on
    //     its way into the registers. Transposed, matrices 0 and 1 are the fragment of columns 0-7, 2 and 3 of 8-15.
#pragma unroll
    for (int k = 0; k < PV_K_TILES; ++k) {
      uint32_t P_frag[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
          const int n = 2 * k + i / 2, r = i % 2;
          const float low = ex2_approx(S_frag[m][n][2 * r] * scale_log2 - row_max[m][r]);
          const float high = ex2_approx(S_frag[m][n][2 * r + 1] * scale_log2 - row_max[m][r]);
          row_sum[m][r] += low + high;
          P_frag[m][i] = pack_f16x2(low, high);
        }
      }
#pragma unroll
      for (int n = 0; n < PV_N_TILES; n += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, chunks_on<BC>(V_here, n) + k * 16 * PANEL_ROW_BYTES);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
          mma_m16n8k16(O_frag[m][n], P_frag[m], V_frag[0], V_frag[1]);
          mma_m16n8k16(O_frag[m][n + 1], P_frag[m], V_frag[2], V_frag[3]);
        }
      }
    }
    mbarrier_arrive(empty + here * 8);  // this thread has read K[tile] and V[tile]
  }

  // STORE  Two exchanges complete a row's sum. Each lane writes two halves per fragment and row, 4 lanes together 16 B.
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row_sum[m][r] += shfl_xor(row_sum[m][r], 1);
      row_sum[m][r] += shfl_xor(row_sum[m][r], 2);
      const float normalise = 1.0f / row_sum[m][r];
      const int row = (warp * M_TILES + m) * 16 + FragmentC::row(lane, 2 * r);
      f16* O_row = p.O + size_t(block_row + row) * HEAD_DIM + FragmentC::col(lane, 0);
#pragma unroll
      for (int n = 0; n < PV_N_TILES; ++n) {
        const float low = O_frag[m][n][2 * r] * normalise, high = O_frag[m][n][2 * r + 1] * normalise;
        st_global_b32(O_row + n * 8, pack_f16x2(low, high));
      }
    }
  }
}

}  // namespace
