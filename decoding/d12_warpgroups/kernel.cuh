// d12_warpgroups. Where a head of keys has more than 16 rows, a warpgroup multiplies: 64 rows for the instructions of
// one tile, and each warpgroup has keys of its own.
// Before:  in d06_pages a warp multiplies 16 rows. Of 32 it has twice the products and twice the registers, which
//          spill, and of 64 the keys are read twice.
// Tile:    64x64 for each of 2 warpgroups; a block on an SM.
//          Shared: 209 KiB (a warpgroup 96: K, V 3 x 16 each; Q 16; 1 of maxima and sums).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  as d06_pages.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps how keys are read and rows joined, d06_pages where the keys
// stand.
using decoding::HEAD_DIM, decoding::PANEL_ROW_BYTES, decoding::ROW_BYTES;

template <class T, int BR_, int BC_, int WARPGROUPS_, int STAGES_>
struct Config {
  using Element = T;
  static constexpr int BR = BR_, BC = BC_, WARPGROUPS = WARPGROUPS_, STAGES = STAGES_, PER_SM = 1;
  static constexpr int THREADS = WARPGROUPS * 128, WARPS = THREADS / 32;
  static constexpr int STEP = WARPGROUPS * BC;  // keys that a block takes at a time, a tile each warpgroup
  static constexpr uint32_t TILE_BYTES = BC * ROW_BYTES, STAGE_BYTES = 2 * TILE_BYTES;  // K; and V behind it
  static constexpr uint32_t Q_AT = WARPGROUPS * STAGES * STAGE_BYTES, Q_BYTES = BR * ROW_BYTES;
  // What a warpgroup has found about its rows takes its first stage: rows of 512 B. Maxima and sums are behind Q.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4, NUMBERS_AT = Q_AT + Q_BYTES, NUMBERS_BYTES = BR * 8;
  static constexpr uint32_t SMEM_BYTES = NUMBERS_AT + WARPGROUPS * NUMBERS_BYTES;
  static_assert(BR == 64 && BC == 64 && BR * PART_ROW_BYTES == STAGE_BYTES);
};

// Byte offset of a chunk within a tile of 64 rows: in one of two panels of 64 columns, swizzled as in 20_wgmma.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return (chunk / 8 * 64 + row) * PANEL_ROW_BYTES + (chunk % 8 ^ row % 8) * 16;
}

// LOAD  Half a warp copies a row, all 256 B of it: 64 rows of Q by the block, of a tile by its warpgroup, 16 a warp.
//       What is behind the last key or column, or nobody's row, is zeros.
template <class C>
__device__ __forceinline__ void load_Q(const CacheParams& p, const decoding::Rows& rows, int sequence) {
  const int chunk = threadIdx.x % decoding::ROW_CHUNKS;
  const auto* const Q = static_cast<const typename C::Element*>(p.Q) + sequence * p.Q_strides.batch + chunk * 8;
#pragma unroll
  for (int first = 0; first < C::BR; first += C::THREADS / decoding::ROW_CHUNKS) {
    const int row = first + threadIdx.x / decoding::ROW_CHUNKS;
    cp_async_16(smem_base() + C::Q_AT + chunk_offset(row, chunk),
                Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row,
                rows.has(row) && chunk * 8 < p.d ? 16 : 0);
  }
}
template <class C, class Keys>
__device__ __forceinline__ void load_keys(uint32_t tile, const typename C::Element* from,
                                          const ForwardParams::Strides& strides, const Keys& keys, int first_key,
                                          int d) {
  const int chunk = threadIdx.x % decoding::ROW_CHUNKS, of_warp = threadIdx.x % 128 / 32 * 16;
#pragma unroll
  for (int first = 0; first < 16; first += 2) {
    const int row = first + threadIdx.x % 32 / decoding::ROW_CHUNKS, key = first_key + of_warp + row;
    cp_async_16(tile + chunk_offset(of_warp + row, chunk), from + keys.offset(strides, {key, row}),
                key < keys.n_k && chunk * 8 < d ? 16 : 0);
  }
}

// Attention of a block's rows over its share of the steps, to O and LSE, or of several shares to the workspace.
template <class C, class Keys>
__device__ __forceinline__ void attend_to_share(const CacheParams& p, Keys keys, int shares) {
  using T = typename C::Element;
  constexpr int BR = C::BR, BC = C::BC, STAGES = C::STAGES, STEP = C::STEP;
  const uint32_t warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t smem_K = smem_base() + warpgroup * STAGES * C::STAGE_BYTES;
  smem_name(smem_base(), C::Q_AT, "K and V", PANEL_ROW_BYTES);
  smem_name(smem_base() + C::Q_AT, C::Q_BYTES, "Q", PANEL_ROW_BYTES);

  const auto rows = decoding::Rows::of_block<C>(p, shares);
  const int sequence = blockIdx.z, kv_head = blockIdx.y, number = blockIdx.x % shares;
  const decoding::Seen seen(p, p.n_q, keys.n_k);
  const decoding::Steps steps = decoding::steps_of<C>(rows, seen);
  const int begin = steps.first + number * steps.count / shares;
  const int end = steps.first + (number + 1) * steps.count / shares;
  const auto whole = decoding::Whole::of<C>(rows, seen);

  const T* const K = decoding::lane_source<T>(p.K, p.K_strides, keys, sequence, kv_head);
  const T* const V = decoding::lane_source<T>(p.V, p.V_strides, keys, sequence, kv_head);
  const auto stage_of = [&](int step) { return smem_K + (step - begin) % STAGES * C::STAGE_BYTES; };
  const auto first_key_of = [&](int step) { return step * STEP + int(warpgroup) * BC; };
  const auto load = [&](int step) {
    if (step < end) {
      load_keys<C>(stage_of(step), K, p.K_strides, keys, first_key_of(step), p.d);
      load_keys<C>(stage_of(step) + C::TILE_BYTES, V, p.V_strides, keys, first_key_of(step), p.d);
      keys.look_up(first_key_of(step + 1) + warp % 4 * 16);
    }
    cp_async_commit();
  };
  keys.look_up(first_key_of(begin) + warp % 4 * 16);
  load_Q<C>(p, rows, sequence);
  for (int step = begin; step < begin + STAGES - 1; ++step) load(step);
  cp_async_wait<STAGES - 2>();
  fence_proxy_async_shared();
  __syncthreads();  // safe to multiply Q: all threads' parts of it have landed

  // A lane has two rows of its warp's 16, 8 apart.
  const int lane_row[2] = {int(warp % 4 * 16) + FragmentC::row(lane, 0), int(warp % 4 * 16) + FragmentC::row(lane, 2)};
  const int query[2] = {rows.query(lane_row[0]), rows.query(lane_row[1])};
  decoding::Softmax<T, BC> softmax = {};
  softmax.scale_log2 = p.softmax_scale * decoding::LOG2E;
  softmax.begin();
  const uint64_t Q_rows = wgmma_descriptor(smem_base() + C::Q_AT);
  float O_frag[HEAD_DIM / 8][4] = {}, S_frag[BC / 8][4];
  uint32_t P_frag[BC / 16][4];
  for (int step = begin; step < end; ++step) {
    cp_async_wait<STAGES - 2>();             // this thread's part of the tile has landed
    fence_proxy_async_shared();              // products will find it
    named_barrier_sync(1 + warpgroup, 128);  // safe to read it: all parts have; safe to overwrite the one before
    load(step + STAGES - 1);
    // QK       As in 42_grouped, and nobody copies but those who multiply.
    wgmma_fence(S_frag);
    issue_QK<T, HEAD_DIM, BR, BC>(S_frag, Q_rows, wgmma_descriptor(stage_of(step)));
    wgmma_commit();
    wgmma_wait<0>(S_frag);
    // SOFTMAX
    const int first_key = first_key_of(step);
    const bool is_masked = whole.template cuts<C>(first_key);
    if (is_masked) decoding::hide_unseen(S_frag, seen, query, first_key);
    softmax.weigh(S_frag, P_frag, step == begin, is_masked);
    if (softmax.rescale) scale_rows(O_frag, softmax.correction);
    // PV
    wgmma_fence(O_frag, P_frag);
    issue_PV<T>(O_frag, P_frag, wgmma_descriptor(stage_of(step) + C::TILE_BYTES, BC * PANEL_ROW_BYTES));
    wgmma_commit();
    wgmma_wait<0>(O_frag, P_frag);
  }

  // STORE  As in d04, of warpgroups: each has O for keys of its own, and a warp joins every eighth row.
  const auto part_of = [&](int of_warpgroup, int row, uint32_t chunk) {
    return decoding::WarpPart{
        smem_base() + of_warpgroup * STAGES * C::STAGE_BYTES + row * C::PART_ROW_BYTES + (chunk ^ row % 4 * 2) * 16,
        smem_base() + C::NUMBERS_AT + of_warpgroup * C::NUMBERS_BYTES + row * 8};
  };
  cp_async_wait<0>();
  named_barrier_sync(1 + warpgroup, 128);  // safe to overwrite the first stage: its last tile has been multiplied
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half]);
    for (int column_tile = 0; column_tile < HEAD_DIM / 8; ++column_tile) {
      const float* const two = &O_frag[column_tile][2 * half];
      const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
      st_shared_v2(part_of(warpgroup, lane_row[half], column_tile * 2 + lane % 4 / 2).four + lane % 2 * 8,
                   sum != 0 ? found : uint2{0, 0});
    }
    if (lane % 4 == 0)
      st_shared_v2(part_of(warpgroup, lane_row[half], 0).numbers,
                   {__float_as_uint(softmax.largest(half)), __float_as_uint(sum)});
  }
  __syncthreads();  // safe to read what the other warpgroups have found
  for (int row = warp; row < BR && rows.has(row); row += C::WARPS) {
    float O[4] = {};
    const decoding::Joined all =
        decoding::join_warps<C::WARPGROUPS>(O, [&](int of_warpgroup) { return part_of(of_warpgroup, row, lane); });
    const int head = rows.head(row), at = rows.query(row);
    if (shares > 1) {
      store_part(decoding::Part<HEAD_DIM>(p, number, shares, decoding::row_number(p, sequence, head, at)), O, all);
    } else {
      decoding::store_row<T>(p, sequence, head, at, O, all);
    }
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend_to_share<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    attend_to_share<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d06. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const int shares = decoding::shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  if (shares > 1) decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares);
}

}  // namespace
