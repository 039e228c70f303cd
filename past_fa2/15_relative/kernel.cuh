// 15_relative: the products begin at minus the old maximum. Scores come out relative to it, and one comparison of the
//              largest tells whether one has outgrown it.
// Before:      between its products each warp of 14 finds and exchanges its rows' maxima, though few are new.
// Tile:        256x64, 8 warps, M_TILES = 2.  Shared: 160 KiB (Q 64, K and V 3 x 16 each) and 48 B (six mbarriers).
//              Needs d = 128, n % BR == 0, n % BC == 0, sm_90.
// Shapes:      Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM * 2;  // 128 halves = 256 B
// A tile is two panels of 64 columns, one after the other; their rows are 128 B, the most that the engine swizzles.
constexpr int PANELS = 2, PANEL_COLS = HEAD_DIM / PANELS, PANEL_ROW_BYTES = ROW_BYTES / PANELS;
constexpr float LOG2E = 1.44269504088896341f;
constexpr float RESCALE_ABOVE = 8.0f;  // log2 units: no weight exceeds 2^8, and f16 ends just below 2^16
constexpr float HUGE_SCORE = 0x1p13f;  // log2 units: no sum begins with a larger maximum, it would lose too much

// A block's tile, BR queries against BC keys at a time by WARPS warps, and the shared memory that it takes.
template <int BR_, int BC_, int WARPS_, int SLOTS_>
struct Config {
  static constexpr int BR = BR_, BC = BC_, WARPS = WARPS_, SLOTS = SLOTS_, THREADS = WARPS * 32;
  static constexpr uint32_t SMEM_BYTES = (BR + 2 * SLOTS * BC) * ROW_BYTES + 2 * SLOTS * 8;  // two mbarriers per slot
};

// Byte offset of a 16-byte chunk within a panel of 128-byte rows, as the copy engine swizzles it: XOR with the row
// puts the same chunk of eight consecutive rows in eight different bank groups.
// It is its own inverse: writers and readers agree.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * PANEL_ROW_BYTES + (chunk ^ (row % 8)) * 16;
}

// A lane's address, moved on by `chunks` chunks in its row of a tile of ROWS rows. The lane's own chunk, 0 or 1, and an
// even number have no bit in common, so moving on is an XOR. Past chunk 7 comes the next panel.
template <int ROWS>
__device__ __forceinline__ uint32_t chunks_on(uint32_t lane_address, uint32_t chunks) {
  return (lane_address ^ ((chunks % 8) * 16)) + (chunks / 8) * ROWS * PANEL_ROW_BYTES;
}

// Eight warps fit on an SM with 255 registers per thread, in one block or in two.
template <class C>
__global__ void __launch_bounds__(C::THREADS, 8 / C::WARPS)
    flash_attention(AttentionParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
                    const __grid_constant__ TensorMap V_map) {
  constexpr int BR = C::BR, BC = C::BC, WARPS = C::WARPS, SLOTS = C::SLOTS, THREADS = C::THREADS;
  constexpr int M_TILES = BR / (16 * WARPS);                      // 16-row groups of queries per warp
  constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
  constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]
  static_assert(BR == 16 * WARPS * M_TILES, "each warp owns whole 16-row groups");
  static_assert(BC % 16 == 0, "K is read 16 keys at a time");

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_row = blockIdx.y * p.n, block_row = head_row + blockIdx.x * BR;  // of K and V, of Q and O
  constexpr uint32_t TILE_BYTES = BC * ROW_BYTES;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + SLOTS * TILE_BYTES;
  const uint32_t full = smem_V + SLOTS * TILE_BYTES, empty = full + SLOTS * 8;  // one mbarrier of 8 B per slot
  smem_name(smem_Q, BR * ROW_BYTES, "Q", PANEL_ROW_BYTES);
  smem_name(smem_K, SLOTS * TILE_BYTES, "K", PANEL_ROW_BYTES);
  smem_name(smem_V, SLOTS * TILE_BYTES, "V", PANEL_ROW_BYTES);
  smem_name(full, SLOTS * 8, "full");
  smem_name(empty, SLOTS * 8, "empty");
  // Where this lane's first ldmatrix of a tile points. Tiles begin at multiples of 1024 B, so the chunk is bits 4 to 6
  // of the address. It is chunk 0 or 1 before the swizzle, so moving on by an even number of chunks is an XOR.
  const uint32_t lane_Q = smem_Q + warp * M_TILES * 16 * PANEL_ROW_BYTES + chunk_offset(lane % 16, lane / 16);
  const uint32_t lane_K = smem_K + chunk_offset(lane % 8 + (lane / 16) * 8, (lane / 8) % 2);
  const uint32_t lane_V = smem_V + chunk_offset(lane % 16, lane / 16);

  const float scale_log2 = p.softmax_scale * LOG2E;  // exp(s * softmax_scale) = 2^(s * scale_log2)
  float O_frag[M_TILES][PV_N_TILES][4] = {};    // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float minus_max[M_TILES][4] = {};             // in units of S, as a FragmentC: registers 0, 1 are equal, and 2, 3
  float row_sum[M_TILES][2] = {};               // [group][lane_row]: a lane has a share of two rows per group
  float outgrown = RESCALE_ABOVE / scale_log2;  // in units of S too; below every score once one is huge
  // A row that has met a huge score keeps the maximum that it had, and here how far above that its largest score is.
  float above[M_TILES][2] = {};

  const int kv_tiles = p.n / BC;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < SLOTS; ++slot) {
      mbarrier_init(full + slot * 8, 1);  // K and V have landed: thread 0 arrives and says how many bytes to expect
      mbarrier_init(empty + slot * 8, THREADS);  // nobody reads them any more: each thread arrives after PV
    }
    fence_mbarrier_init();  // safe to name them to the copy engine, which knows them now
#pragma unroll
    for (int tile = 0; tile < SLOTS - 1; ++tile) {
      if (tile == kv_tiles) break;
      mbarrier_arrive_expect_tx(full + tile * 8, (tile == 0 ? BR * ROW_BYTES : 0) + 2 * TILE_BYTES);
      if (tile == 0) cp_async_bulk_tensor_3d(smem_Q, Q_map, 0, block_row, 0, full);
      cp_async_bulk_tensor_3d(smem_K + tile * TILE_BYTES, K_map, 0, head_row + tile * BC, 0, full + tile * 8);
      cp_async_bulk_tensor_3d(smem_V + tile * TILE_BYTES, V_map, 0, head_row + tile * BC, 0, full + tile * 8);
    }
  }
  __syncthreads();  // safe to use the barriers

#pragma unroll SLOTS
  for (int tile = 0; tile < kv_tiles; ++tile) {
    // LOAD  Tile t lies in slot t % SLOTS. Each use of a slot is one phase of its two barriers, t / SLOTS, and a wait
    //       names the parity of the phase that it waits for.
    const uint32_t here = tile % SLOTS, parity = (tile / SLOTS) % 2;
    const uint32_t K_here = lane_K + here * TILE_BYTES, V_here = lane_V + here * TILE_BYTES;
    mbarrier_wait_parity(full + here * 8, parity);  // safe to read K[tile], V[tile] (and Q): all of it has landed

    // QK  Lane l addresses row l % 16, chunk l / 16 of a 16x16 block of Q: four 8x8 matrices, rows 0-7 and 8-15, then
    //     the next 8 columns. Of K it addresses row l % 8 + (l / 16) * 8, chunk (l / 8) % 2: the same four matrices,
    //     but first both column halves of keys 0-7 (registers 0 and 1, one B fragment), then those of keys 8-15.
    float S_frag[M_TILES][QK_N_TILES][4];  // set by the first slice's products, which add to minus_max
#pragma unroll
    for (int d_slice = 0; d_slice < QK_K_TILES; ++d_slice) {
      uint32_t Q_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group)
        ldmatrix_x4(Q_frag[group], chunks_on<BR>(lane_Q, 2 * d_slice) + group * 16 * PANEL_ROW_BYTES);
      for (int key_tile = 0; key_tile < QK_N_TILES; key_tile += 2) {
        uint32_t K_frag[4];
        ldmatrix_x4(K_frag, chunks_on<BC>(K_here, 2 * d_slice) + key_tile * 8 * PANEL_ROW_BYTES);
        for (int group = 0; group < M_TILES; ++group) {
          mma_m16n8k16(S_frag[group][key_tile], Q_frag[group], K_frag[0], K_frag[1],
                       d_slice == 0 ? minus_max[group] : S_frag[group][key_tile]);
          mma_m16n8k16(S_frag[group][key_tile + 1], Q_frag[group], K_frag[2], K_frag[3],
                       d_slice == 0 ? minus_max[group] : S_frag[group][key_tile + 1]);
        }
      }
    }

    // SOFTMAX  S is relative to the old maximum already. Has a score outgrown it? Only large ones matter, and positive
    //          floats are ordered as their bits are: an integer maximum, and Hopper has one of three operands.
    int largest[M_TILES][2] = {};
    bool rescale = tile == 0;
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) {
        for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
          const float low = S_frag[group][key_tile][2 * lane_row], high = S_frag[group][key_tile][2 * lane_row + 1];
          largest[group][lane_row] = max3_s32(largest[group][lane_row], __float_as_int(low), __float_as_int(high));
        }
        rescale |= __int_as_float(largest[group][lane_row]) > outgrown;
      }
    }
    if (vote_any(rescale)) {  // by the whole warp or not at all: mma needs its lanes together
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

          const float before = above[group][lane_row], shift = tile == 0 ? tile_max : fmaxf(tile_max, before);
          const float correction = ex2_approx(fminf(before - shift, 0.0f) * scale_log2);  // of nothing on the first
          const bool huge = before != 0 || fabsf(shift - minus_max[group][2 * lane_row]) * scale_log2 > HUGE_SCORE;
          above[group][lane_row] = huge ? shift : 0;
          outgrown = huge ? -1 : outgrown;  // each tile is looked at from now on
          minus_max[group][2 * lane_row] -= huge ? 0 : shift;
          minus_max[group][2 * lane_row + 1] -= huge ? 0 : shift;
          row_sum[group][lane_row] *= correction;
          for (int key_tile = 0; key_tile < QK_N_TILES; ++key_tile) {
            S_frag[group][key_tile][2 * lane_row] -= shift;
            S_frag[group][key_tile][2 * lane_row + 1] -= shift;
          }
          for (int column_tile = 0; column_tile < PV_N_TILES; ++column_tile) {
            O_frag[group][column_tile][2 * lane_row] *= correction;
            O_frag[group][column_tile][2 * lane_row + 1] *= correction;
          }
        }
      }
    }

    // LOAD  The tile that comes SLOTS - 1 later is requested. Its slot is empty when tile - 1, one phase before, has
    //       been read; at tile 0 nobody has read yet, and a new barrier lets parity 1 through.
    const int ahead = tile + SLOTS - 1;
    if (threadIdx.x == 0 && ahead < kv_tiles) {
      const uint32_t slot = ahead % SLOTS;
      mbarrier_wait_parity(empty + slot * 8, ((ahead / SLOTS) % 2) ^ 1);  // safe to overwrite: all threads have read it
      mbarrier_arrive_expect_tx(full + slot * 8, 2 * TILE_BYTES);
      cp_async_bulk_tensor_3d(smem_K + slot * TILE_BYTES, K_map, 0, head_row + ahead * BC, 0, full + slot * 8);
      cp_async_bulk_tensor_3d(smem_V + slot * TILE_BYTES, V_map, 0, head_row + ahead * BC, 0, full + slot * 8);
    }

    // PV  16 keys at a time, their weights first. Two C fragments side by side hold exactly the elements of one A
    //     fragment: P needs no exchange, only rounding. V's rows are the k dimension of B, so ldmatrix transposes each
    //     8x8 matrix on its way into the registers. Transposed, matrices 0 and 1 are the fragment of columns 0-7, 2 and
    //     3 of 8-15.
    for (int key_slice = 0; key_slice < PV_K_TILES; ++key_slice) {
      uint32_t P_frag[M_TILES][4];
      for (int group = 0; group < M_TILES; ++group) {
        for (int reg = 0; reg < 4; ++reg) {  // registers 0 and 1: keys 0-7 of the two rows; 2 and 3: keys 8-15
          const int key_tile = 2 * key_slice + reg / 2, lane_row = reg % 2;
          const float low = ex2_approx(S_frag[group][key_tile][2 * lane_row] * scale_log2);
          const float high = ex2_approx(S_frag[group][key_tile][2 * lane_row + 1] * scale_log2);
          row_sum[group][lane_row] += low + high;
          P_frag[group][reg] = pack_f16x2(low, high);
        }
      }
#pragma unroll
      for (int column_tile = 0; column_tile < PV_N_TILES; column_tile += 2) {
        uint32_t V_frag[4];
        ldmatrix_x4_trans(V_frag, chunks_on<BC>(V_here, column_tile) + key_slice * 16 * PANEL_ROW_BYTES);
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
      f16* O_row = p.O + size_t(block_row + row) * HEAD_DIM + FragmentC::col(lane, 0);
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
  const auto tile_map = [&](const f16* tensor, uint32_t tile_rows) {  // [panel][row, of all heads][column of the panel]
    return tensor_map_3d(device, tensor, {PANEL_COLS, uint64_t(p.batch_heads) * p.n, PANELS},
                         {ROW_BYTES, PANEL_ROW_BYTES}, {PANEL_COLS, tile_rows, PANELS});
  };
  launch(device, flash_attention<C>, dim3(p.n / C::BR, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p,
         tile_map(p.Q, C::BR), tile_map(p.K, C::BC), tile_map(p.V, C::BC));
}

}  // namespace
