// d05_dependent: what comes behind the reading is short. The launch that joins is there before it is needed, and has
// less to join.
// Before:  in d04_warps the second launch begins when the last block of the first has ended. Of 7 us at 1024 keys less
//          than 1 is reading.
// Tile:    16x16 for each of 8 warps, or 32x16 where there are more rows; a block on an SM.
//          Shared: 192 KiB (a warp 24: K, V 3 x 4 each).
//          Needs d <= 128, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90.
// Shapes:  Q, O: [batch, heads, n_q, d] f16 or bf16; K, V: [batch, kv_heads, n_k, d] of that type, in any strides.
//          LSE: [batch, heads, n_q] f32. The workspace as in d02_split.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding.cuh"

namespace {

// 41_rows spells out no_keys, d02_split the join, and d04_warps all that a block does.
using decoding::HEAD_DIM;

template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : decoding::WarpTile<T, BR, BC, WARPS, STAGES, 1> {};

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM) flash_attention(ModelParams p, int shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  // LOAD     Each warp has tiles of its own, as d04 spells out, and so are
  // QK       the scores,
  // SOFTMAX  the weights,
  // PV       their sums with V,
  // STORE    and what a share leaves to be joined.
  decoding::attend<C>(p, decoding::InOnePiece{p.n_k}, shares);
}

// How many shares, and by how many warps a row of theirs is joined.
constexpr int MOST_SHARES = 160, JOIN_WARPS = 16;
template <class C>
int shares_of(int64_t blocks, int n_k, int multiprocessors) {
  return decoding::shares_of<C>(blocks, n_k, min(multiprocessors, MOST_SHARES), MOST_SHARES);
}

// LAUNCH  The blocks of a tile of BR rows of a head of keys, one behind the other, and if they are several the join,
//         whose blocks may find their places while shares still read. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const ModelParams& p, int rows) {
  const int tiles = (rows + C::BR - 1) / C::BR;
  const int shares = shares_of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch(device, flash_attention<C>, dim3(tiles * shares, p.kv_heads, p.batch), dim3(C::THREADS), C::SMEM_BYTES, p,
         shares);
  if (shares > 1) decoding::start_join_early<typename C::Element, HEAD_DIM, JOIN_WARPS>(device, p, shares);
}

template <class C>
void run(Device& device, const ModelParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  const int rows = p.n_q * (p.heads / p.kv_heads);
  rows <= C::BR ? start<C>(device, p, rows) : start<typename C::Wide>(device, p, rows);
}

}  // namespace
