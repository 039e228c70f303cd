// Attention of bytes, a part of kernels of fp8/: what f01_e4m3 spells out, and later rungs say.
#pragma once
#include "common/words/forward.cuh"

namespace bytes {
namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROW_BYTES = HEAD_DIM;  // of Q and K: one panel, the most that the engine swizzles; V has 128 keys in one

// f01_e4m3. A head's scales. That of scores times softmax_scale is not 0: hidden ones, -infinity, would be NaN.
struct Scales {
  float of_scores, of_V;
  __device__ __forceinline__ Scales(const ByteInputParams& p, int of_all LADDER_SITE_PARAMETER) {
    const int sequence = of_all / p.heads, head = of_all % p.heads, kv_head = head / (p.heads / p.kv_heads);
    const auto scale = [&](const ByteInputParams::Scales& scales, int head) {
      return ld_global_f32(scales.of + sequence * scales.batch + head * scales.head LADDER_SITE);
    };
    const float product = p.softmax_scale * scale(p.Q_scales, head) * scale(p.K_scales, kv_head);
    of_scores = product == 0 ? 0x1p-80f : product;
    of_V = scale(p.V_scales, kv_head);
  }
};

// f01_e4m3. A product of bytes sums along rows, of both factors: so V's columns must be rows.
template <class C>
__host__ __device__ __forceinline__ int64_t padded(int n_k) {
  return (int64_t{n_k} + C::BC - 1) / C::BC * C::BC;
}

// TURN  (f01_e4m3) A warp takes 32 keys of a head, a lane four columns of them, and writes those as four rows; behind
//       the last key zeros. The order of keys is that of P's registers. A lane has of the scores of 16 keys numbers 2c,
//       2c + 1, 8 + 2c and 9 + 2c (two FragmentC), and a register of A holds four elements that stand side by side: so
//       they do.
template <class C>
__global__ void __launch_bounds__(128) turn_V(ByteInputParams p) {
  const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * 4, tiles = int(padded<C>(p.n_k) / C::BC);
  const int head = blockIdx.x / tiles, first_key = blockIdx.x % tiles * C::BC + warp * 32;
  const uint8_t* const V = static_cast<const uint8_t*>(p.V) + head / p.kv_heads * p.V_strides.batch +
                           head % p.kv_heads * p.V_strides.head + column;
  uint32_t four[32];  // columns of each key
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int key = first_key + i;
    four[i] = key < p.n_k && column < p.d ? ld_global_b32(V + key * p.V_strides.row) : 0;
  }
  uint32_t rows[4][8];  // [column][four keys]
#pragma unroll
  for (int of_16 = 0; of_16 < 32; of_16 += 16) {
    for (int c = 0; c < 4; ++c) {
      const uint32_t *const low = &four[of_16 + 2 * c], *const high = low + 8;
      for (int half = 0; half < 2; ++half) {  // columns 0 and 1, or 2 and 3: of two keys each
        const uint32_t pairs = half == 0 ? 0x5140 : 0x7362;
        const uint32_t two = prmt_b32(low[0], low[1], pairs), others = prmt_b32(high[0], high[1], pairs);
        rows[2 * half][of_16 / 4 + c] = prmt_b32(two, others, 0x5410);
        rows[2 * half + 1][of_16 / 4 + c] = prmt_b32(two, others, 0x7632);
      }
    }
  }
  uint8_t* const turned = static_cast<uint8_t*>(p.workspace) + (int64_t{head} * HEAD_DIM + column) * padded<C>(p.n_k);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    for (int of_16 = 0; of_16 < 2; ++of_16) {
      const uint32_t* const row = &rows[i][of_16 * 4];
      st_global_v4(turned + i * padded<C>(p.n_k) + first_key + of_16 * 16, {row[0], row[1], row[2], row[3]});
    }
  }
}

// LOAD  (f01_e4m3) A tile of queries, and the tiles of keys that its pair sees. A block brings its rows of a tile of K
//       or V to both; the other brings its own here. Alone it brings all of them. One thread's.
template <class C, class Smem>
__device__ __forceinline__ void load(const ByteInputParams& p, const Smem& smem, const forward::Queries& queries,
                                     const TensorMap& Q_map, const TensorMap& K_map,
                                     const TensorMap& V_map LADDER_SITE_PARAMETER) {
  constexpr int BLOCKS = C::BLOCKS, PART = 128 / BLOCKS;
  const int head = queries.head % p.heads, kv_head = head / (p.heads / p.kv_heads), sequence = queries.head / p.heads;
  smem.Q.expect(queries.round LADDER_SITE);
  cp_async_bulk_tensor_4d(smem.Q.tiles + smem.Q.at(queries.round), Q_map, 0, queries.q_tile * C::BR, head, sequence,
                          smem.Q.full_of(queries.round) LADDER_SITE);
  const int part = cluster_rank() * PART, last = queries.first + queries.kv_tiles - 1;
  for (int tile = queries.first; tile <= last + 1; ++tile) {  // K is asked for a tile ahead of V, as it is read
    if (tile <= last) {
      smem.K.claim(tile LADDER_SITE);
      cp_async_bulk_tensor_4d_multicast(smem.K.tiles + smem.K.at(tile) + part * ROW_BYTES, K_map, 0,
                                        queries.in_K(tile) * C::BC + part, kv_head, sequence, smem.K.full_of(tile),
                                        (1 << BLOCKS) - 1 LADDER_SITE);
    }
    if (tile > queries.first) {
      smem.V.claim(tile - 1 LADDER_SITE);
      cp_async_bulk_tensor_4d_multicast(smem.V.tiles + smem.V.at(tile - 1) + part * ROW_BYTES, V_map,
                                        queries.in_K(tile - 1) * C::BC, part, kv_head, sequence,
                                        smem.V.full_of(tile - 1), (1 << BLOCKS) - 1 LADDER_SITE);
    }
  }
}

}  // namespace
}  // namespace bytes
