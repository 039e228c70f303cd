// d09_own. How long a share is, its own sequence says: a row has the same bits alone and in any batch.
// Before:  in d08_seamless the list is cut where the blocks' parts end, and with each other batch elsewhere: sums are
//          rounded in other places.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 193 KiB (a warp 24: K, V 3 x 4 each; 1 of maxima and sums).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace: for each row of O as many parts as most_shares says, O [d] and then maximum and
//          sum, f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join of a row, d04_warps what is done with a tile of keys, d06_pages where
// these stand, d07_list the list, and d08_seamless how a block goes through it.
using decoding::HEAD_DIM;
using decoding::List;
using decoding::ListTile;
using decoding::Part;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::SeamlessTile<T, BR, BC, WARPS, STAGES> {};

// A tile of rows has 16 shares of its steps, but none that is longer than 4 steps, 512 keys.
constexpr int USUAL_SHARES = 16, LONGEST = 4;
__host__ __device__ __forceinline__ int length_of_shares(int steps) {
  return min(max((steps + USUAL_SHARES - 1) / USUAL_SHARES, 1), LONGEST);
}
__host__ __device__ __forceinline__ int shares_of(int steps) {
  return (steps + length_of_shares(steps) - 1) / length_of_shares(steps);
}
// Of any number of steps up to this one.
inline int most_shares(int steps) {
  return max(min(steps, USUAL_SHARES), shares_of(steps));
}

// The first share that begins at a step of the list, or behind it; the end of the list counts as one.
struct Begin {
  ListTile tile;
  int step;
};
template <class C>
__device__ __forceinline__ Begin begin_at(const List<C>& list, int step, int steps) {
  if (step == steps) return {{}, steps};
  ListTile tile = ListTile::of(list, step);
  const int length = length_of_shares(tile.end - tile.first);
  const int begin = tile.first + (step - tile.first + length - 1) / length * length;
  if (begin < tile.end || tile.end == steps) return {tile, min(begin, tile.end)};
  return {tile.next(list), tile.end};
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int most) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const List<C> list(p);
  const int steps = list.before(p.batch), blocks = gridDim.x, block = blockIdx.x;
  const Begin begin = begin_at(list, decoding::begin_of(block, blocks, steps), steps);
  const int end = begin_at(list, decoding::begin_of(block + 1, blocks, steps), steps).step;
  if (begin.step == end) return;
  const auto end_of = [&](const ListTile& tile, int step) {
    return min(step + length_of_shares(tile.end - tile.first), tile.end);
  };
  // LOAD     A block goes through its part of the list as d08 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V.
  // STORE    A share leaves its part of a row, if it is not the only one.
  const auto leave = [&](const ListTile& tile, int from, int, const decoding::Rows& rows, int row, const float(&O)[4],
                         const decoding::Joined& found LADDER_SITE_PARAMETER) {
    const int count = tile.end - tile.first, head = rows.head(row), query = rows.query(row);
    if (shares_of(count) == 1) {
      decoding::store_row<typename C::Element>(p, tile.sequence, head, query, O, found LADDER_SITE);
    } else {
      const Part<HEAD_DIM> part(p, (from - tile.first) / length_of_shares(count), most,
                                decoding::row_number(p, tile.sequence, head, query));
      decoding::store_part(part, O, found LADDER_SITE);
    }
  };
  decoding::attend_list<C, IN_PAGES>(p, list, begin.tile, begin.step, end, end_of, leave);
}

// JOIN  A row of O from its shares. Grid (n_q, heads, batch).
constexpr int JOIN_WARPS = 8;
template <class C>
__global__ void __launch_bounds__(JOIN_WARPS * 32) join(CacheParams p, int most) {
  const int sequence = blockIdx.z, head = blockIdx.y, query = blockIdx.x;
  const int shares = shares_of(List<C>(p).steps_of(sequence).count);
  if (shares == 1) return;
  griddepcontrol_wait();  // safe to read what the blocks have written: they are over
  decoding::join_row<typename C::Element, HEAD_DIM, JOIN_WARPS>(p, sequence, head, query, shares, [&](int share) {
    return Part<HEAD_DIM>(p, share, most, decoding::row_number(p, sequence, head, query));
  });
}

// LAUNCH  A block for each SM, if there are as many steps, and the join, whose blocks may find places while others
//         still read. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int steps = (p.n_k + C::STEP - 1) / C::STEP, most = most_shares(steps);
  const int64_t tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR * int64_t(p.kv_heads) * p.batch;
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(min(int64_t(multiprocessors(device)), tiles * steps)), dim3(C::THREADS), C::SMEM_BYTES, p, most);
  if (most > 1)
    launch_dependent(device, join<C>, dim3(p.n_q, p.heads, p.batch), dim3(JOIN_WARPS * 32),
                     JOIN_WARPS * (HEAD_DIM + 2) * 4, p, most);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
