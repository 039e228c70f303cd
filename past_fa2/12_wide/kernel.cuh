// 12_wide: one block of 8 warps instead of two blocks of 4, so that each tile of K and V serves 256 queries.
// Before:  11 reads K and V from L2 twice per SM, once for each of its two blocks.
// Tile:    256x64, 8 warps, M_TILES = 2.  Shared: 128 KiB (Q 64, K and V 2 x 16 each) and 32 B (four mbarriers).
//          Needs d = 128, n % BR == 0, n % BC == 0.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves: one row of an ldmatrix matrix, one vector load
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8, and f16 ends just below 2^16

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 4 * BC) * ROW_BYTES + 4 * 8;  // and four mbarriers
};

// Byte offset of a 16-byte chunk within a tile of 256-byte rows. Eight chunks fill all 32 banks once; XOR with the row
// puts the same chunk of eight consecutive rows in eight different bank groups.
// It is its own inverse: writers and readers agree.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// Starts to copy a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory. Both addresses are
// those of this thread's chunk in the first pass. A pass is a multiple of 8 rows, so the swizzle is the same in each.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(uint32_t thread_tile, const f16* thread_source) {
  constexpr int ROWS_PER_PASS = THREADS / ROW_CHUNKS;
  static_assert(ROWS_PER_PASS % 8 == 0, "the swizzle repeats every 8 rows");
  for (int first_row = 0; first_row < ROWS; first_row += ROWS_PER_PASS)
    cp_async_16(thread_tile + first_row * ROW_BYTES, thread_source + first_row * HEAD_DIM);
}

// Eight warps fit on an SM with 255 registers per thread, in one block or in two.
template <class C>
__global__ void __launch_bounds__(C::THREADS, 8 / C::WARPS) flash_attention(AttentionParams p) {
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
  const uint32_t thread_chunk = chunk_offset(threadIdx.x / ROW_CHUNKS, threadIdx.x % ROW_CHUNKS);
  const f16 *K = p.K + head + threadIdx.x * 8, *V = p.V + head + threadIdx.x * 8;  // this thread's chunk of the tile
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + 2 * TILE_BYTES;
  const uint32_t full = smem_V + 2 * TILE_BYTES, empty = full + 16;  // two mbarriers each, 8 bytes apart
  smem_name(smem_Q, BR * ROW_BYTES, "Q", ROW_BYTES);
  smem_name(smem_K, 2 * TILE_BYTES, "K", ROW_BYTES);
  smem_name(smem_V, 2 * TILE_BYTES, "V", ROW_BYTES);
  smem_name(full, 16, "full");
  smem_name(empty, 16, "empty");
  // Where this lane's first ldmatrix of a tile points. Tiles begin at multiples of 256 B, so the chunk is bits 4 to 7
  // of the address. It is chunk 0 or 1 before the swizzle, so moving on by an even number of chunks is an XOR.
  const uint32_t lane_Q = smem_Q + warp * M_TILES * 16 * ROW_BYTES + chunk_offset(lane % 16, lane / 16);
  const uint32_t lane_K = smem_K + chunk_offset(lane % 8 + (lane / 16) * 8, (lane / 8) % 2);
  const uint32_t lane_V = smem_V + chunk_offset(lane % 16, lane / 16);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[M_TILES][PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[M_TILES][2], row_sum[M_TILES][2] = {};  // [group][lane_row]: a lane has a share of two rows per group
  for (int group = 0; group < M_TILES; ++group) row_max[group][0] = row_max[group][1] = -INFINITY;

  if (threadIdx.x < 2) {
    mbarrier_init(full + threadIdx.x * 8, THREADS);   // K and V have landed: each thread arrives when its copies have
    mbarrier_init(empty + threadIdx.x * 8, THREADS);  // nobody reads them any more: each thread arrives after PV
  }
  __syncthreads();  // safe to use the barriers

  load_tile<BR, THREADS>(smem_Q + thread_chunk, p.Q + block_rows + threadIdx.x * 8);
  load_tile<BC, THREADS>(smem_K + thread_chunk, K);
  load_tile<BC, THREADS>(smem_V + thread_chunk, V);
  cp_async_mbarrier_arrive_noinc(full);

  const int kv_tiles = p.n / BC;
  for (int tile = 0; tile < kv_tiles; ++tile, K += BC * HEAD_DIM, V += BC * HEAD_DIM) {
    // LOAD  Tile t lies in slot t % 2. Each use of a slot is one phase of its two barriers, t / 2, and a wait names the
    //       parity of the phase that it waits for.
    const uint32_t here = tile % 2, parity = (tile / 2) % 2, next = 1 - here, next_parity = ((tile + 1) / 2) % 2;
    const uint32_t K_here = lane_K + here * TILE_BYTES, V_here = lane_V + here * TILE_BYTES;
    mbarrier_wait_parity(full + here * 8, parity);  // safe to read K[tile], V[tile] (and Q): all of it has landed

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block of Q: four 8x8 matrices, rows 0-7 and 8-15, then
    //     the next 8 columns. Of K it addresses row l % 8 + (l / 16) * 8, chunk (l / 8) % 2: the same four matrices,
    //     but first both column halves of keys 0-7 (registers 0 and 1, one B fragment), then those of keys 8-15.
    float S_frag[M_TILES][QK_N_TILES][4] = {};
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      uint32_t Q_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group)
        ldmatrix_x4(Q_frag[group], (lane_Q ^ (d_slice * 32)) + group * 16 * ROW_BYTES);
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, (K_here ^ (d_slice * 32)) + key_tile * 8 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma_m16n8k16(S_frag[group][key_tile], Q_frag[group], K_frag[0], K_frag[1]);
          mma_m16n8k16(S_frag[group][key_tile + 1], Q_frag[group], K_frag[2], K_frag[3]);
        }
      }
    }

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum. Its sum stays
    //          spread: every lane adds up its own weights, and the lanes meet after the last tile.
    float correction[M_TILES][2];
    bool rescale = false;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        float tile_max = -INFINITY;
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          const float low = S_frag[group][key_tile][2 * lane_row], high = S_frag[group][key_tile][2 * lane_row + 1];
          tile_max = fmaxf(tile_max, fmaxf(low, high));
        }
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
        tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2)) * scale_log2;  // row_max is in log2 units

        const bool grown = tile_max > row_max[group][lane_row] + RESCALE_ABOVE;  // true on the first tile
        const float new_max = grown ? tile_max : row_max[group][lane_row];
        correction[group][lane_row] =
            ex2_approx(row_max[group][lane_row] - new_max);  // 0 on the first tile, 1 where nothing has grown
        row_max[group][lane_row] = new_max;
        rescale |= grown;
      }
    }
    if (vote_any(rescale)) {  // by the whole warp or not at all: mma needs its lanes together
#pragma unroll
      for (int group = 0; group < M_TILES; ++group) {
        for (int lane_row = 0; lane_row < 2; ++lane_row) {
          row_sum[group][lane_row] *= correction[group][lane_row];
          for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
            O_frag[group][column_tile][2 * lane_row] *= correction[group][lane_row];
            O_frag[group][column_tile][2 * lane_row + 1] *= correction[group][lane_row];
          }
        }
      }
    }

    // LOAD  K[tile + 1] and V[tile + 1] are requested, to arrive while PV runs. Their slot is empty when tile - 1, one
    //       phase before, has been read; at tile 0 nobody has read yet, and a new barrier lets parity 1 through.
    mbarrier_wait_parity(empty + next * 8, next_parity ^ 1);  // safe to overwrite tile - 1: all threads have read it
    if (tile + 1 < kv_tiles) {
      load_tile<BC, THREADS>(smem_K + next * TILE_BYTES + thread_chunk, K + BC * HEAD_DIM);
      load_tile<BC, THREADS>(smem_V + next * TILE_BYTES + thread_chunk, V + BC * HEAD_DIM);
    }
    cp_async_mbarrier_arrive_noinc(full + next * 8);  // past the last tile at once, and nobody waits for it

    // PV  16 keys at a time, their weights first. Two C fragments side by side hold exactly the elements of one A
    //     fragment: P needs no exchange, only rounding. V's rows are the k dimension of B, so ldmatrix transposes each
    //     8x8 matrix on its way into the registers. Transposed, matrices 0 and 1 are the fragment of columns 0-7, 2 and
    //     3 of 8-15.
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      uint32_t P_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group) {
        for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
          const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
          const float low = ex2_approx(S_frag[group][key_tile][2 * lane_row] * scale_log2 - row_max[group][lane_row]);
          const float high =
              ex2_approx(S_frag[group][key_tile][2 * lane_row + 1] * scale_log2 - row_max[group][lane_row]);
          row_sum[group][lane_row] += low + high;
          P_frag[group][reg] = pack_f16x2(low, high);
        }
      }
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, (V_here ^ (column_tile * 16)) + key_slice * 16 * ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma_m16n8k16(O_frag[group][column_tile], P_frag[group], V_frag[0], V_frag[1]);
          mma_m16n8k16(O_frag[group][column_tile + 1], P_frag[group], V_frag[2], V_frag[3]);
        }
      }
    }
    mbarrier_arrive(empty + here * 8);  // this thread has read K[tile] and V[tile]
  }

  // STORE  Two exchanges complete a row's sum. Each lane writes two halves per fragment and row, 4 lanes together 16 B.
  for (int group = 0; group < M_TILES; ++group) {
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      row_sum[group][lane_row] += shfl_xor(row_sum[group][lane_row], 1);
      row_sum[group][lane_row] += shfl_xor(row_sum[group][lane_row], 2);
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
