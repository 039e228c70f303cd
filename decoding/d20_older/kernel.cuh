// d20_older: pages and lengths on any card from sm_80 on. d06_pages looks keys up, d04_warps has the tile and launches.
// Before:  d06_pages needs a card that starts a dependent launch early, and 192 KiB of shared memory.
// Tile:    16x16 for each of 4 warps, or 32x16 where there are more rows; two blocks on an SM, where it has room.
//          Shared: 96 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0.
// Shapes:  as d06_pages.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps all that a block does, and d06_pages where the keys stand.
using decoding::HEAD_DIM;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 2> {};

// As in d04: what a join reads in no time, and blocks on as many SMs as the workspace was made for.
constexpr int MOST_SHARES = 64, MOST_MULTIPROCESSORS = 160;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  return decoding::shares_of<C>(blocks, n_k, min(multiprocessors, MOST_MULTIPROCESSORS), MOST_SHARES);
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int shares) {
  static_assert(C::BC == 16);
  const int n_k = decoding::keys_of(p, blockIdx.z);
  // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V,
  // STORE    and what a share leaves to be joined: nothing, if there are fewer steps than shares.
  if constexpr (IN_PAGES) {
    decoding::attend<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    decoding::attend<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As many shares of each sequence as if it were the longest. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const int shares = shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  if (shares > 1) decoding::start_join<typename C::Element, HEAD_DIM>(device, p, shares);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
