// p03_online: the online softmax. Each group walks over its keys once, with a maximum and a sum so far, and puts right
//          what it has summed when the maximum grows: no row of scores is kept.
// Before:  p02_coalesced keeps the row for the softmax, which needs its maximum and sum: 4 n bytes, which bound n.
// Block:   one query, 4 warps.  Shared: 8320 B.  Needs d = 128.
// Shapes:  Q, K, V, O: [batch * heads, n, d] f16.
#pragma once
#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128;
constexpr int CHUNKS = 2;  // of 8 halves = 16 B, one vector load: a lane has 16 of a row's 128 columns
constexpr float LOG2E = 1.44269504088896341f;

// A block's warps, its groups of eight lanes, which read a row together, the keys that each group has under way at a
// time, and the block's shared memory: a maximum, a sum and an O of each group. What is unused, only an experiment asks
// for: it leaves less to L1, which is a part of the same store.
template <int WARPS_, int KEYS_, uint32_t UNUSED_BYTES = 0>
struct Config {
  static constexpr int WARPS = WARPS_, THREADS = WARPS * 32, GROUPS = THREADS / 8, KEYS = KEYS_;
  static constexpr uint32_t SMEM_BYTES = 2 * GROUPS * 4 + GROUPS * HEAD_DIM * 4 + UNUSED_BYTES;
};

// Eight halves, as f32.
__device__ __forceinline__ void load_chunk(float (&values)[8], const f16* source) {
  const uint4 chunk = ld_global_v4(source);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) attention(AttentionParams p) {
  constexpr int THREADS = C::THREADS, GROUPS = C::GROUPS;
  static_assert(THREADS == HEAD_DIM, "each thread stores one column of O");

  const int group = threadIdx.x / 8, eighth = threadIdx.x % 8;  // of a row: columns eighth * 8 to + 7, and 64 further
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM;
  const size_t block_row = head + size_t(blockIdx.x) * HEAD_DIM;  // this block's row of Q and O
  const uint32_t smem_max = smem_base(), smem_sum = smem_max + GROUPS * 4, smem_O = smem_sum + GROUPS * 4;
  smem_name(smem_max, 2 * GROUPS * 4, "max, sum");
  smem_name(smem_O, GROUPS * HEAD_DIM * 4, "O");

  // LOAD  K and V are read where they are needed, straight from global memory.
  float Q_part[CHUNKS][8];
  for (int chunk = 0; chunk < CHUNKS; ++chunk) load_chunk(Q_part[chunk], p.Q + block_row + eighth * 8 + chunk * 64);

  // QK    Eight lanes compute a score: each sums 16 products, and three exchanges complete the sum. All lanes of a
  //       warp take part in an exchange, so past the last key they repeat it.
  float O_part[CHUNKS][8] = {}, group_max = -INFINITY, group_sum = 0.0f;  // of the keys that this group has seen
#pragma unroll C::KEYS
  for (int first = 0; first < p.n; first += GROUPS) {
    const int key = first + group < p.n ? first + group : p.n - 1;
    float score = 0.0f;
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      float K_part[8];
      load_chunk(K_part, p.K + head + size_t(key) * HEAD_DIM + eighth * 8 + chunk * 64);
      for (int i = 0; i < 8; ++i) score += Q_part[chunk][i] * K_part[i];
    }
    score += shfl_xor(score, 1);
    score += shfl_xor(score, 2);
    score += shfl_xor(score, 4);
    score *= p.softmax_scale;

    // SOFTMAX  A larger maximum makes all earlier weights smaller, by one factor: the sum and O are put right with it.
    const float new_max = fmaxf(group_max, score);
    const float weight = first + group < p.n ? ex2_approx((score - new_max) * LOG2E) : 0.0f;
    const float correction = ex2_approx((group_max - new_max) * LOG2E);  // <= 1; 0 for the first key
    group_max = new_max;
    group_sum = group_sum * correction + weight;

    // PV
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      float V_part[8];
      load_chunk(V_part, p.V + head + size_t(key) * HEAD_DIM + eighth * 8 + chunk * 64);
      for (int i = 0; i < 8; ++i) O_part[chunk][i] = O_part[chunk][i] * correction + weight * V_part[i];
    }
  }

  // STORE  The groups' maxima, sums and O meet in shared memory, and each thread completes one column by the same rule.
  if (eighth == 0) {
    st_shared_b32(smem_max + group * 4, __float_as_uint(group_max));
    st_shared_b32(smem_sum + group * 4, __float_as_uint(group_sum));
  }
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    for (int i = 0; i < 8; i += 4) {
      const uint4 four_sums = {__float_as_uint(O_part[chunk][i]), __float_as_uint(O_part[chunk][i + 1]),
                               __float_as_uint(O_part[chunk][i + 2]), __float_as_uint(O_part[chunk][i + 3])};
      st_shared_v4(smem_O + (group * HEAD_DIM + eighth * 8 + chunk * 64 + i) * 4, four_sums);
    }
  }
  __syncthreads();  // safe to read the groups' results: every thread has stored its part
  float row_max = -INFINITY, row_sum = 0.0f, sum = 0.0f;
  for (int g = 0; g < GROUPS; ++g) row_max = fmaxf(row_max, __uint_as_float(ld_shared_b32(smem_max + g * 4)));
  for (int g = 0; g < GROUPS; ++g) {
    const float correction = ex2_approx((__uint_as_float(ld_shared_b32(smem_max + g * 4)) - row_max) * LOG2E);
    row_sum += correction * __uint_as_float(ld_shared_b32(smem_sum + g * 4));
    sum += correction * __uint_as_float(ld_shared_b32(smem_O + (g * HEAD_DIM + threadIdx.x) * 4));
  }
  st_global_f16(p.O + block_row + threadIdx.x, to_f16(sum / row_sum));
}

// LAUNCH  One block per query of one head. The pointers of `p` belong to the device.
template <class C>
void run(Device& device, const AttentionParams& p) {
  launch(device, attention<C>, dim3(p.n, p.batch_heads), dim3(C::THREADS), C::SMEM_BYTES, p);
}

}  // namespace
