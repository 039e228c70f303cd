#include "harness/devices/gpu_kernels.hpp"

#include "common/ptx/convert.cuh"

namespace ladder {
namespace {

__device__ uint64_t hash(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

__device__ void store(f16& to, float value) {
  to = ::to_f16(value);
}
__device__ void store(bf16& to, float value) {
  to.bits = static_cast<uint16_t>(__float_as_uint(value) >> 16);  // towards zero
}
__device__ void store(float& to, float value) {
  to = value;
}

template <class T>
__global__ void fill_kernel(T* values, int64_t count, T nan, uint64_t seed, float middle, float spread) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (spread > 0) {
      store(values[i], middle + (static_cast<float>(hash(seed ^ hash(i)) >> 40) * 0x1p-23f - 1.0f) * spread);
    } else {
      values[i] = nan;
    }
  }
}

__global__ void change_sign_kernel(std::byte* values, SignLayout of, const uint8_t* flip) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x, count = of.units * of.rows * of.columns;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const int64_t unit = i / (of.rows * of.columns), row = i / of.columns % of.rows, column = i % of.columns;
    if (flip[unit] == 0) continue;
    const int64_t element =
        unit / of.heads * of.strides[0] + unit % of.heads * of.strides[1] + row * of.strides[2] + column;
    reinterpret_cast<unsigned char*>(values)[(element + 1) * of.bytes - 1] ^= 0x80;
  }
}

// A block copies one row, byte by byte.
__global__ void gather_kernel(const std::byte* const* rows, std::byte* to, size_t row_bytes) {
  for (size_t i = threadIdx.x; i < row_bytes; i += blockDim.x) to[blockIdx.x * row_bytes + i] = rows[blockIdx.x][i];
}

// A block compares one zone.
__global__ void compare_kernel(const std::byte* const* zones, size_t bytes, unsigned char filled, unsigned* changed) {
  for (size_t i = threadIdx.x; i < bytes; i += blockDim.x) {
    if (zones[blockIdx.x][i] != static_cast<std::byte>(filled)) *changed = 1;
  }
}

__global__ void hash_kernel(const unsigned char* bytes, size_t count, uint64_t first, unsigned long long* sum) {
  unsigned long long own = 0;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    own += hash((first + i) << 8 | bytes[i]);
  atomicAdd(sum, own);
}

__global__ void clock_kernel(SmTime* of) {
  unsigned sm;
  uint64_t cycles, ns;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  if (threadIdx.x == 0 && sm < gridDim.x) of[sm] = {cycles, ns};
}

}  // namespace

template <class T>
void fill(T* values, int64_t count, T nan, uint64_t seed, float middle, float spread) {
  fill_kernel<<<1024, 256>>>(values, count, nan, seed, middle, spread);
}
template void fill(f16*, int64_t, f16, uint64_t, float, float);
template void fill(bf16*, int64_t, bf16, uint64_t, float, float);
template void fill(float*, int64_t, float, uint64_t, float, float);

void change_sign(std::byte* values, const SignLayout& layout, const uint8_t* flip) {
  change_sign_kernel<<<1024, 256>>>(values, layout, flip);
}

void gather_rows(const std::byte* const* rows, size_t count, size_t row_bytes, std::byte* to) {
  gather_kernel<<<static_cast<unsigned>(count), 128>>>(rows, to, row_bytes);
}

void compare_guards(const std::byte* const* zones, size_t count, size_t bytes, unsigned char filled,
                    unsigned* changed) {
  compare_kernel<<<static_cast<unsigned>(count), 256>>>(zones, bytes, filled, changed);
}

void add_hashes(const std::byte* bytes, size_t count, uint64_t first, unsigned long long* sum) {
  hash_kernel<<<1024, 256>>>(reinterpret_cast<const unsigned char*>(bytes), count, first, sum);
}

void read_clocks(SmTime* of, int processors) {
  clock_kernel<<<processors, 32>>>(of);
}

}  // namespace ladder
