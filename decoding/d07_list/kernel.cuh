// d07_list. Each block has as much to do as any other: the steps of all sequences stand in one list, and a block takes
// its part of that, wherever it begins and ends.
// Before:  in d06_pages every sequence is cut into as many shares. Where one is ten times as long as the others, its
//          shares are, too, and the card waits for them.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 192 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace: for each block two parts of BR rows, O [d] and then maximum and sum, f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps what is done with a share, and d06_pages where keys stand.
using decoding::HEAD_DIM;
using decoding::Part;
using decoding::Rows;
using decoding::Steps;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {};

// The list: of each sequence, of each head of keys, of each tile of rows, the steps in which it meets keys. A whole
// warp asks.
template <class C>
struct List {
  const CacheParams& p;
  int tiles, row_tiles;  // of rows; of rows of all heads of keys

  __device__ __forceinline__ List(const CacheParams& p)
      : p(p), tiles((p.n_q * (p.heads / p.kv_heads) + C::BR - 1) / C::BR), row_tiles(tiles * p.kv_heads) {}
  __device__ __forceinline__ Rows rows_of_tile(int row_tile) const {
    const int group = p.heads / p.kv_heads;
    return {group, row_tile / tiles * group, row_tile % tiles * C::BR, p.n_q * group};
  }
  // Of each tile of a sequence, from the first query's first key to the last query's last.
  __device__ __forceinline__ Steps steps_of(int sequence) const {
    const decoding::Seen seen(p, p.n_q, decoding::keys_of(p, sequence));
    const int first = seen.first_of(0) / C::STEP;
    return {first, max((seen.end_of(p.n_q - 1) + C::STEP - 1) / C::STEP - first, 1)};
  }
  // All steps of the sequences before this one.
  __device__ __forceinline__ int before(int sequence) const {
    int sum = 0;
    for (int s = threadIdx.x % 32; s < sequence; s += 32) sum += row_tiles * steps_of(s).count;
    for (int mask = 16; mask > 0; mask /= 2) sum += int(shfl(sum, threadIdx.x % 32 ^ mask));
    return sum;
  }
  // The sequence that has a step, and all steps before it. Of 32 sequences at a time a lane knows where its own ends.
  __device__ __forceinline__ int sequence_of(int step, int& before) const {
    const int lane = threadIdx.x % 32;
    before = 0;
    for (int first = 0;; first += 32) {
      int end = first + lane < p.batch ? row_tiles * steps_of(first + lane).count : 0;
      for (int from = 1; from < 32; from *= 2) {
        const int sum = int(shfl(end, lane - from));
        if (lane >= from) end += sum;
      }
      const int all = int(shfl(end, 31));
      if (step >= before + all) {
        before += all;
        continue;
      }
      int number = 0;
      for (int half = 16; half > 0; half /= 2) {
        if (step >= before + int(shfl(end, number + half - 1))) number += half;
      }
      if (number > 0) before += int(shfl(end, number - 1));
      return first + number;
    }
  }
};

// Who has which part of the list: block b from here on, up to where b + 1 begins.
__device__ __forceinline__ int begin_of(int block, int blocks, int steps) {
  return int(int64_t(block) * steps / blocks);
}
// And back.
__device__ __forceinline__ int block_of(int step, int blocks, int steps) {
  return int((int64_t(step + 1) * blocks - 1) / steps);
}
// What a block leaves of a tile that it does not have alone: of the one that it begins with, or of the last.
template <class C>
__device__ __forceinline__ Part<HEAD_DIM> part_of(const CacheParams& p, int block, bool is_first, int row) {
  return {p, (block * 2 + !is_first) * C::BR + row, int64_t(decoding::MOST_SHARES) * 2 * C::BR};
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const List<C> list(p);
  const int steps = list.before(p.batch), blocks = min(int(gridDim.x), steps), block = blockIdx.x;
  if (block >= blocks) return;
  const int begin = begin_of(block, blocks, steps), end = begin_of(block + 1, blocks, steps);
  int before, sequence = list.sequence_of(begin, before);
  for (int step = begin; step < end;) {
    const Steps all = list.steps_of(sequence);  // of this tile, which has them from `first` on and before `behind`
    const int row_tile = (step - before) / all.count, first = before + row_tile * all.count, behind = first + all.count;
    const int to = min(behind, end);
    const Rows rows = list.rows_of_tile(row_tile);
    const bool is_alone = step == first && to == behind;
    const auto leave = [&](int row, const float(&O)[4], const decoding::Joined& found LADDER_SITE_PARAMETER) {
      if (is_alone) {
        decoding::store_row<typename C::Element>(p, sequence, rows.head(row), rows.query(row), O, found LADDER_SITE);
      } else {
        decoding::store_part(part_of<C>(p, block, step == begin, row), O, found LADDER_SITE);
      }
    };
    // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
    // QK       the scores,
    // SOFTMAX  the weights,
    // PV       their sums with V,
    // STORE    and what is left of them.
    const decoding::Share share = {rows, sequence, row_tile / list.tiles, all.first + step - first,
                                   all.first + to - first};
    const int n_k = decoding::keys_of(p, sequence);
    if constexpr (IN_PAGES) {
      decoding::attend_to<C>(p, share, decoding::Pages(p, sequence, n_k), leave);
    } else {
      decoding::attend_to<C>(p, share, decoding::InOnePiece{n_k}, leave);
    }
    __syncthreads();  // safe to overwrite what the warps have found: it is joined
    step = to;
    if (step == before + list.row_tiles * all.count) before = step, ++sequence;
  }
}

// JOIN  A row of O that several blocks have parts of. Grid (rows of a tile, blocks of the launch before): a block has
//       one tile at most that it begins and others go on with, its last one. Row `blockIdx.x` of that is joined here.
constexpr int JOIN_WARPS = decoding::JOIN_WARPS;
template <class C>
__global__ void __launch_bounds__(JOIN_WARPS * 32) join(CacheParams p) {
  const List<C> list(p);
  const int steps = list.before(p.batch), blocks = min(int(gridDim.y), steps), block = blockIdx.y;
  if (block + 1 >= blocks) return;
  const int end = begin_of(block + 1, blocks, steps);
  int before;
  const int sequence = list.sequence_of(end - 1, before), count = list.steps_of(sequence).count;
  const int row_tile = (end - 1 - before) / count, first = before + row_tile * count, last = first + count - 1;
  const Rows rows = list.rows_of_tile(row_tile);
  const bool goes_on = last >= end && block_of(first, blocks, steps) == block;
  if (!goes_on || !rows.has(blockIdx.x)) return;
  const bool is_first = begin_of(block, blocks, steps) == first;  // of this block's
  griddepcontrol_wait();  // safe to read what the blocks have written: they are over
  decoding::join_row<typename C::Element, HEAD_DIM, JOIN_WARPS>(
      p, sequence, rows.head(blockIdx.x), rows.query(blockIdx.x), block_of(last, blocks, steps) - block + 1,
      [&](int share) { return part_of<C>(p, block + share, share > 0 || is_first, blockIdx.x); });
}

// LAUNCH  A block for each SM, and the join, whose blocks may find their places while others still read. The pointers
//         of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int blocks = min(int(multiprocessors(device)), decoding::MOST_SHARES);
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>, dim3(blocks),
         dim3(C::THREADS), C::SMEM_BYTES, p);
  launch_dependent(device, join<C>, dim3(min(decoding::rows_per_kv_head(p), C::BR), blocks), dim3(JOIN_WARPS * 32),
                   JOIN_WARPS * (HEAD_DIM + 2) * 4, p);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
