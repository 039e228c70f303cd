// Wrong attention kernels, for two uses: the harness must reject every one of them, each for its own reason
// (harness/tests/wrong_tests.cpp), and a class can hunt the bug: build one, read the report, find the line.
//
// One kernel in the style of 03_kvpipe, and one deviation from it per Fault. Fault::none is right and must be accepted.
// Tile: 64x32, 4 warps.   Shared: 32 KiB (Q 16, K 8, V 8).   Needs d = 128, n % 64 == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

enum class Fault {
  none,  // right
  // softmax
  no_running_max,     // each tile is scaled by its own maximum, not by the largest so far
  wrong_initial_max,  // the running maximum starts at +infinity
  no_correction,      // neither O nor the row sum is rescaled when the maximum grows
  stale_row_sum,      // O is rescaled, the row sum is not
  late_rescale,       // as in 09, but only when the maximum has grown by more than 20: weights overflow f16 before
  late_row_sum,       // as in 09, but the branch that rescales O leaves out the row sum
  no_scale,           // 1 / sqrt(d) is forgotten
  lse_without_max,    // LSE is the logarithm of the sum alone: the maximum that was taken out is not put back
  // causal mask
  mask_off_by_one,  // each query sees one key of the future
  // tiles and addresses
  half_the_keys,      // only the first half of the keys is visited
  wrong_head,         // every block works on K and V of the first head
  prefetch_past_end,  // K[tile + 1] is fetched even behind the last tile
  next_heads_tile,    // a tile of the next head is visited too, if there is one, with weights of zero
  plain_read,         // K is written with the swizzle and read without
  no_swizzle,         // neither write nor read is swizzled: right, and slow
  // registers
  swapped_registers,  // two registers of the K fragments are exchanged
  uninitialised_S,    // the scores' accumulators start with whatever was in the registers
  // waits and barriers
  no_wait,               // K is read before its cp.async has been waited for
  no_barrier,            // K is overwritten while other warps may still read it, V is read before others have stored it
  no_broadcast_barrier,  // thread 0 hands a number to the others through shared memory; comes out right by luck
  global_broadcast,      // the same through global memory: right as long as thread 0 comes first
  early_prefetch,        // K[tile + 1] is requested before the barrier that ends all reads of K[tile]
  partial_barrier,       // one warp leaves out a __syncthreads()
  barrier_in_branch,  // two halves of a warp take two branches, with a __syncthreads() in each; comes out right by luck
  mbarriers,          // K and V change hands at mbarriers: right, with other counts
  no_full_wait,       // the same, and K is read before its mbarrier has been waited for
  no_empty_wait,      // the same, and K[tile + 1] is requested before all warps have let go of K[tile]
  elected_arrival,    // the same, and one lane lets go of K for its warp without a __syncwarp; comes out right by luck
  late_wait,          // the same, and a thread that comes late for the news that a tile has begun waits for ever
  // memory
  writes_nothing,   // O keeps what it held before
  skips_a_row,      // the last row of each block is not written
  writes_guard,     // one element behind O is written, through a plain pointer
  modifies_Q,       // Q is scaled in place, in global memory
  reads_neighbour,  // each block reads a word of O that the next block writes, to no use
  // right, and slow
  empty_blocks,   // twice the blocks, of which half have nothing to do
  unused_memory,  // a block asks for a tile more of shared memory than it uses
  needless_vote,  // each warp votes in each tile whether a maximum has grown, and rescales whatever comes of it
  // cheats
  mean_of_V,       // Q and K are never looked at
  peeks_at_output  // the work is done only when O has been poisoned
};

constexpr int HEAD_DIM = 128, BR = 64, BC = 32, WARPS = 4, THREADS = WARPS * 32;
constexpr int ROW_BYTES = HEAD_DIM * 2;     // 128 halves = 256 B = twice around the 32 banks of 4 B
constexpr int ROW_CHUNKS = ROW_BYTES / 16;  // 16 B = 8 halves
constexpr uint32_t TILE_BYTES = (BR + 2 * BC) * ROW_BYTES;
constexpr bool has_mbarriers(Fault fault) {
  return fault == Fault::mbarriers || fault == Fault::no_full_wait || fault == Fault::no_empty_wait ||
         fault == Fault::elected_arrival || fault == Fault::late_wait;
}
constexpr uint32_t smem_bytes(Fault fault) {
  const uint32_t more = fault == Fault::late_wait       ? 5 * 8
                        : has_mbarriers(fault)          ? 4 * 8
                        : fault == Fault::unused_memory ? BC * ROW_BYTES
                                                        : 0;
  return TILE_BYTES + more;
}
constexpr float LOG2E = 1.44269504088896341f;
constexpr int QK_N_TILES = BC / 8, QK_K_TILES = HEAD_DIM / 16;  // S[16 x BC] = Q[16 x d] K^T[d x BC]
constexpr int PV_N_TILES = HEAD_DIM / 8, PV_K_TILES = BC / 16;  // O[16 x d] += P[16 x BC] V[BC x d]

// Byte offset of a 16-byte chunk within a tile of 256-byte rows; the XOR keeps eight rows in eight bank groups.
template <bool SWIZZLED>
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * ROW_BYTES + (SWIZZLED ? chunk ^ row % 8 : chunk) * 16;
}

// Starts to copy a tile of ROWS x HEAD_DIM halves, contiguous in global memory, into shared memory.
template <int ROWS, bool SWIZZLED>
__device__ __forceinline__ void load_tile(uint32_t tile, const f16* source) {
  const uint32_t row = threadIdx.x / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
#pragma unroll
  for (int pass = 0; pass < ROWS; pass += THREADS / ROW_CHUNKS) {
    cp_async_16(tile + chunk_offset<SWIZZLED>(row + pass, chunk), source + (row + pass) * HEAD_DIM + chunk * 8);
  }
}

template <Fault FAULT>
__global__ void __launch_bounds__(THREADS) wrong_attention(AttentionParams p) {
  constexpr bool SWIZZLED = FAULT != Fault::no_swizzle;
  constexpr bool MBARRIERS = has_mbarriers(FAULT);
  constexpr bool K_READ_SWIZZLED = SWIZZLED && FAULT != Fault::plain_read;

  if (FAULT == Fault::empty_blocks && blockIdx.x >= gridDim.x / 2) return;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_rows = head + size_t(blockIdx.x) * BR * HEAD_DIM;  // this block's rows of Q and O
  size_t kv_head = FAULT == Fault::wrong_head ? 0 : head;
  const uint32_t smem_Q = smem_base(), smem_K = smem_Q + BR * ROW_BYTES, smem_V = smem_K + BC * ROW_BYTES;
  smem_name(smem_Q, BR * ROW_BYTES, "Q");
  smem_name(smem_K, BC * ROW_BYTES, "K");
  smem_name(smem_V, BC * ROW_BYTES, "V");
  const uint32_t warp_Q = smem_Q + warp * 16 * ROW_BYTES;

  if constexpr (FAULT == Fault::peeks_at_output) {
    const bool poisoned = (ld_global_f16(p.O + block_rows).bits & 0x7fffu) > 0x7c00u;
    if (!poisoned) return;
  }
  if constexpr (FAULT == Fault::no_broadcast_barrier) {
    if (threadIdx.x == 0) st_shared_b32(smem_V, static_cast<uint32_t>(head));
    kv_head = ld_shared_b32(smem_V);
  }
  if constexpr (FAULT == Fault::global_broadcast) {
    float* const LSE = p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x * BR;  // the block's own, until it is known
    if (threadIdx.x == 0) st_global_f32(LSE, static_cast<float>(head));
    if (warp < 2) kv_head = static_cast<size_t>(ld_global_f32(LSE));
  }
  if constexpr (FAULT == Fault::modifies_Q) {
    f16* Q_row = const_cast<f16*>(p.Q) + block_rows + threadIdx.x / 2 * HEAD_DIM + threadIdx.x % 2 * (HEAD_DIM / 2);
    for (int i = 0; i < HEAD_DIM / 2; ++i) Q_row[i] = to_f16(to_float(Q_row[i]) * p.softmax_scale);
    __syncthreads();  // safe to read Q: every thread has scaled its half row
  }
  // Log2 units of growth from which on O is rescaled; from any growth on, unless the fault says otherwise.
  constexpr float RESCALE_ABOVE = FAULT == Fault::late_rescale ? 20.0f : FAULT == Fault::late_row_sum ? 8.0f : 0.0f;
  constexpr bool ROW_SUM_RESCALED = FAULT != Fault::stale_row_sum && FAULT != Fault::late_row_sum;
  const float softmax_scale = FAULT == Fault::no_scale || FAULT == Fault::modifies_Q ? 1.0f : p.softmax_scale;

  float O_frag[PV_N_TILES][4] = {};  // FragmentC: registers 0, 1 belong to one row, 2, 3 to the row 8 below
  float row_max[2], row_sum[2] = {};
  row_max[0] = row_max[1] = FAULT == Fault::wrong_initial_max ? INFINITY : -INFINITY;

  // Full: every thread's copies have landed. Empty: every thread has read.
  const uint32_t full_K = smem_Q + TILE_BYTES, full_V = full_K + 8, empty_K = full_K + 16, empty_V = full_K + 24;
  const uint32_t begun = full_K + 32;
  if constexpr (MBARRIERS) {
    const bool by_warps = FAULT == Fault::elected_arrival && threadIdx.x >= 2;
    if (threadIdx.x < 4) mbarrier_init(full_K + threadIdx.x * 8, by_warps ? WARPS : THREADS);
    if (FAULT == Fault::late_wait && threadIdx.x == 0) mbarrier_init(begun, 1);
    __syncthreads();  // safe to use the mbarriers
  }
  const auto end_copies = [](uint32_t full) { MBARRIERS ? cp_async_mbarrier_arrive_noinc(full) : cp_async_commit(); };

  load_tile<BR, SWIZZLED>(smem_Q, p.Q + block_rows);
  load_tile<BC, SWIZZLED>(smem_K, p.K + kv_head);
  end_copies(full_K);

  const int first_query = blockIdx.x * BR + warp * 16;
  const int visible_tiles = p.causal ? (blockIdx.x + 1) * BR / BC : p.n / BC;
  const int beyond = FAULT == Fault::next_heads_tile && blockIdx.y + 1 < gridDim.y ? 1 : 0;
  const int kv_tiles = FAULT == Fault::half_the_keys ? visible_tiles / 2 : visible_tiles + beyond;
  for (int tile = 0; tile < kv_tiles; ++tile) {
    // LOAD  K[tile] was requested one iteration ago; V[tile] is requested now and needed only after the softmax.
    if constexpr (MBARRIERS) {
      if (FAULT != Fault::no_full_wait) mbarrier_wait_parity(full_K, tile % 2);
      if (FAULT == Fault::late_wait && threadIdx.x == 0) mbarrier_arrive(begun);
      mbarrier_wait_parity(empty_V, (tile + 1) % 2);
    } else {
      if constexpr (FAULT != Fault::no_wait) cp_async_wait<0>();  // this thread's part of K[tile] (and of Q) has landed
      __syncthreads();  // safe to read K: everybody's part has landed; safe to overwrite V: every warp has finished PV
    }
    load_tile<BC, SWIZZLED>(smem_V, p.V + kv_head + size_t(tile) * BC * HEAD_DIM);
    end_copies(full_V);

    // QK
    float S_frag[QK_N_TILES][4];
    if constexpr (FAULT != Fault::uninitialised_S) {
      for (auto& fragment : S_frag) fragment[0] = fragment[1] = fragment[2] = fragment[3] = 0.0f;
    }
    if constexpr (FAULT != Fault::mean_of_V) {
#pragma unroll
      for (int k = 0; k < QK_K_TILES; ++k) {
        uint32_t Q_frag[4];
        ldmatrix_x4(Q_frag, warp_Q + chunk_offset<SWIZZLED>(lane % 16, k * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < QK_N_TILES; n += 2) {
          constexpr int SECOND = FAULT == Fault::swapped_registers ? 2 : 1, THIRD = 3 - SECOND;
          uint32_t K_frag[4];
          ldmatrix_x4(K_frag, smem_K + n * 8 * ROW_BYTES + chunk_offset<K_READ_SWIZZLED>(lane % 16, k * 2 + lane / 16));
          mma_m16n8k16(S_frag[n], Q_frag, K_frag[0], K_frag[THIRD]);
          mma_m16n8k16(S_frag[n + 1], Q_frag, K_frag[SECOND], K_frag[3]);
        }
      }
    }

    if constexpr (MBARRIERS) {
      if (FAULT != Fault::elected_arrival || lane == 3) mbarrier_arrive(empty_K);
    }

    // SOFTMAX  A row's scores are spread over 4 neighbouring lanes, so two exchanges complete a maximum or a sum.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int n = 0; n < QK_N_TILES; ++n) {
        const int key = tile * BC + n * 8 + FragmentC::col(lane, 0), query = first_query + FragmentC::row(lane, 2 * r);
        const int last_key = query + (FAULT == Fault::mask_off_by_one ? 1 : 0);
        S_frag[n][2 * r] *= softmax_scale;
        S_frag[n][2 * r + 1] *= softmax_scale;
        if (p.causal && key > last_key) S_frag[n][2 * r] = -INFINITY;
        if (p.causal && key + 1 > last_key) S_frag[n][2 * r + 1] = -INFINITY;
        if (FAULT == Fault::next_heads_tile && key >= p.n) S_frag[n][2 * r] = S_frag[n][2 * r + 1] = -INFINITY;
        tile_max = fmaxf(tile_max, fmaxf(S_frag[n][2 * r], S_frag[n][2 * r + 1]));
      }
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 1));
      tile_max = fmaxf(tile_max, shfl_xor(tile_max, 2));

      // Algebraically no_running_max is right too: the correction may then exceed 1, and overflow.
      const bool grown = (tile_max - row_max[r]) * LOG2E > RESCALE_ABOVE;
      if (FAULT == Fault::needless_vote) vote_any(grown);
      const float new_max = FAULT == Fault::no_running_max || grown ? tile_max : row_max[r];
      const float correction =
          FAULT == Fault::no_correction ? 1.0f : ex2_approx((row_max[r] - new_max) * LOG2E);  // 0 on the first tile
      row_max[r] = new_max;

      float tile_sum = 0.0f;
#pragma unroll
      for (int n = 0; n < QK_N_TILES; ++n) {
        S_frag[n][2 * r] = ex2_approx((S_frag[n][2 * r] - new_max) * LOG2E);
        S_frag[n][2 * r + 1] = ex2_approx((S_frag[n][2 * r + 1] - new_max) * LOG2E);
        tile_sum += S_frag[n][2 * r] + S_frag[n][2 * r + 1];
      }
      tile_sum += shfl_xor(tile_sum, 1);
      tile_sum += shfl_xor(tile_sum, 2);
      row_sum[r] = row_sum[r] * (ROW_SUM_RESCALED ? correction : 1.0f) + tile_sum;
#pragma unroll
      for (int n = 0; n < PV_N_TILES; ++n) {
        O_frag[n][2 * r] *= correction;
        O_frag[n][2 * r + 1] *= correction;
      }
    }

    // LOAD  V[tile] is needed now; K[tile + 1] is requested and arrives behind PV.
    if constexpr (!MBARRIERS) cp_async_wait<0>();  // this thread's part of V[tile] has landed
    const bool prefetch = tile + 1 < kv_tiles || FAULT == Fault::prefetch_past_end;
    const f16* next_K = p.K + kv_head + size_t(tile + 1) * BC * HEAD_DIM;
    if (FAULT == Fault::early_prefetch && prefetch) load_tile<BC, SWIZZLED>(smem_K, next_K);
    // Safe to read V: everybody's part has landed; safe to overwrite K: every warp has finished QK.
    if constexpr (MBARRIERS) {
      mbarrier_wait_parity(full_V, tile % 2);
      if (FAULT != Fault::no_empty_wait) mbarrier_wait_parity(empty_K, tile % 2);
    } else if constexpr (FAULT == Fault::partial_barrier) {
      if (warp != 1) __syncthreads();
    } else if constexpr (FAULT == Fault::barrier_in_branch) {
      if (lane < 16) {
        __syncthreads();
      } else {
        __syncthreads();
      }
    } else if constexpr (FAULT != Fault::no_barrier) {
      __syncthreads();
    }
    if (FAULT != Fault::early_prefetch && prefetch) load_tile<BC, SWIZZLED>(smem_K, next_K);
    if (prefetch || !MBARRIERS) {
      end_copies(full_K);
    }

    // PV
#pragma unroll
    for (int k = 0; k < PV_K_TILES; ++k) {
      const uint32_t P_frag[4] = {pack_f16x2(S_frag[2 * k][0], S_frag[2 * k][1]),
                                  pack_f16x2(S_frag[2 * k][2], S_frag[2 * k][3]),
                                  pack_f16x2(S_frag[2 * k + 1][0], S_frag[2 * k + 1][1]),
                                  pack_f16x2(S_frag[2 * k + 1][2], S_frag[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < PV_N_TILES; ++n) {
        uint32_t V_frag[2];
        ldmatrix_x2_trans(V_frag, smem_V + k * 16 * ROW_BYTES + chunk_offset<SWIZZLED>(lane % 16, n));
        mma_m16n8k16(O_frag[n], P_frag, V_frag[0], V_frag[1]);
      }
    }
    if constexpr (MBARRIERS) {
      if (FAULT == Fault::elected_arrival) __syncwarp();
      if (FAULT != Fault::elected_arrival || lane == 3) mbarrier_arrive(empty_V);
      if (FAULT == Fault::late_wait) mbarrier_wait_parity(begun, tile % 2);
    }
  }

  // STORE
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float normalise = 1.0f / row_sum[r];
    const int row = static_cast<int>(warp * 16) + FragmentC::row(lane, 2 * r);
    const float log_sum = logf(row_sum[r]), lse = FAULT == Fault::lse_without_max ? log_sum : row_max[r] + log_sum;
    if (lane % 4 == 0) st_global_f32(p.LSE + size_t(blockIdx.y) * p.n + blockIdx.x * BR + row, lse);
    if (FAULT == Fault::writes_nothing || (FAULT == Fault::skips_a_row && row == BR - 1)) continue;
    f16* O_row = p.O + block_rows + row * HEAD_DIM + FragmentC::col(lane, 0);
#pragma unroll
    for (int n = 0; n < PV_N_TILES; ++n) {
      st_global_b32(O_row + n * 8, pack_f16x2(O_frag[n][2 * r] * normalise, O_frag[n][2 * r + 1] * normalise));
    }
  }
  if constexpr (FAULT == Fault::reads_neighbour) {
    if (blockIdx.x + 1 < gridDim.x && threadIdx.x == 0) ld_global_f16(p.O + block_rows + BR * HEAD_DIM);
  }
  if constexpr (FAULT == Fault::writes_guard) {
    const size_t end = size_t(p.batch_heads) * p.n * HEAD_DIM;
    if (block_rows + BR * HEAD_DIM == end && threadIdx.x == 0) p.O[end] = f16{0};
  }
}

template <Fault FAULT>
void launch_wrong(Device& device, const AttentionParams& p) {
  const uint32_t blocks = (FAULT == Fault::empty_blocks ? 2 : 1) * p.n / BR;
  launch(device, wrong_attention<FAULT>, dim3(blocks, p.batch_heads), dim3(THREADS), smem_bytes(FAULT), p);
}

}  // namespace
