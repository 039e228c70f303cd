// g02_kept: V stays in registers, as it does in 84_meanwhile with 64 columns.
// Before:  in g01_narrow dP reads V of shared memory for each tile of queries anew, as many bytes as of dO.
// Tile:    64x128, 8 warps and 4 that copy and add.  Shared: 226 KiB (K, V 32 each; Q, dO, LSE, D 3 x 32.5; dS 2 x 16;
//          dQ 32).
//          Needs d <= 96, rows that begin at multiples of 16 B, heads % kv_heads == 0, sm_90a.
// Shapes:  Q, O, dO, dQ: [batch, heads, n_q, d] f16 or bf16; K, V, dK, dV: [batch, kv_heads, n_k, d] of that type, in
//          any strides; a gradient lies as its tensor, dO as O.   LSE: [batch, heads, n_q] f32.
//          Or [total_q, heads, d], [total_k, kv_heads, d], LSE [heads, total_q]; with cu_seqlens, [batch + 1] each.
//          In the workspace the list, [batch] Sequences; behind it for each tile of BR queries and each head the sum of
//          dQ, 96 of BR * 128 f32 as lanes hold them, and -LSE and -D, [2, BR] f32.
#pragma once
#include "common/gpu.cuh"
#include "common/words/backward_backwards.cuh"

namespace {

// 94_backwards spells out the kernel and its launches, 91_afterwards the walk.
using namespace backward::models;

constexpr int HEAD_DIM = 128;

// In shared memory rows have 128 columns, and zeros behind d. Each half of dQ is 64 columns: of the second one 32 are
// added to the sum. V is 24 registers, of 32 that dK and dV of 96 columns leave.
template <class T, int BR, int BC, int WARPS, int STAGES>
struct Config : Walk<T, HEAD_DIM, BR, BC, WARPS, STAGES, 1> {
  static constexpr bool KEEPS_V = true;
  static constexpr int COLUMNS = 96, SUM_COLUMNS = COLUMNS, COLUMN_TILES = COLUMNS / 8, D_SLICES = COLUMNS / 16;
};

template <class C>
void run(Device& device, const ModelGradientParams& p) {
  start<C>(device, p);
}

}  // namespace
