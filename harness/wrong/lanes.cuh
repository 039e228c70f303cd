// Wrong kernels in the style of p07_tiled, with one key per lane: a step takes eight keys, each of the eight lanes of a row
// computes one whole score and one weight, and the weights go through shared memory. LaneFault::none is right and must be
// accepted.
// One warp, 4 queries; K and V straight from global memory.   Shared: 128 B.   Needs d = 128, n % 8 == 0.
#pragma once
#include "common/gpu.cuh"

namespace {

enum class LaneFault {
  none,         // right
  own_maximum,  // a lane takes out the largest of its own scores, and corrects by it what eight lanes' weights have made
  own_sum,      // a row is divided by the weights of one of its eight lanes
  no_warp_barrier,  // weights are read before the other lanes have stored theirs; a warp is taken to run in step
  early_overwrite   // weights are overwritten while other lanes may still read those of the step before
};

namespace lanes {

constexpr int HEAD_DIM = 128, ROWS = 4, CHUNKS = HEAD_DIM / 8, COLS = HEAD_DIM / 8;
constexpr uint32_t SMEM_BYTES = ROWS * 8 * 4;
constexpr float LOG2E = 1.44269504088896341f;

// Eight halves of a row, as f32.
__device__ __forceinline__ void load_part(float (&values)[8], const f16* source) {
  const uint4 chunk = ld_global_v4(source);
  const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = to_float(f16{static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16))});
}

template <LaneFault FAULT>
__global__ void __launch_bounds__(32) wrong_lanes(AttentionParams p) {
  const uint32_t row = threadIdx.x / 8, column = threadIdx.x % 8;
  const size_t head = size_t(blockIdx.y) * p.n * HEAD_DIM, query = size_t(blockIdx.x) * ROWS + row;
  const uint32_t smem_P = smem_base() + row * 8 * 4;
  smem_name(smem_base(), SMEM_BYTES, "P");
  const auto over_row = [](float value, auto join, bool exchange) {
    for (int mask = 1; exchange && mask < 8; mask *= 2) value = join(value, shfl_xor(value, mask));
    return value;
  };

  float O_frag[COLS] = {}, row_max = -INFINITY, row_sum = 0.0f;
  for (int first = 0; first < p.n; first += 8) {
    float score = 0.0f, Q_part[8], K_part[8], V_part[8];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      load_part(Q_part, p.Q + head + query * HEAD_DIM + c * 8);
      load_part(K_part, p.K + head + (first + column) * HEAD_DIM + c * 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) score += Q_part[i] * K_part[i];
    }
    score *= p.softmax_scale;

    const float step_max = over_row(
        score, [](float a, float b) { return fmaxf(a, b); }, FAULT != LaneFault::own_maximum);
    const float new_max = fmaxf(row_max, step_max), correction = ex2_approx((row_max - new_max) * LOG2E);
    const float weight = ex2_approx((score - new_max) * LOG2E);
    row_max = new_max;
    row_sum = row_sum * correction + over_row(
                                         weight, [](float a, float b) { return a + b; }, FAULT != LaneFault::own_sum);
    if (FAULT != LaneFault::early_overwrite) __syncwarp();  // safe to overwrite P: all lanes have finished their PV
    st_shared_b32(smem_P + column * 4, __float_as_uint(weight));
    if (FAULT != LaneFault::no_warp_barrier) __syncwarp();  // safe to read P: all lanes have stored their part

#pragma unroll
    for (int c = 0; c < COLS; ++c) O_frag[c] *= correction;
    for (int k = 0; k < 8; ++k) {
      const float P_part = __uint_as_float(ld_shared_b32(smem_P + k * 4));
#pragma unroll
      for (int c = 0; c < COLS; ++c) {
        if (c % 8 == 0) load_part(V_part, p.V + head + (first + k) * HEAD_DIM + (column + c) * 8);
        O_frag[c] += P_part * V_part[c % 8];
      }
    }
  }

#pragma unroll
  for (int c = 0; c < COLS; ++c) {
    const size_t place = head + query * HEAD_DIM + (column + c / 8 * 8) * 8 + c % 8;
    st_global_f16(p.O + place, to_f16(O_frag[c] / row_sum));
  }
  if (column == 0) st_global_f32(p.LSE + size_t(blockIdx.y) * p.n + query, row_max + logf(row_sum));
}

template <LaneFault FAULT>
void launch_wrong(Device& device, const AttentionParams& p) {
  launch(device, wrong_lanes<FAULT>, dim3(p.n / ROWS, p.batch_heads), dim3(32), SMEM_BYTES, p);
}

}  // namespace lanes
}  // namespace
