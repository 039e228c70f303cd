// Q that comes along with a share's first keys, parts of kernels of decoding/: what d10_along spells out, and later
// rungs say.
#pragma once
#include "common/words/decoding.cuh"

namespace decoding {
namespace {

// d10_along. Of as many shares as may have been asked for at a time, one for each stage, Q has room for 32 rows.
template <class T, int BR, int BC, int WARPS, int STAGES>
struct AlongTile : SeamlessTile<T, BR, BC, WARPS, STAGES> {
  using Wide = AlongTile<T, 32, BC, WARPS, STAGES>;
  static constexpr uint32_t Q_BYTES = 32 * ROW_BYTES, Q_AT = SeamlessTile<T, BR, BC, WARPS, STAGES>::SMEM_BYTES;
  static constexpr uint32_t SMEM_BYTES = Q_AT + STAGES * Q_BYTES;
};

// d10_along. LOAD  Q of a share, 16 B a thread and row, swizzled as a tile of keys. Rows that are nobody's are zeros.
template <class C, class Rows>
__device__ __forceinline__ void copy_Q(const CacheParams& p, const Rows& rows, int sequence,
                                       uint32_t smem_Q LADDER_SITE_PARAMETER) {
  const int chunk = threadIdx.x % ROW_CHUNKS;
  const auto* const Q = static_cast<const typename C::Element*>(p.Q) + sequence * p.Q_strides.batch + chunk * 8;
#pragma unroll
  for (int first = 0; first < C::BR; first += C::THREADS / ROW_CHUNKS) {
    const int row = first + threadIdx.x / ROW_CHUNKS;
    cp_async_16(smem_Q + chunk_offset(row, chunk),
                Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row,
                rows.has(row) && chunk * 8 < p.d ? 16 : 0 LADDER_SITE);
  }
}

// d10_along. What the warps have found about a row: all their maxima first, and then a lane's four columns.
template <int WARPS, class PartOf>
__device__ __forceinline__ Joined join_warps_at_once(float (&O)[4], const PartOf& part_of LADDER_SITE_PARAMETER) {
  Joined all;
  float max[WARPS], sum[WARPS];
#pragma unroll
  for (int of_warp = 0; of_warp < WARPS; ++of_warp) {
    const uint2 numbers = ld_shared_v2(part_of(of_warp).numbers LADDER_SITE);
    max[of_warp] = __uint_as_float(numbers.x), sum[of_warp] = __uint_as_float(numbers.y);
    all.max = fmaxf(all.max, max[of_warp]);
  }
#pragma unroll
  for (int of_warp = 0; of_warp < WARPS; ++of_warp) {
    const uint4 four = ld_shared_v4(part_of(of_warp).four LADDER_SITE);
    const float by = weight_of(max[of_warp], all.max);
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    all.sum += sum[of_warp] * by;
    for (int i = 0; i < 4; ++i) O[i] += __uint_as_float(its[i]) * by;
  }
  return all;
}

// d10_along. All that a block does in the list, share by share, with a share's Q copied beside its first keys. Which
// rows a tile of the list has, rows_of_tile(its number) says, and kv_head_of(its number) of which head of keys. For
// each of a share's rows and by one warp, leave(tile, number of the share, from which step, to which, rows, row, O,
// found).
template <class C, bool IN_PAGES, class RowsOf, class HeadOf, class Leave>
__device__ __forceinline__ void attend_along(const CacheParams& p, const List<C>& list, const BlockRange& part,
                                             const RowsOf& rows_of_tile, const HeadOf& kv_head_of,
                                             const Leave& leave LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  using Keys = KeysOfCache<IN_PAGES>;
  constexpr int WARPS = C::WARPS, STAGES = C::STAGES, M_TILES = C::BR / 16;
  const int begin = part.begin, end = part.end;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto stage_of = [&](int of_warp, int step) {
    return smem_base() + (of_warp * STAGES + (step - begin) % STAGES) * C::STAGE_BYTES;
  };
  const auto smem_Q = [&](int share) { return smem_base() + C::Q_AT + share % STAGES * C::Q_BYTES; };
  smem_name(smem_base(), C::Base::SMEM_BYTES, "K and V", ROW_BYTES);

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
      const int first_key = ahead.template key<C>(asked), kv_head = kv_head_of(ahead.row_tile);
      const uint32_t smem_K = stage_of(warp, asked);
      load_tile<C>(smem_K, lane_source<T>(p.K, p.K_strides, keys, ahead.sequence, kv_head), p.K_strides, keys,
                   first_key, p.d LADDER_SITE);
      load_tile<C>(smem_K + C::TILE_BYTES, lane_source<T>(p.V, p.V_strides, keys, ahead.sequence, kv_head), p.V_strides,
                   keys, first_key, p.d LADDER_SITE);
      if (asked == asked_up_to) {
        copy_Q<C>(p, rows_of_tile(ahead.row_tile), ahead.sequence, smem_Q(share_asked++) LADDER_SITE);
        asked_up_to = end_of_share(ahead, asked);
      }
      if (++asked == ahead.end && asked < end) ahead = ahead.next(list LADDER_SITE), keys = keys_in(ahead);
      keys.look_up(ahead.template key<C>(asked));
    }
    cp_async_commit(LADDER_SITE_ALONE);
  };
  keys.look_up(ahead.template key<C>(begin));
  for (int stage = 0; stage < STAGES - 1; ++stage) load();

  WarpRows<C> mine;
  int number = (begin - here.first) / length_of_shares(here.end - here.first);  // of a share of its tile
  for (int step = begin, share = 0; step < end; ++share) {
    cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);
    __syncthreads(LADDER_SITE_ALONE);  // safe to read Q: all have what they copied; safe to overwrite what was found
    const auto rows = rows_of_tile(here.row_tile);
    const Seen seen(p, p.n_q, here.n_k);
    const Whole whole = Whole::of<C>(rows, seen);
    const int from = step, to = end_of_share(here, step);
    mine.read_Q(rows, smem_Q(share) LADDER_SITE);
    mine.begin(p);
    for (; step < to; ++step) {
      cp_async_wait<STAGES - 2>(LADDER_SITE_ALONE);  // this lane's part of the tile has landed
      __syncwarp(LADDER_SITE_ALONE);  // safe to read it: all lanes' parts have; safe to overwrite the one before
      load();
      const int first_key = here.template key<C>(step);
      mine.multiply(stage_of(warp, step), seen, first_key, step == from, whole.template cuts<C>(first_key) LADDER_SITE);
    }

    // STORE  As in d08; of no rows but those that are somebody's (d11_thrift).
    const auto part_of = [&](int of_warp, int row, uint32_t chunk) {
      return WarpPart{stage_of(of_warp, to - 1) + row * C::PART_ROW_BYTES + (chunk ^ (row % 4 * 2)) * 16,
                      smem_base() + C::Base::SMEM_BYTES + of_warp * C::NUMBERS_BYTES + row * 8};
    };
    __syncwarp(LADDER_SITE_ALONE);  // safe to overwrite the last tile: all lanes have multiplied it
#pragma unroll
    for (int group = 0; group < M_TILES; ++group) {
      if (group > 0) __syncthreads(LADDER_SITE_ALONE);  // safe to overwrite the group before
      mine.store_found(group, rows, [&](int row, uint32_t chunk) { return part_of(warp, row, chunk); } LADDER_SITE);
      __syncthreads(LADDER_SITE_ALONE);  // safe to read what the other warps have found
      for (int of_group = warp; of_group < 16 && rows.has(group * 16 + of_group); of_group += WARPS) {
        const int row = group * 16 + of_group;
        float O[4] = {};
        const Joined all =
            join_warps_at_once<WARPS>(O, [&](int of_warp) { return part_of(of_warp, of_group, lane); } LADDER_SITE);
        leave(here, number, from, to, rows, row, O, all LADDER_SITE);
      }
    }
    ++number;
    if (to == here.end && to < end) here = here.next(list LADDER_SITE), number = 0;
  }
}

}  // namespace
}  // namespace decoding
