// merge: two partial results become one, in place of the first, in one pass: each element is read once and written once.
// Tile:   16 rows, 8 warps; a row's 128 elements are shared by 16 lanes.  Shared: nothing.
// Shapes: merge.hpp
#include "python/native/merge.hpp"

#include "common/gpu.cuh"

namespace {

constexpr int HEAD_DIM = 128, PER_LANE = 8, LANES = HEAD_DIM / PER_LANE, THREADS = 256, ROWS = THREADS / LANES;
constexpr float LOG2E = 1.44269504088896341f;

__device__ __forceinline__ void load(float (&values)[PER_LANE], const float* address) {
  for (int half = 0; half < 2; ++half) {
    const uint4 four = ld_global_v4(address + 4 * half);
    const uint32_t bits[4] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < 4; ++i) values[4 * half + i] = __uint_as_float(bits[i]);
  }
}
template <class Half>
__device__ __forceinline__ void load(float (&values)[PER_LANE], const Half* address) {
  const uint4 eight = ld_global_v4(address);
  const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
  for (int i = 0; i < PER_LANE; ++i) values[i] = to_float(Half{static_cast<uint16_t>(pairs[i / 2] >> ((i % 2) * 16))});
}

__device__ __forceinline__ void store(float* address, const float (&values)[PER_LANE]) {
  for (int i = 0; i < PER_LANE; i += 4) {
    st_global_v4(address + i, uint4{__float_as_uint(values[i]), __float_as_uint(values[i + 1]),
                                    __float_as_uint(values[i + 2]), __float_as_uint(values[i + 3])});
  }
}
__device__ __forceinline__ uint32_t pack(f16, float low, float high) {
  return pack_f16x2(low, high);
}
__device__ __forceinline__ uint32_t pack(bf16, float low, float high) {
  return pack_bf16x2(low, high);
}
template <class Half>
__device__ __forceinline__ void store(Half* address, const float (&values)[PER_LANE]) {
  uint32_t pairs[4];
  for (int i = 0; i < 4; ++i) pairs[i] = pack(Half{}, values[2 * i], values[2 * i + 1]);
  st_global_v4(address, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
}

template <class Sum, class Half>
__global__ void __launch_bounds__(THREADS) merge_parts(MergeParams p) {
  const uint32_t rows = p.n * p.heads, number = blockIdx.x * ROWS + threadIdx.x / LANES;  // of this sequence
  const uint32_t row = number < rows ? number : rows - 1;
  const int64_t sequence = blockIdx.y, head = row % p.heads, query = row / p.heads;
  const auto at = [&](const ForwardParams::Strides& strides) {
    return sequence * strides.batch + head * strides.head + query * strides.row;
  };
  const float LSE = ld_global_f32(p.LSE + at(p.LSE_strides));
  const float other_LSE = ld_global_f32(p.other_LSE + at(p.other_LSE_strides));
  __syncwarp();  // safe to overwrite LSE: all lanes of its row have read it
  const float max = fmaxf(LSE, other_LSE);
  if (number >= rows || max == -INFINITY) return;  // no such row; two empty parts make an empty one
  const float weight = ex2_approx((LSE - max) * LOG2E), other_weight = ex2_approx((other_LSE - max) * LOG2E);
  const float normalise = 1.0f / (weight + other_weight);

  const int64_t column = threadIdx.x % LANES * PER_LANE;
  Sum* const O = static_cast<Sum*>(p.O) + at(p.O_strides) + column;
  float values[PER_LANE], others[PER_LANE];
  load(values, O);
  load(others, static_cast<const Half*>(p.other) + at(p.other_strides) + column);
  for (int i = 0; i < PER_LANE; ++i) values[i] = (weight * values[i] + other_weight * others[i]) * normalise;
  store(O, values);
  if (column == 0) st_global_f32(p.LSE + at(p.LSE_strides), max + logf(weight + other_weight));
}

template <class Half>
void start(Device& device, const MergeParams& p) {
  launch(device, p.in_f32 ? merge_parts<float, Half> : merge_parts<Half, Half>,
         dim3((uint32_t(p.n) * p.heads + ROWS - 1) / ROWS, p.batch), dim3(THREADS), 0, p);
}

}  // namespace

void merge(Device& device, const MergeParams& p) {
  p.is_bf16 ? start<bf16>(device, p) : start<f16>(device, p);
}
