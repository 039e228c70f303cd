// d16_functions. What models do to a score before the softmax, they do where they write, too: a softcap, ALiBi, and a
// sink, which only the first share adds.
// Before:  in d15_pairs a score is Q K^T * scale, so such a model is read by a kernel for many queries.
// Tile:    as d15_pairs.
// Shapes:  as d06_pages; alibi_slopes, sinks: [heads] f32, or null.
#pragma once
#include "common/gpu.cuh"
#include "common/words/decoding_pairs.cuh"

namespace {

// 41_rows spells out no_keys, d04_warps what a block does with 16 rows and d12_warpgroups with 64, d06_pages where the
// keys stand, and d15_pairs how blocks share keys and join.
using decoding::HEAD_DIM;

template <class T, int CLUSTER>
struct Config : decoding::PairTile<T, CLUSTER> {};

// As 48_scores has it: O = softmax(scale * function(Q K^T)) V. A lane's two rows may be of two heads, so it has two
// slopes.
struct ModelFunction {
  float scale, inner, slope[2];
  int from_key;  // of a query's own key to its number
  bool are_capped, are_sloped;

  template <class C>
  __device__ __forceinline__ static ModelFunction of(const CacheScoreParams& p, const decoding::Rows& rows, int n_k) {
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
        function.slope[half] = ld_global_f32(p.alibi_slopes + rows.head(row)) / function.scale;
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

// A row's sink is one more score, of a key whose V is 0; or of none, if it is -infinity.
__device__ __forceinline__ void add_sink(decoding::Joined& found, float (&O)[4], float sink) {
  const decoding::Factors by = found.add(fmaxf(sink * decoding::LOG2E, forward::NO_KEY), sink != -INFINITY);
  for (float& each : O) each *= by.mine;
}

template <class C, class Keys>
__device__ __forceinline__ void attend_to_share(const CacheScoreParams& p, const Keys& keys,
                                                const decoding::PairShares& shares) {
  // LOAD     Two blocks that share keys are a cluster, as d15 spells out, and so are
  // QK       the products.
  // SOFTMAX  Before it the scores become what the model makes of them,
  const auto function_of = [&](const decoding::Rows& rows) { return ModelFunction::of<C>(p, rows, keys.n_k); };
  // PV       and then come the sums with V.
  // STORE    The sink comes in with the first share.
  const auto change = [&](const decoding::Rows& rows, int number, int row, float(&O)[4],
                          decoding::Joined& found LADDER_SITE_PARAMETER) {
    if (p.sinks != nullptr && number == 0) add_sink(found, O, ld_global_f32(p.sinks + rows.head(row) LADDER_SITE));
  };
  decoding::attend_in_pairs<C>(p, keys, shares, function_of, change);
}

template <class C, bool IN_PAGES>
__global__ void __launch_bounds__(C::THREADS, C::PER_SM)
    flash_attention(CacheScoreParams p, decoding::PairShares shares) {
  griddepcontrol_launch_dependents();  // safe: who joins waits until this launch is over
  const int n_k = decoding::keys_of(p, blockIdx.z);
  if constexpr (IN_PAGES) {
    attend_to_share<C>(p, decoding::Pages(p, blockIdx.z, n_k), shares);
  } else {
    attend_to_share<C>(p, decoding::InOnePiece{n_k}, shares);
  }
}

// LAUNCH  As in d15. The pointers of `p` belong to the device and are multiples of 16 B, as are strides.
template <class C>
void start(Device& device, const CacheScoreParams& p) {
  const int tiles = (decoding::rows_per_kv_head(p) + C::BR - 1) / C::BR;
  const auto shares =
      decoding::PairShares::of<C>(int64_t(tiles) * p.kv_heads * p.batch, p.n_k, multiprocessors(device));
  launch_clusters(device, p.block_table != nullptr ? flash_attention<C, true> : flash_attention<C, false>,
                  dim3(tiles * shares.count, p.kv_heads, p.batch), dim3(C::THREADS), shares.cluster, C::SMEM_BYTES, p,
                  shares);
  if (!shares.are_joined())
    decoding::start_join_early<typename C::Element, HEAD_DIM, decoding::JOIN_WARPS>(device, p, shares.count);
}

template <class C>
void run(Device& device, const CacheScoreParams& p) {
  if (p.n_k == 0) return forward::start_no_keys<typename C::Element, HEAD_DIM>(device, p);
  decoding::rows_per_kv_head(p) <= C::BR ? start<C>(device, p) : start<typename C::Wide>(device, p);
}

}  // namespace
