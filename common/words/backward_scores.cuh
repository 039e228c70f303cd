// The parts of a gradient kernel that knows what is done to a score: what 89_chainrule spells out, and 90 and all
// behind say.
#pragma once
#include "common/words/backward_models.cuh"

namespace backward::models {
inline namespace LADDER_OF_BUILD {

// What became of a score before the softmax: P = exp(scale * function(Q K^T) - LSE). `distance`: how far a key lies
// before the query's own, negative behind it. `slope`: the head's of p.alibi_slopes, over scale. Hidden scores, which
// are -infinity, stay that (89_chainrule).
template <bool CAPPED>
struct Score {
  static constexpr bool CHANGES = true;
  struct Changed {
    float score, derivative;
  };
  float inner, outer;

  __device__ __forceinline__ explicit Score(const ScoreGradientParams& p)
      : inner(p.softmax_scale / p.softcap), outer(p.softcap / p.softmax_scale) {}
  __device__ __forceinline__ Changed operator()(float score, float distance, float slope) const {
    float derivative = 1;
    if (CAPPED) {
      const float tanh = tanh_approx(score * inner);
      score = fminf(outer * tanh, score + 3e38f);  // a hidden one is -infinity, and stays that
      derivative = 1 - tanh * tanh;
    }
    return {score - slope * fabsf(distance), derivative};  // ALiBi
  }
};
struct Unchanged {
  static constexpr bool CHANGES = false;  // it costs nothing
  __device__ __forceinline__ explicit Unchanged(const ScoreGradientParams&) {}
};

// In units of Q K^T; 0 where there are none, or of no head (89_chainrule).
__device__ __forceinline__ float slope_of(const ScoreGradientParams& p, int head LADDER_SITE_PARAMETER) {
  return p.alibi_slopes != nullptr && head < p.heads
             ? ld_global_f32(p.alibi_slopes + head LADDER_SITE) / p.softmax_scale
             : 0;
}

__device__ __forceinline__ int rows_of_sequence(const int* cu_seqlens, int sequence, int n LADDER_SITE_PARAMETER) {
  return begin_of(cu_seqlens, sequence + 1, n LADDER_SITE) - begin_of(cu_seqlens, sequence, n LADDER_SITE);
}

// A sink is a key whose value is 0, so its dP is 0, and its dS is P (0 - D): summed over a sequence's queries, always
// in the same order (89_chainrule).   Grid (sequences, heads).
template <class C>
__global__ void __launch_bounds__(ROW_THREADS) sink_gradients(ScoreGradientParams p) {
  const int sequence = blockIdx.x, head = blockIdx.y, lane = threadIdx.x % 32;
  const int n_q = rows_of_sequence(p.cu_seqlens_q, sequence, p.n_q), tile = first_tile_of<C>(p, sequence);
  const float sink = ld_global_f32(p.sinks + head) / p.softmax_scale;
  float sum = 0;
  for (int query = threadIdx.x; query < n_q; query += ROW_THREADS) {
    const float* const rows = rows_of<C>(p, tile + query / C::BR, head) + in_lane_order(query % C::BR);
    const float weight = ex2_approx((sink + ld_global_f32(rows)) * p.softmax_scale * LOG2E);
    sum += weight * ld_global_f32(rows + C::BR);
  }
  for (int apart = 16; apart > 0; apart /= 2) sum += shfl_xor(sum, apart);
  if (lane == 0) st_shared_b32(smem_base() + threadIdx.x / 32 * 4, __float_as_uint(sum));
  __syncthreads();  // safe to read the warps' sums
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < ROW_THREADS / 32; ++warp) sum += __uint_as_float(ld_shared_b32(smem_base() + warp * 4));
  st_global_f32(p.dsinks + sequence * p.heads + head, sum);
}

}  // namespace LADDER_OF_BUILD
}  // namespace backward::models
