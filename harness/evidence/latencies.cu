// How long one waits for an answer: chains in which each instruction needs the result of the one before it, run by one warp on an
// idle card. Prints CSV, one row per instruction: the median of some runs, in clocks of the SM and in nanoseconds.
// Exit code: 0 done; 1 an error of CUDA; 77 no GPU, or one older than sm_80.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/ptx/convert.cuh"
#include "common/ptx/memory.cuh"
#include "common/ptx/tensor_core.cuh"
#include "common/ptx/warp.cuh"
#include "harness/evidence/card.cuh"

#ifndef LADDER_COMMIT
#define LADDER_COMMIT "unknown"
#endif

namespace {

constexpr int STEPS = 4096, RUNS = 21, LINE_BYTES = 128;
constexpr uint32_t ALL_LANES = 32;

struct Measured {
  long long clocks;
  unsigned long long ns;
  uint64_t last;  // so that no chain is dead code
};

__device__ unsigned long long global_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// A link of a chain takes the last result, which is an address for those that load.
struct Shared {
  using Value = uint32_t;
  static __device__ uint32_t first(const void*) {
    st_shared_b32(smem_base(), smem_base());
    return smem_base();
  }
  static __device__ uint32_t next(uint32_t address) { return ld_shared_b32(address); }
};

// Word i of 128 bytes is the address of row i, so that register 0 of lane i is the address that lane i gave.
struct Ldmatrix {
  using Value = uint32_t;
  static __device__ uint32_t first(const void*) {
    st_shared_b32(smem_base() + threadIdx.x * 4, smem_base() + threadIdx.x * 16);
    __syncwarp();
    return smem_base() + threadIdx.x * 16;
  }
  static __device__ uint32_t next(uint32_t address) {
    uint32_t matrices[4];
    ldmatrix_x4(matrices, address);
    return matrices[0];
  }
};

struct Fma {
  using Value = float;
  static __device__ float first(const void*) { return static_cast<float>(threadIdx.x); }
  static __device__ float next(float x) {
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    return x;
  }
};

struct Exponential {
  using Value = float;
  static __device__ float first(const void*) { return 0.5f; }
  static __device__ float next(float x) { return ex2_approx(x); }
};

struct Shuffle {
  using Value = float;
  static __device__ float first(const void*) { return static_cast<float>(threadIdx.x); }
  static __device__ float next(float x) { return shfl_xor(x, 1); }
};

// The sums of one product are the C of the next.
struct Mma {
  struct Value {
    float C[4];
  };
  static __device__ Value first(const void*) { return {}; }
  static __device__ Value next(Value value) {
    const uint32_t A[4] = {threadIdx.x, threadIdx.x, threadIdx.x, threadIdx.x};
    mma_m16n8k16(value.C, A, threadIdx.x, threadIdx.x);
    return value;
  }
};

// Every line of the buffer begins with the address of another one; the circle through all of them is in random order.
template <bool THROUGH_L1>
struct Global {
  using Value = const void*;
  static __device__ const void* first(const void* start) { return start; }
  static __device__ const void* next(const void* address) {
    if constexpr (THROUGH_L1) {
      asm volatile("ld.global.ca.b64 %0, [%0];" : "+l"(address));
    } else {
      asm volatile("ld.global.cg.b64 %0, [%0];" : "+l"(address));
    }
    return address;
  }
};

__device__ uint64_t bits_of(uint32_t value) {
  return value;
}
__device__ uint64_t bits_of(float value) {
  return __float_as_uint(value);
}
__device__ uint64_t bits_of(const void* value) {
  return reinterpret_cast<uint64_t>(value);
}
__device__ uint64_t bits_of(Mma::Value value) {
  return __float_as_uint(value.C[0] + value.C[1] + value.C[2] + value.C[3]);
}

// One warp; all of its lanes go the same way. `unmeasured` links come first and fill the caches.
template <class Link>
__global__ void chain(const void* start, int unmeasured, Measured* measured) {
  typename Link::Value value = Link::first(start);
  for (int i = 0; i < unmeasured; ++i) value = Link::next(value);
  const unsigned long long ns = global_ns();
  const long long clocks = clock64();
#pragma unroll 32
  for (int i = 0; i < STEPS; ++i) value = Link::next(value);
  const uint64_t last = bits_of(value);
  const long long clocks_after = clock64();
  const unsigned long long ns_after = global_ns();
  if (threadIdx.x == 0) *measured = {clocks_after - clocks, ns_after - ns, last};
}

__global__ void keep_busy(int milliseconds) {
  const unsigned long long start = global_ns();
  while (global_ns() - start < milliseconds * 1'000'000ull) {
  }
}

// A circle of pointers through all lines of `bytes` bytes (Sattolo's shuffle). Freed with the process.
const void* circle(size_t bytes) {
  const size_t lines = bytes / LINE_BYTES;
  std::vector<uint32_t> next(lines);
  std::iota(next.begin(), next.end(), 0u);
  std::mt19937_64 random(1);
  for (size_t i = lines - 1; i > 0; --i) std::swap(next[i], next[random() % i]);
  char* on_card = nullptr;
  checked(cudaMalloc(&on_card, bytes), "memory for a circle of pointers");
  std::vector<uint64_t> words(bytes / sizeof(uint64_t));
  for (size_t i = 0; i < lines; ++i) {
    words[i * LINE_BYTES / sizeof(uint64_t)] = reinterpret_cast<uint64_t>(on_card) + uint64_t{next[i]} * LINE_BYTES;
  }
  checked(cudaMemcpy(on_card, words.data(), bytes, cudaMemcpyHostToDevice), "copying a circle of pointers");
  return on_card;
}

template <class Link>
void print_row(const char* what, const void* start = nullptr, int unmeasured = STEPS) {
  static Measured* on_card = nullptr;
  if (!on_card) checked(cudaMalloc(&on_card, sizeof *on_card), "memory for the result");
  std::vector<Measured> runs(RUNS);
  for (Measured& run : runs) {
    chain<Link><<<1, ALL_LANES, 1024>>>(start, unmeasured, on_card);
    checked(cudaMemcpy(&run, on_card, sizeof run, cudaMemcpyDeviceToHost), what);
    if (start)
      start = reinterpret_cast<const void*>(run.last);  // on along the circle: these lines are in the caches now
  }
  const auto middle = runs.begin() + RUNS / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Measured& a, const Measured& b) { return a.clocks < b.clocks; });
  std::printf("%s,%.1f,%.1f,%s\n", what, static_cast<double>(middle->clocks) / STEPS,
              static_cast<double>(middle->ns) / STEPS, about_this_run().c_str());
}

}  // namespace

int main() {
  int cards = 0, major = 0;
  if (cudaGetDeviceCount(&cards) != cudaSuccess || cards == 0 ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major < 8) {
    std::fprintf(stderr, "Latencies need a GPU of sm_80 or newer, and there is none here.\n");
    return 77;
  }
  keep_busy<<<1, 1>>>(1000);  // up to the clock that work has
  std::printf("what,clocks,ns,gpu,cuda,commit,date\n");
  print_row<Fma>("fma");
  print_row<Exponential>("ex2.approx");
  print_row<Shuffle>("shfl.xor");
  print_row<Mma>("mma.sync.m16n8k16");
  print_row<Shared>("ld.shared");
  print_row<Ldmatrix>("ldmatrix.x4");
  print_row<Global<true>>("L1", circle(16 << 10));
  constexpr int L2_BYTES = 8 << 20;  // all of it is read once before
  print_row<Global<false>>("L2", circle(L2_BYTES), L2_BYTES / LINE_BYTES);
  print_row<Global<false>>("global memory", circle(size_t{1} << 30), 0);
  return 0;
}
