// Parts of the kernels of decoding/: what d01_packed and d02_split spell out, and later rungs say. T is the element, C
// the rung's Config. Members that execute instructions take the kernel's line along for the emulator, as words do;
// `join` is a kernel, which has lines of its own.
#pragma once
#include "common/gpu.cuh"
#include "common/words/forward.cuh"

namespace decoding {
namespace {

using forward::LOG2E;
using Seen = forward::Seen<forward::Mask::window>;  // without a window its sides are as long as the rows

constexpr int PANEL_ROW_BYTES = 128;  // 64 columns, the most that the engine swizzles

// d01_packed, and with shares d02_split. The rows of a head of keys: query 0 of all heads of its group, then query 1
// ... A block has BR of them.
struct Rows {
  int group, first_head, first, end;  // of this block; of all

  template <class C>
  __device__ __forceinline__ static Rows of_block(const ModelParams& p, int shares) {
    const int group = p.heads / p.kv_heads;
    return {group, int(blockIdx.y) * group, int(blockIdx.x) / shares * C::BR, p.n_q * group};
  }
  __device__ __forceinline__ int query(int row) const { return min(first + row, end - 1) / group; }
  __device__ __forceinline__ int head(int row) const { return first_head + (first + row) % group; }
  __device__ __forceinline__ bool has(int row) const { return first + row < end; }
};

// d01_packed. Q, BR rows of D columns, 16 B a lane, swizzled as the copy engine does: chunk c of row r of a panel
// stands at c ^ r % 8. Rows and columns that are nobody's are zeros. By the warps that multiply, who wait for each
// other.
template <class C, int D>
__device__ __forceinline__ void load_rows(const ModelParams& p, const Rows& rows, int sequence,
                                          uint32_t smem_Q LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  constexpr int ROW_CHUNKS = D / 8;
  const T* const Q = static_cast<const T*>(p.Q) + sequence * p.Q_strides.batch;
#pragma unroll
  for (int i = 0; i < C::BR * ROW_CHUNKS / (C::WARPS * 32); ++i) {
    const int row = (i * C::WARPS * 32 + threadIdx.x) / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
    uint4 eight = {0, 0, 0, 0};
    if (rows.has(row) && chunk * 8 < p.d)
      eight = ld_global_v4(Q + rows.head(row) * p.Q_strides.head + rows.query(row) * p.Q_strides.row +
                           chunk * 8 LADDER_SITE);
    const uint32_t panel = smem_Q + chunk / 8 * C::BR * PANEL_ROW_BYTES;
    st_shared_v4(panel + row * PANEL_ROW_BYTES + ((chunk % 8) ^ (row % 8)) * 16, eight LADDER_SITE);
  }
  fence_proxy_async_shared(LADDER_SITE_ALONE);       // products will find what this lane has stored
  named_barrier_sync(1, C::WARPS * 32 LADDER_SITE);  // safe to read Q: all have stored their part of it
}

// d01_packed. Which keys of a tile that begins with `first_key` a lane's two rows do not see.
template <int TILES>
__device__ __forceinline__ void hide_unseen(float (&S)[TILES][4], const Seen& seen, const int (&query)[2],
                                            int first_key) {
  const int lane = threadIdx.x % 32;
  const int from[2] = {seen.first_of(query[0]) - first_key, seen.first_of(query[1]) - first_key};
  const int to[2] = {seen.end_of(query[0]) - first_key, seen.end_of(query[1]) - first_key};
#pragma unroll
  for (int key_tile = 0; key_tile < TILES; ++key_tile) {
    for (int i = 0; i < 4; ++i) {
      const int key = key_tile * 8 + FragmentC::col(lane, i);
      if (key < from[i / 2] || key >= to[i / 2]) S[key_tile][i] = -INFINITY;
    }
  }
}

// d02_split. What a share knows of a row of O, number `row` of all.
template <int D>
struct Part {
  float *O, *max, *sum;

  __device__ __forceinline__ Part(const ModelParams& p, int share, int shares, int64_t row) {
    const int64_t rows = int64_t(p.batch) * p.heads * p.n_q, number = share * rows + row;
    float* const parts = static_cast<float*>(p.workspace);
    O = parts + number * D;
    max = parts + shares * rows * D + number * 2, sum = max + 1;
  }
};

// d01_packed, and of several shares d02_split. What a share has found, to O and LSE, or to the workspace. A lane has
// two columns of eight. A row that sees no key is 0, whatever V holds; a share's sum and its O are 0 then.
template <class C, class Softmax, int TILES>
__device__ __forceinline__ void store_rows(const ModelParams& p, const Rows& rows, int sequence, int share, int shares,
                                           const int (&lane_row)[2], const int (&query)[2], const Softmax& softmax,
                                           const float (&O_frag)[TILES][4] LADDER_SITE_PARAMETER) {
  using T = typename C::Element;
  const uint32_t lane = threadIdx.x % 32;
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half] LADDER_SITE);
    if (!rows.has(lane_row[half])) continue;
    const int head = rows.head(lane_row[half]);
    const int64_t row = (int64_t(sequence) * p.heads + head) * p.n_q + query[half];
    if (shares > 1) {
      const Part<TILES * 8> part(p, share, shares, row);
#pragma unroll
      for (int column_tile = 0; column_tile < TILES; ++column_tile) {
        const float* const two = &O_frag[column_tile][2 * half];
        for (int i = 0; i < 2; ++i)
          st_global_f32(part.O + column_tile * 8 + FragmentC::col(lane, i), sum != 0 ? two[i] : 0 LADDER_SITE);
      }
      if (lane % 4 == 0)
        st_global_f32(part.max, softmax.largest(half) LADDER_SITE), st_global_f32(part.sum, sum LADDER_SITE);
      continue;
    }
    const float by = 1.0f / sum;
    T* const O_row =
        static_cast<T*>(p.O) + sequence * p.O_strides.batch + head * p.O_strides.head + query[half] * p.O_strides.row;
#pragma unroll
    for (int column_tile = 0; column_tile < TILES; ++column_tile) {
      const float* const two = &O_frag[column_tile][2 * half];
      if (column_tile * 8 < p.d)
        st_global_b32(O_row + column_tile * 8 + FragmentC::col(lane, 0),
                      sum != 0 ? pack<T>(two[0] * by, two[1] * by) : 0 LADDER_SITE);
    }
    if (p.LSE != nullptr && lane % 4 == 0)
      st_global_f32(p.LSE + row, sum != 0 ? softmax.largest(half) / LOG2E + logf(sum) : -INFINITY LADDER_SITE);
  }
}

// d02_split. JOIN  A row of O from what the shares know of it: weights that are relative to a share's maximum become
// relative to the largest. Each warp takes every fourth share, a lane four columns; then a thread takes a column of the
// four. Grid (n_q, heads, batch).
constexpr int JOIN_WARPS = 4;
struct Factors {
  float mine, its;
};
struct Joined {
  float max = forward::NO_KEY, sum = 0;

  // What both sides have to be multiplied by, before their O is added. Maxima of one score that two shares have met may
  // be a rounding apart, which is 8 where the score is 10^8: they count as one.
  __device__ __forceinline__ Factors add(float other_max, float other_sum) {
    const float largest = fmaxf(max, other_max), apart = fabsf(max - other_max);
    const float lower = apart > 0x1p-23f * fabsf(largest) ? ex2_approx(-apart) : 1;
    const Factors by = max < other_max ? Factors{lower, 1} : Factors{1, lower};
    max = largest, sum = sum * by.mine + other_sum * by.its;
    return by;
  }
};
template <class T, int D>
__global__ void __launch_bounds__(JOIN_WARPS * 32) join(ModelParams p, int shares) {
  constexpr int FLOATS = D + 2;
  static_assert(D == 4 * 32);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, smem = smem_base();
  smem_name(smem, JOIN_WARPS * FLOATS * 4, "parts", FLOATS * 4);
  const int64_t row = (int64_t(blockIdx.z) * p.heads + blockIdx.y) * p.n_q + blockIdx.x;
  Joined all;
  float O[4] = {};
#pragma unroll 4
  for (int share = warp; share < shares; share += JOIN_WARPS) {
    const Part<D> part(p, share, shares, row);
    const float its_max = ld_global_f32(part.max), its_sum = ld_global_f32(part.sum);
    const uint4 four = ld_global_v4(part.O + lane * 4);
    const Factors by = all.add(its_max, its_sum);
    const uint32_t its[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) O[i] = O[i] * by.mine + __uint_as_float(its[i]) * by.its;
  }
  const uint32_t warp_part = smem + warp * FLOATS * 4;
  for (int i = 0; i < 4; ++i) st_shared_b32(warp_part + (lane * 4 + i) * 4, __float_as_uint(O[i]));
  if (lane == 0) st_shared_b32(warp_part + D * 4, __float_as_uint(all.max));
  if (lane == 0) st_shared_b32(warp_part + D * 4 + 4, __float_as_uint(all.sum));
  __syncthreads();  // safe to read what the other warps have

  const auto number = [&](int of, int i) { return __uint_as_float(ld_shared_b32(smem + (of * FLOATS + i) * 4)); };
  Joined four;
  float column = 0;
  for (int of = 0; of < JOIN_WARPS; ++of) {
    const Factors by = four.add(number(of, D), number(of, D + 1));
    column = column * by.mine + number(of, threadIdx.x) * by.its;
  }
  const ForwardParams::Strides& strides = p.O_strides;
  T* const O_row =
      static_cast<T*>(p.O) + blockIdx.z * strides.batch + blockIdx.y * strides.head + blockIdx.x * strides.row;
  if (int(threadIdx.x) < p.d) st_global_rounded(O_row + threadIdx.x, four.sum != 0 ? column / four.sum : 0.0f);
  if (p.LSE != nullptr && threadIdx.x == 0)
    st_global_f32(p.LSE + row, four.sum != 0 ? four.max / LOG2E + logf(four.sum) : -INFINITY);
}

template <class T, int D>
void start_join(Device& device, const ModelParams& p, int shares) {
  launch(device, join<T, D>, dim3(p.n_q, p.heads, p.batch), dim3(JOIN_WARPS * 32), JOIN_WARPS * (D + 2) * 4, p, shares);
}

}  // namespace
}  // namespace decoding
