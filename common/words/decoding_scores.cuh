// What models do to a score when they write, a part of kernels of decoding/: what d16_functions spells out, and later
// rungs say.
#pragma once
#include "common/words/decoding.cuh"

namespace decoding {
namespace {

// d16_functions. O = softmax(scale * function(Q K^T)) V, of a tile of rows. A lane's
// two rows may be of two heads, so it has two slopes.
struct ModelFunction {
  float scale, inner, slope[2];
  int from_key;  // of a query's own key to its number
  bool are_capped, are_sloped;

  template <class C>
  __device__ __forceinline__ static ModelFunction of(const CacheScoreParams& p, const Rows& rows,
                                                     int n_k LADDER_SITE_PARAMETER) {
    static_assert(C::BR == 16 || C::BR == 64);
    const bool are_capped = p.softcap > 0, are_sloped = p.alibi_slopes != nullptr;
    ModelFunction function = {are_capped ? p.softcap : p.softmax_scale,
                              are_capped ? p.softmax_scale / p.softcap : 1,
                              {0, 0},
                              n_k - p.n_q,
                              are_capped,
                              are_sloped};
    const int first = C::BR == 64 ? threadIdx.x % 128 / 32 * 16 : 0;
    for (int half = 0; half < 2; ++half) {
      const int row = first + FragmentC::row(threadIdx.x % 32, 2 * half);
      if (are_sloped && rows.has(row))
        function.slope[half] = ld_global_f32(p.alibi_slopes + rows.head(row) LADDER_SITE) / function.scale;
    }
    return function;
  }
  template <int TILES>
  __device__ __forceinline__ void change(float (&S)[TILES][4], const int (&query)[2], int first_key) const {
    if (!are_capped && !are_sloped) return;
#pragma unroll
    for (int key_tile = 0; key_tile < TILES; ++key_tile) {
      for (int i = 0; i < 4; ++i) {
        float& score = S[key_tile][i];
        if (are_capped) score = tanh_approx(score * inner);  // softcap * tanh(score / softcap), but for the factor
        const int key = first_key + key_tile * 8 + FragmentC::col(threadIdx.x % 32, i);
        if (are_sloped) score -= slope[i / 2] * fabsf(float(query[i / 2] + from_key - key));  // ALiBi
      }
    }
  }
};

// d16_functions. A row's sink is one more score, of a key whose V is 0; or of none, if it is -infinity.
__device__ __forceinline__ void add_sink(float sink, float (&O)[4], Joined& found) {
  const Factors by = found.add(fmaxf(sink * LOG2E, forward::NO_KEY), sink != -INFINITY);
  for (float& each : O) each *= by.mine;
}

}  // namespace
}  // namespace decoding
