// d08_seamless. Where one head ends the next one's keys are on their way: a warp's ring goes on over the seam.
// Before:  in d07_list a block begins anew at each head's end: the ring runs empty, and fills again.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 193 KiB (a warp 24: K, V 3 x 4 each; 1 of maxima and sums).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace as d07_list.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join of a row, d04_warps what is done with a tile of keys, d06_pages where
// these stand, and d07_list the list and who joins.
using decoding::HEAD_DIM;
using decoding::Rows;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {
  using Base = decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1>;
  using Wide = Config<T, 32, BC, WARPS, STAGES>;
  // What a warp has found about 16 rows takes the stage of the tile that it had last: rows of 512 B. Maxima and sums
  // are behind all stages.
  static constexpr uint32_t PART_ROW_BYTES = HEAD_DIM * 4, NUMBERS_BYTES = 16 * 8;
  static constexpr uint32_t SMEM_BYTES = Base::SMEM_BYTES + WARPS * NUMBERS_BYTES;
  static_assert(16 * PART_ROW_BYTES == Base::STAGE_BYTES);
};

// A tile of rows of a head of keys, and where in the list its steps are.
struct ListTile {
  int sequence, row_tile, n_k;
  int first, end;  // step of the list; behind the last one
  int first_key;   // of its first step

  template <class C>
  __device__ __forceinline__ static ListTile at(const decoding::List<C>& list, int sequence, int row_tile, int first) {
    const decoding::Steps steps = list.steps_of(sequence);
    return {sequence, row_tile, decoding::keys_of(list.p, sequence), first, first + steps.count, steps.first * C::STEP};
  }
  template <class C>
  __device__ __forceinline__ static ListTile of(const decoding::List<C>& list, int step) {
    int before;
    const int sequence = list.sequence_of(step, before), count = list.steps_of(sequence).count;
    const int row_tile = (step - before) / count;
    return at(list, sequence, row_tile, before + row_tile * count);
  }
  template <class C>
  __device__ __forceinline__ ListTile next(const decoding::List<C>& list) const {
    if (row_tile + 1 == list.row_tiles) return at(list, sequence + 1, 0, end);
    return {sequence, row_tile + 1, n_k, end, 2 * end - first, first_key};
  }
  template <class C>
  __device__ __forceinline__ int key(int step) const {  // the first of this warp
    return first_key + (step - first) * C::STEP + int(threadIdx.x / 32) * C::BC;
  }
};

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p) {
  using T = typename C::Element;
  using Keys = decoding::KeysOfCache<IN_PAGES>;
  constexpr int WARPS = C::WARPS, STAGES = C::STAGES;
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const decoding::List<C> list(p);
  const int steps = list.before(p.batch), blocks = min(int(gridDim.x), steps), block = blockIdx.x;
  if (block >= blocks) return;
  const int begin = decoding::begin_of(block, blocks, steps), end = decoding::begin_of(block + 1, blocks, steps);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto stage_of = [&](int of_warp, int step) {
    return smem_base() + (of_warp * STAGES + (step - begin) % STAGES) * C::STAGE_BYTES;
  };
  smem_name(smem_base(), C::Base::SMEM_BYTES, "K and V", decoding::ROW_BYTES);

  // LOAD  The tile of keys that is asked for next belongs to `ahead`, which may be some heads further than what is
  //       multiplied.
  ListTile here = ListTile::of(list, begin), ahead = here;
  int asked = begin;
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
      if (++asked == ahead.end && asked < end) ahead = ahead.next(list), keys = keys_in(ahead);
      keys.look_up(ahead.template key<C>(asked));
    }
    cp_async_commit();
  };
  keys.look_up(ahead.template key<C>(begin));
  for (int stage = 0; stage < STAGES - 1; ++stage) load();

  decoding::WarpRows<C> mine;
  mine.load_Q(p, list.rows_of_tile(here.row_tile), here.sequence);
  for (int step = begin; step < end;) {
    const Rows rows = list.rows_of_tile(here.row_tile);
    const decoding::Seen seen(p, p.n_q, here.n_k);
    const decoding::Whole whole = decoding::Whole::of<C>(rows, seen);
    const int from = step, to = min(here.end, end);
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

    // STORE  Two tiles of keys are on their way, of this head or of the next one. The third stage is free.
    const ListTile then = to < end ? here.next(list) : here;
    const bool is_alone = from == here.first && to == here.end;
    const auto part_of = [&](int of_warp, int row, uint32_t chunk) {
      return decoding::WarpPart{stage_of(of_warp, to - 1) + row * C::PART_ROW_BYTES + (chunk ^ (row % 4 * 2)) * 16,
                                smem_base() + C::Base::SMEM_BYTES + of_warp * C::NUMBERS_BYTES + row * 8};
    };
    __syncwarp();  // safe to overwrite the last tile: all lanes have multiplied it
#pragma unroll
    for (int group = 0; group < C::BR / 16; ++group) {
      for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(mine.softmax[group].sum[half]);
        const int row = FragmentC::row(lane, 2 * half);
        for (int column_tile = 0; column_tile < HEAD_DIM / 8; ++column_tile) {
          const float* const two = &mine.O_frag[group][column_tile][2 * half];
          const uint2 found = {__float_as_uint(two[0]), __float_as_uint(two[1])};
          st_shared_v2(part_of(warp, row, column_tile * 2 + lane % 4 / 2).four + lane % 2 * 8,
                       sum != 0 ? found : uint2{0, 0});
        }
        if (lane % 4 == 0)
          st_shared_v2(part_of(warp, row, 0).numbers,
                       {__float_as_uint(mine.softmax[group].largest(half)), __float_as_uint(sum)});
      }
      if (group == C::BR / 16 - 1) mine.load_Q(p, list.rows_of_tile(then.row_tile), then.sequence);
      __syncthreads();  // safe to read what the other warps have found
      for (int of_group = warp; of_group < 16 && rows.has(group * 16 + of_group); of_group += WARPS) {
        const int row = group * 16 + of_group;
        float O[4] = {};
        const decoding::Joined all =
            decoding::join_warps<WARPS>(O, [&](int of_warp) { return part_of(of_warp, of_group, lane); });
        if (is_alone) {
          decoding::store_row<T>(p, here.sequence, rows.head(row), rows.query(row), O, all);
        } else {
          decoding::store_part(decoding::part_of<C>(p, block, from == begin, row), O, all);
        }
      }
      __syncthreads();  // safe to overwrite it
    }
    here = then;
  }
}

// LAUNCH  As in d07. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int blocks = min(int(multiprocessors(device)), decoding::MOST_SHARES);
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, dim3(blocks),
         dim3(C::THREADS), C::SMEM_BYTES, p);
  decoding::start_join_list<C>(device, p, blocks);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
