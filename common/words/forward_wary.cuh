// The softmax of a forward kernel whose scores may be wild: what m07_wary spells out, and all behind that are wary say.
#pragma once
#include "common/words/forward.cuh"

namespace forward {
namespace {

// m07_wary. How far a score may outgrow its row's maximum while a warp is careful, in log2 units: then no sum is near
// its limit.
template <class T>
constexpr float RAISE_ABOVE = RESCALE_ABOVE;
template <>
constexpr float RAISE_ABOVE<bf16> = 56;
constexpr int CALM = 2;  // tiles of queries without a surprise, after which a warp is careful no more

// m07_wary. Softmax, with what 33_remember, 36_bits and 37_plain found.
template <class T, int BC>
struct WarySoftmax : Softmax<T, BC> {
  using Base = Softmax<T, BC>;
  using Base::careful, Base::limit, Base::max, Base::rescale, Base::scale_log2, Base::sum;
  using typename Base::Scores, typename Base::Weights;
  int calm = CALM;  // so many tiles of queries ago a later tile of keys raised a maximum

  __device__ __forceinline__ void begin(float sink, bool counts) {
    Base::begin(sink, counts);
    careful |= calm < CALM;
    ++calm;
  }
  // The bits of floats, taken as integers, are in the floats' order, unless both are negative. So this is the largest
  // of a lane's scores of a row, or some negative one where all are.
  __device__ __forceinline__ static float largest_bits(Scores S, int lane_row) {
    int bits[2] = {1 << 31, 1 << 31};  // two chains: each next maximum waits for the last one of its chain
#pragma unroll
    for (int key_tile = 0; key_tile < BC / 8; ++key_tile)
      bits[key_tile % 2] = max3_s32(bits[key_tile % 2], __float_as_int(S[key_tile][2 * lane_row]),
                                    __float_as_int(S[key_tile][2 * lane_row + 1]));
    return __int_as_float(max3_s32(bits[0], bits[0], bits[1]));
  }
  // Raises the maxima of a warp in which a score has outgrown its row's. A negative one is not the largest, and where
  // the maximum is far below 0 it could be outgrown all the same. A row that has met a huge score always asks.
  __device__ __forceinline__ void raise(Scores S LADDER_SITE_PARAMETER) {
    float to[2];
    bool unsure = false;
    for (int lane_row = 0; lane_row < 2; ++lane_row) {
      const float score = largest_bits(S, lane_row);
      unsure |= score < 0 && max[lane_row] < -RAISE_ABOVE<T>;
      to[lane_row] = score * scale_log2;
    }
    rescale = vote_any(unsure || limit < 0 || fmaxf(to[0] - max[0], to[1] - max[1]) > RAISE_ABOVE<T> LADDER_SITE);
    if (!rescale) return;
    if (unsure) {
      for (int lane_row = 0; lane_row < 2; ++lane_row) to[lane_row] = lane_max(S, lane_row) * scale_log2;
    }
    Base::raise_max(to LADDER_SITE);
  }
  // The whole warp: an exchange needs it.
  __device__ __forceinline__ void weigh(Scores S, Weights P, bool is_first LADDER_SITE_PARAMETER) {
    bool sure = rescale = false;
    float tile_sum[2];
    if (is_first) Base::look(S, true, {0, 0} LADDER_SITE);
    if (!is_first && careful) {
      raise(S LADDER_SITE);
      sure = !rescale;
    }
    exp2_weights<T>(S, P, scale_log2, max, tile_sum);
    if (!is_first && !sure && vote_any(fmaxf(tile_sum[0], tile_sum[1]) >= limit LADDER_SITE))
      Base::weigh_again(S, P, tile_sum LADDER_SITE);
    for (int lane_row = 0; lane_row < 2; ++lane_row) sum[lane_row] += tile_sum[lane_row];
    rescale &= !is_first;  // then O is 0
    if (rescale) calm = 0;
  }
};

}  // namespace
}  // namespace forward
