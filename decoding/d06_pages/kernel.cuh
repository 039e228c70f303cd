// d06_pages. A cache grows as its text does: it lies in pages, which a table finds, and each sequence has as many keys
// as it has. A tile is where it is in d05, so O has the same bits.
// Before:  in d05_dependent all sequences have as many keys, and these lie behind each other. A cache would have to
//          keep room for the longest text that each could become.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 192 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, or with a table
//          [pages, kv_heads, page_size, d], in any strides. LSE: [batch, heads, n_q] f32. The workspace as in
//          d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps all that a block does, and d05_dependent how they start.
using decoding::HEAD_DIM;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {};

// Where the keys of a sequence stand. While a tile is on its way a lane knows of one key of the next one in which page
// it is, and which row there; so the table is asked a step ahead, and never behind the last key.
struct Pages {
  const int* table;  // of this sequence
  int n_k, size;
  int page, row;  // of key `lane % 16` of the tile

  __device__ __forceinline__ Pages(const CacheParams& p, int sequence, int n_k)
      : table(p.block_table + int64_t(sequence) * p.most_pages), n_k(n_k), size(p.page_size) {}
  __device__ __forceinline__ int64_t begin(const ForwardParams::Strides&, int) const { return 0; }
  __device__ __forceinline__ void look_up(int first_key LADDER_SITE_PARAMETER) {
    const int key = first_key + threadIdx.x % 16, number = key / size;
    row = key - number * size;
    page = key < n_k ? ld_global_s32(table + number LADDER_SITE) : 0;
  }
  __device__ __forceinline__ int64_t offset(const ForwardParams::Strides& strides,
                                            decoding::TileKey key LADDER_SITE_PARAMETER) const {
    return int(shfl(page, key.of_tile LADDER_SITE)) * strides.batch +
           int(shfl(row, key.of_tile LADDER_SITE)) * strides.row;
  }
};

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int shares) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  // No fewer than none, and no more than there is room for, whatever the lengths say.
  const int n_k = p.cache_seqlens == nullptr ? p.n_k : max(min(ld_global_s32(p.cache_seqlens + blockIdx.z), p.n_k), 0);
  // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V,
  // STORE    and what a share leaves to be joined: nothing, if there are fewer steps than shares.
  if constexpr (IN_PAGES) {
    decoding::attend<C>(p, Pages(p, blockIdx.z, n_k), shares);
  } else {
    decoding::attend<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As many shares of each sequence as if it were the longest. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const int shares = decoding::shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p, shares);
  if (shares > 1) decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
