// d18_last: one launch. The last block of those that share a head's keys joins what all have left; a count in the
// workspace, which may have held anything, says who that is.
// Before:  in d06_pages a second launch joins, and that begins to read when the first has ended.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 192 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  as d06_pages. The workspace as in d02_split, and behind it a word for each tile of rows of a head of keys.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, d04_warps all that a block does, d05_dependent how they start, and
// d06_pages where the keys stand.
using decoding::HEAD_DIM;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {};

// How many parts one block joins at most, rows times shares. 64 KiB of O are a microsecond for one SM; beyond, a second
// launch has more of them.
constexpr int MOST_PARTS = 128, AT_ONCE = 16;  // and of how many it asks for at once

// A count begins at 0, and nobody has stored that there: the memory holds what was in it. So a share does not add 1 but
// -46499. Up to 160 times that is a NaN in f32, f16 and bf16, and no small integer; what is none of these is nobody's
// count. INVERSE says which one it is: ONE * INVERSE = 1 modulo 2^32.
constexpr uint32_t ONE = 0u - 46499, INVERSE = 0xdce9d9f5;
static_assert(ONE * INVERSE == 1 && 46499 * decoding::MOST_SHARES < 1 << 23);

// One more of so many shares is there. Whether all are, and then the count is 0, for the next launch.
__device__ __forceinline__ bool is_last(uint32_t* count, uint32_t shares) {
  fence_acq_rel_gpu();  // hands on what the block has stored,
  uint32_t mine = ONE, there = atom_global_add_u32(count, ONE);
  if (there * INVERSE >= shares) {                // it was nobody's, so this has not counted
    there = atom_global_inc_u32(count, 0);        // takes away what is there, and leaves 0:
    if (there * INVERSE < shares) mine += there;  // that may be others' by now, and goes back
    fence_acq_rel_gpu();
    there = atom_global_add_u32(count, mine);
  }
  fence_acq_rel_gpu();  // and knows what those before have
  if (there + mine != shares * ONE) return false;
  atom_global_inc_u32(count, 0);
  return true;
}

template <class C>
__device__ __forceinline__ void join_if_last(const CacheParams& p, int shares) {
  const auto rows = decoding::Rows::of_block<C>(p, shares);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sequence = blockIdx.z;
  const int tile = blockIdx.x / shares, tiles = gridDim.x / shares;
  const int64_t parts = shares * decoding::row_number(p, p.batch, 0, 0);
  uint32_t* const counts = static_cast<uint32_t*>(p.workspace) + parts * (HEAD_DIM + 2);
  __syncthreads();  // safe to tell of the block's parts: all warps have stored theirs; safe to overwrite shared memory
  if (threadIdx.x == 0)
    st_shared_b32(smem_base(), is_last(counts + (int64_t(sequence) * p.kv_heads + blockIdx.y) * tiles + tile, shares));
  __syncthreads();  // safe to read what thread 0 knows, and what it knows of
  if (ld_shared_b32(smem_base()) == 0) return;

  // STORE  A warp joins a row, a lane four columns.
  for (int row = warp; row < C::BR && rows.has(row); row += C::WARPS) {
    const int64_t number = decoding::row_number(p, sequence, rows.head(row), rows.query(row));
    decoding::Joined all;
    float O[4] = {};
    for (int first = 0; first < shares; first += AT_ONCE) {
      float its_max[AT_ONCE], its_sum[AT_ONCE];
      uint4 its_O[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (first + i >= shares) break;
        const decoding::Part<HEAD_DIM> part(p, first + i, shares, number);
        its_max[i] = ld_global_f32(part.max), its_sum[i] = ld_global_f32(part.sum);
        its_O[i] = ld_global_v4(part.O + lane * 4);
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (first + i >= shares) break;
        const decoding::Factors by = all.add(its_max[i], its_sum[i]);
        const uint32_t its[4] = {its_O[i].x, its_O[i].y, its_O[i].z, its_O[i].w};
        for (int c = 0; c < 4; ++c) O[c] = O[c] * by.mine + __uint_as_float(its[c]) * by.its;
      }
    }
    decoding::store_row<typename C::Element>(p, sequence, rows.head(row), rows.query(row), O, all);
  }
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(CacheParams p, int shares, bool joins) {
  static_assert(C::BC == 16);
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V, and what a share leaves to be joined.
  if constexpr (IN_PAGES) {
    decoding::attend<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    decoding::attend<C>(p, decoding::InOnePiece{n_k}, shares);
  }
  if (joins) join_if_last<C>(p, shares);
}

// LAUNCH  As many shares of each sequence as if it were the longest. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheParams& p) {
  const int rows = decoding::rows_per_kv_head(p), tiles = (rows + C::BR - 1) / C::BR;
  const int shares = decoding::shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  const bool joins = shares > 1 && min(rows, C::BR) * shares <= MOST_PARTS;
  launch(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
         dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p, shares, joins);
  if (shares > 1 && !joins)
    decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares);
}

template <class C>
void run(Device& device, const CacheParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
