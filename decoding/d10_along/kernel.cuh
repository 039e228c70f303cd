// d10_along. Q comes along with a share's first keys: nothing is asked for when it is needed.
// Before:  in d09_own each share asks for its Q when the one before ends. Behind keys that have been asked for, that
//          takes microseconds, and meanwhile no warp multiplies.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 217 KiB (a warp 24: K, V 3 x 4 each; 1 of maxima and sums; Q 3 x 8).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace as d09_own.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join of a row, d04_warps what is done with a tile of keys, d06_pages where
// these stand, d07_list the list, d08_seamless its tiles, and d09_own the shares.
using decoding::HEAD_DIM;
using decoding::List;
using decoding::ListTile;
using decoding::Part;
using decoding::Rows;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::SeamlessTile<T, BR, BC, WARPS, STAGES> {
  using Wide = Config<T, 32, BC, WARPS, STAGES>;
  using Before = decoding::SeamlessTile<T, BR, BC, WARPS, STAGES>;
  // Of as many shares as may have been asked for at a time, one for each stage, Q has room for 32 rows.
  static constexpr uint32_t Q_BYTES = 32 * decoding::ROW_BYTES, Q_AT = Before::SMEM_BYTES;
  static constexpr uint32_t SMEM_BYTES = Q_AT + STAGES * Q_BYTES;
};

// LOAD  Q of a share, 16 B a thread and row, swizzled as a tile of keys. Rows that are nobody's are zeros.
template <class C>
__device__ __forceinline__ void load_Q(const CacheParams& p, const Rows& rows, int sequence, uint32_t smem_Q) {
  const int chunk = threadIdx.x % decoding::ROW_CHUNKS;
  const auto* const Q = static_cast<const typename C::Element*>(p.Q) + sequence * p.Q_strides.batch + chunk * 8;
#pragma unroll
  for (int first = 0; first < C::BR; first += C::THREADS / decoding::ROW_CHUNKS) {
    const int row = first + threadIdx.x / decoding::ROW_CHUNKS;
    cp_async_16(smem_Q + decoding::chunk_offset(row, chunk),
                Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row,
                rows.has(row) && chunk * 8 < p.d ? 16 : 0);
  }
}

// What the warps have found about a row: all their maxima first, and then a lane's four columns.
template <class C, class PartOf>
__device__ __forceinline__ decoding::Joined join_warps(float (&O)[4], const PartOf& part_of) {
  decoding::Joined all;
  float max[C::WARPS], sum[C::WARPS];
#pragma unroll
  for (int of_warp = 0; of_warp < C::WARPS; ++of_warp) {
    const uint2 numbers = ld_shared_v2(part_of(of_warp).numbers);
    max[of_warp] = __uint_as_float(numbers.x), sum[of_warp] = __uint_as_float(numbers.y);
    all.max = fmaxf(all.max, max[of_warp]);
  }
#pragma unroll
  for (int of_warp = 0; of_warp < C::WARPS; ++of_warp) {
    const uint4 four = ld_shared_v4(part_of(of_warp).four);
    const float by = decoding::weight_of(max[of_warp], all.max);
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    all.sum += sum[of_warp] * by;
    for (int i = 0; i < 4; ++i) O[i] += __uint_as_float(its[i]) * by;
  }
  return all;
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int most) {
  using T = typename C::Element;
  using Keys = decoding::KeysOfCache<IN_PAGES>;
  constexpr int WARPS = C::WARPS, STAGES = C::STAGES, M_TILES = C::BR / 16;
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const List<C> list(p);
  const decoding::BlockRange part = decoding::range_of_block(list, list.before(p.batch), blockIdx.x, gridDim.x);
  if (part.begin == part.end) return;
  const int begin = part.begin, end = part.end;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto stage_of = [&](int of_warp, int step) {
    return smem_base() + (of_warp * STAGES + (step - begin) % STAGES) * C::STAGE_BYTES;
  };
  const auto smem_Q = [&](int share) { return smem_base() + C::Q_AT + share % STAGES * C::Q_BYTES; };
  smem_name(smem_base(), C::Base::SMEM_BYTES, "K and V", decoding::ROW_BYTES);

  // LOAD  A warp's tile of the next step, which belongs to `ahead`; with a share's first one comes its Q.
  ListTile here = part.tile, ahead = here;
  int asked = begin, asked_up_to = begin, share_asked = 0;
  const auto keys_in = [&](const ListTile& tile) {
    if constexpr (IN_PAGES) {
      return Keys(p, tile.sequence, tile.n_k);
    } else {
      return Keys{tile.n_k};
    }
  };
  Keys keys = keys_in(ahead);
  const auto load = [&] {
    if (asked < end) {
      const int first_key = ahead.template key<C>(asked), kv_head = ahead.row_tile / list.tiles;
      const uint32_t smem_K = stage_of(warp, asked);
      decoding::load_tile<C>(smem_K, decoding::lane_source<T>(p.K, p.K_strides, keys, ahead.sequence, kv_head),
                             p.K_strides, keys, first_key, p.d);
      decoding::load_tile<C>(smem_K + C::TILE_BYTES,
                             decoding::lane_source<T>(p.V, p.V_strides, keys, ahead.sequence, kv_head), p.V_strides,
                             keys, first_key, p.d);
      if (asked == asked_up_to) {
        load_Q<C>(p, list.rows_of_tile(ahead.row_tile), ahead.sequence, smem_Q(share_asked++));
        asked_up_to = decoding::end_of_share(ahead, asked);
      }
      if (++asked == ahead.end && asked < end) ahead = ahead.next(list), keys = keys_in(ahead);
      keys.look_up(ahead.template key<C>(asked));
    }
    cp_async_commit();
  };
  keys.look_up(ahead.template key<C>(begin));
  for (int stage = 0; stage < STAGES - 1; ++stage) load();

  decoding::WarpRows<C> mine;
  for (int step = begin, share = 0; step < end; ++share) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // safe to read Q: all have what they copied; safe to overwrite what the warps have found
    const Rows rows = list.rows_of_tile(here.row_tile);
    const decoding::Seen seen(p, p.n_q, here.n_k);
    const decoding::Whole whole = decoding::Whole::of<C>(rows, seen);
    const int from = step, to = decoding::end_of_share(here, step);
    mine.read_Q(rows, smem_Q(share));
    mine.begin(p);
    for (; step < to; ++step) {
      cp_async_wait<STAGES - 2>();  // this lane's part of the tile has landed
      __syncwarp();                 // safe to read it: all lanes' parts have; safe to overwrite the one before
      load();
      // QK       As d04 spells out, the scores,
      // SOFTMAX  the weights,
      // PV       and their sums with V.
      const int first_key = here.template key<C>(step);
      mine.multiply(stage_of(warp, step), seen, first_key, step == from, whole.template cuts<C>(first_key));
    }

    // STORE  As in d08.
    const auto part_of = [&](int of_warp, int row, uint32_t chunk) {
      return decoding::WarpPart{stage_of(of_warp, to - 1) + row * C::PART_ROW_BYTES + (chunk ^ (row % 4 * 2)) * 16,
                                smem_base() + C::Base::SMEM_BYTES + of_warp * C::NUMBERS_BYTES + row * 8};
    };
    __syncwarp();  // safe to overwrite the last tile: all lanes have multiplied it
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (group > 0) __syncthreads();  // safe to overwrite the group before
      mine.store_found(group, [&](int row, uint32_t chunk) { return part_of(warp, row, chunk); });
      __syncthreads();  // safe to read what the other warps have found
      for (int of_group = warp; of_group < 16 && rows.has(group * 16 + of_group); of_group += WARPS) {
        const int row = group * 16 + of_group;
        float O[4] = {};
        const decoding::Joined all = join_warps<C>(O, [&](int of_warp) { return part_of(of_warp, of_group, lane); });
        decoding::leave_share<T>(p, here, from, most, rows.head(row), rows.query(row), O, all);
      }
    }
    if (to == here.end && to < end) here = here.next(list);
  }
}

// LAUNCH  As in d09. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(decoding::blocks_of<C>(device, p)), dim3(C::THREADS), C::SMEM_BYTES, p, decoding::most_shares<C>(p.n_k));
  decoding::start_join_shares<C>(device, p);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
