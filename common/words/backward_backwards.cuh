// A gradient kernel whose tiles' dQ and dK are made in the next tile's step, and its launches: what 94_backwards spells
// out, and g01 and all behind say.
#pragma once
#include "common/words/backward_afterwards.cuh"

namespace backward::models {
inline namespace LADDER_OF_BUILD {

// 94_backwards. dK and dV of BC keys, over all tiles of queries of all heads of their group, and what these keys add to
// dQ.
// Grid (tiles of keys * kv_heads).
template <class C, bool VARLEN>
__global__ void __launch_bounds__(C::THREADS, 1)
    gradients(ModelGradientParams p, const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, const __grid_constant__ TensorMap dO_map,
              const __grid_constant__ TensorMap dK_map, const __grid_constant__ TensorMap dV_map) {
  constexpr int WARPS = C::WARPS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  Keys<C> keys;
  if (!keys.find(p)) return;

  const Smem<C> smem;
  smem.name();
  if (threadIdx.x == 0) smem.init();
  __syncthreads();  // safe to use the barriers

  // Queries before these tiles, and behind them, see none of the block's keys. There may be no tile at all.
  const SeersNearby seers(p, keys.sequence.n_q, keys.sequence.n_k);
  const int first_tile = seers.first_tile<C>(keys.first_key), end_tile = seers.end_tile<C>(keys.first_key);
  const int group = p.heads / p.kv_heads, tiles = group * (end_tile - first_tile);

  // LOAD  K and V once; then a tile of queries whenever a stage is empty.
  if (warp >= WARPS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    if (threadIdx.x == WARPS * 32)
      load<VARLEN>(p, smem, Q_map, K_map, V_map, dO_map, keys, group, first_tile, end_tile, tiles);
    // STORE  dQ of a tile whenever a warpgroup has stored its half.
    if (const uint32_t half = warp - WARPS - 1; half < 2 && lane == 0)
      add_dQ(p, smem, half, keys, group, first_tile, end_tile, tiles);
    return;
  }
  setmaxnreg_inc<CONSUMER_REGISTERS>();  // waits until the producer has given its registers back
  differentiate_afterwards<VARLEN>(p, smem, keys, seers, first_tile, end_tile, tiles, dK_map, dV_map);
}

// 94_backwards. Who goes through all tiles of queries backwards, and all heads of one before the next: what was
// written last lies in the L2 cache, and is asked for first. Walks begin with the first tiles, and end with the last.
// Grid (tiles of queries * heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) deltas_backwards(ModelGradientParams p) {
  const int number = gridDim.x - 1 - blockIdx.x, tile = number / p.heads;
  prepare_tile(p, QueryTile<C>(p, tile), tile, number % p.heads);
}
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) query_gradients_backwards(ModelGradientParams p) {
  const int number = gridDim.x - 1 - blockIdx.x;
  finish_tile<C>(p, number / p.heads, number % p.heads);
}

// LAUNCH  94_backwards. The list, D and zeros first, dQ last. The pointers of `p` belong to the device and are
//         multiples of 16 B, as are strides.
template <class C, bool VARLEN>
void start(Device& device, const ModelGradientParams& p) {
  const auto map = [&](const void* tensor, const ModelGradientParams::Strides& strides, int heads, int n,
                       uint32_t rows) { return tile_map<C, VARLEN>(device, p, tensor, strides, heads, n, rows); };
  const dim3 rows_grid(all_tiles<C::BR>(p.cu_seqlens_q, p.batch, p.n_q, p.total_q) * p.heads);
  launch(device, plan<C, SeersNearby>, dim3(1), dim3(ROW_THREADS), 0, p);
  launch(device, deltas_backwards<C>, rows_grid, dim3(ROW_THREADS), 0, p);
  if (p.total_k > 0)
    launch(device, gradients<C, VARLEN>, dim3(all_tiles<C::BC>(p.cu_seqlens_k, p.batch, p.n_k, p.total_k) * p.kv_heads),
           dim3(C::THREADS), C::SMEM_BYTES, p, map(p.Q, p.Q_strides, p.heads, p.n_q, C::BR),
           map(p.K, p.K_strides, p.kv_heads, p.n_k, C::BC), map(p.V, p.V_strides, p.kv_heads, p.n_k, C::BC),
           map(p.dO, p.O_strides, p.heads, p.n_q, C::BR), map(p.dK, p.K_strides, p.kv_heads, p.n_k, 16),
           map(p.dV, p.V_strides, p.kv_heads, p.n_k, 16));
  launch(device, query_gradients_backwards<C>, rows_grid, dim3(ROW_THREADS), 0, p);
}

template <class C>
void start(Device& device, const ModelGradientParams& p) {
  p.cu_seqlens_q != nullptr ? start<C, true>(device, p) : start<C, false>(device, p);
}

}  // namespace LADDER_OF_BUILD
}  // namespace backward::models
