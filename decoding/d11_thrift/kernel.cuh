// d11_thrift. At a share's end nothing is done for rows that are nobody's, and no number is divided.
// Before:  in d10_along a block divides some twenty times at each share's end, and stores and reads 16 rows where four
//          are somebody's: at one step a share that is as long as the reading.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 217 KiB (a warp 24: K, V 3 x 4 each; 1 of maxima and sums; Q 3 x 8).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace as d09_own.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding_along.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join of a row, d04_warps what is done with a tile of keys, d06_pages where
// these stand, d07_list the list, d08_seamless its tiles, d09_own the shares, and d10_along the rest.
using decoding::HEAD_DIM;
using decoding::List;
using decoding::ListTile;
using decoding::Part;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::AlongTile<T, BR, BC, WARPS, STAGES> {};

// A division by a number that is the same for the whole launch: a product with its inverse. Of numbers below 2^32 / by.
struct Divisor {
  int by;
  uint32_t inverse;  // 2^32 / by, rounded up; of 1 it is not used

  __device__ __forceinline__ explicit Divisor(int by) : by(by), inverse(0xffffffffu / uint32_t(by) + 1) {}
  __device__ __forceinline__ int quotient(int number) const {
    return by == 1 ? number : int(uint64_t(uint32_t(number)) * inverse >> 32);
  }
};

// The rows of a tile as decoding::Rows has them, for less.
struct ThriftyRows {
  const Divisor& group;
  int first_head, first, end;

  __device__ __forceinline__ int query(int row) const { return group.quotient(min(first + row, end - 1)); }
  __device__ __forceinline__ int head(int row) const {
    return first_head + first + row - group.quotient(first + row) * group.by;
  }
  __device__ __forceinline__ bool has(int row) const { return first + row < end; }
};

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int most) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const List<C> list(p);
  const decoding::BlockRange part = decoding::range_of_block(list, list.before(p.batch), blockIdx.x, gridDim.x);
  if (part.begin == part.end) return;
  const Divisor group(p.heads / p.kv_heads), tiles(list.tiles);
  const auto kv_head_of = [&](int row_tile) { return tiles.quotient(row_tile); };
  const auto rows_of_tile = [&](int row_tile) {
    const int kv_head = tiles.quotient(row_tile);
    return ThriftyRows{group, kv_head * group.by, (row_tile - kv_head * tiles.by) * C::BR, p.n_q * group.by};
  };
  // LOAD     A block goes through its shares as d10 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V.
  // STORE    Which share of its tile this is has been counted, not divided.
  const auto leave = [&](const ListTile& tile, int number, int from, int to, const ThriftyRows& rows, int row,
                         const float(&O)[4], const decoding::Joined& found LADDER_SITE_PARAMETER) {
    const int head = rows.head(row), query = rows.query(row);
    if (from == tile.first && to == tile.end) {
      decoding::store_row<typename C::Element>(p, tile.sequence, head, query, O, found LADDER_SITE);
    } else {
      const int64_t at = decoding::row_number(p, tile.sequence, head, query);
      decoding::store_part(Part<HEAD_DIM>(p, number, most, at), O, found LADDER_SITE);
    }
  };
  decoding::attend_along<C, IN_PAGES>(p, list, part, rows_of_tile, kv_head_of, leave);
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
