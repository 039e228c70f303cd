#include "harness/measure/loops.hpp"

#include "common/ptx/convert.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/memory.cuh"
#include "common/ptx/tensor_core.cuh"
#include "common/ptx/tensor_map.cuh"
#include "common/ptx/wgmma.cuh"

namespace ladder {
namespace operands {

// Near N(0, 1): the sum of four uniform numbers, from a hash of the counter, which goes on.
inline __device__ float random_normal(uint32_t& counter) {
  float value = -2.0f;
  for (int i = 0; i < 4; ++i) {
    counter = counter * 747796405u + 2891336453u;  // PCG
    const uint32_t word = ((counter >> ((counter >> 28) + 4)) ^ counter) * 277803737u;
    value += static_cast<float>(word >> 8) * 0x1p-24f;
  }
  return value * 1.732f;  // four uniform numbers have variance 1/3
}

// The instructions' operands for 128 accumulators and what comes after them.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
// clang-format off
#define WGMMA_TEXT                                                     \
  TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) \
  TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on
#define TILE(t) "+f"(c[t][0]), "+f"(c[t][1]), "+f"(c[t][2]), "+f"(c[t][3])
#define TILES(t) TILE(t), TILE(t + 1), TILE(t + 2), TILE(t + 3), TILE(t + 4), TILE(t + 5), TILE(t + 6), TILE(t + 7)
#define WGMMA_D TILES(0), TILES(8), TILES(16), TILES(24)

// An element type: how a register is filled with its random numbers, and the instructions on it. `KIND` is as PTX names it, `TAIL`
// says of operands of 16 bits that they are not transposed.
#define OPERANDS(KIND, SM, DEPTH, TAIL_SS, TAIL_RS)                                                                  \
  static constexpr int K = DEPTH, LEAST_SM = SM;                                                                     \
  static __device__ void mma(float(&c)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) {                           \
    asm volatile("mma.sync.aligned.m16n8k" #DEPTH ".row.col.f32." KIND "." KIND                                      \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                              \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                \
  }                                                                                                                  \
  static __device__ void wgmma(float(&c)[32][4], uint64_t a, uint64_t b) {                                           \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k" #DEPTH       \
                 ".f32." KIND "." KIND " {" WGMMA_TEXT "}, %128, %129, add, 1, 1" TAIL_SS ";\n}"                     \
                 : WGMMA_D                                                                                           \
                 : "l"(a), "l"(b), "r"(1));                                                                          \
  }                                                                                                                  \
  static __device__ void wgmma(float(&c)[32][4], const uint32_t(&a)[4], uint64_t b) {                                \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %133, 0;\nwgmma.mma_async.sync.aligned.m64n256k" #DEPTH       \
                 ".f32." KIND "." KIND " {" WGMMA_TEXT "}, {%128, %129, %130, %131}, %132, add, 1, 1" TAIL_RS ";\n}" \
                 : WGMMA_D                                                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                                      \
  }

struct F16 {
  OPERANDS("f16", 80, 16, ", 0, 0", ", 0")
  static __device__ uint32_t random(uint32_t counter) {
    const float low = random_normal(counter);
    return pack_f16x2(low, random_normal(counter));
  }
};

struct Bf16 {
  OPERANDS("bf16", 80, 16, ", 0, 0", ", 0")
  static __device__ uint32_t random(uint32_t counter) {
    uint32_t pair;
    const float low = random_normal(counter);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(random_normal(counter)), "f"(low));
    return pair;
  }
};

struct E4m3 {
  OPERANDS("e4m3", 89, 32, "", "")
  static __device__ uint32_t random(uint32_t counter) {
    uint16_t pairs[2];
    for (uint16_t& pair : pairs) {
      const float low = random_normal(counter);
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(random_normal(counter)), "f"(low));
    }
    return uint32_t{pairs[1]} << 16 | pairs[0];
  }
};
#undef TEN
#undef WGMMA_TEXT
#undef TILE
#undef TILES
#undef WGMMA_D
#undef OPERANDS

}  // namespace operands
namespace {

using operands::Bf16, operands::E4m3, operands::F16;
constexpr int ANY = 1000;  // the newest sm

// ---- products ------------------------------------------------------------------------------------------------------

// 16 warps on each SM, 4 for each of its tensor cores, each with 8 independent accumulators: enough to hide the latency
// of an mma.sync several times over. 32 accumulator and 40 operand registers leave room for all of them.
constexpr int WARPS = 16, M_TILES = 2, N_TILES = 4, OPERAND_SETS = 2;
constexpr int ITERATIONS = 4096;

template <class Type>
__global__ void __launch_bounds__(WARPS * 32, 1) mma_sync_loop(float* sums) {
#ifdef __CUDA_ARCH__
  if constexpr (__CUDA_ARCH__ >= 10 * Type::LEAST_SM) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t A[OPERAND_SETS][M_TILES][4], B[OPERAND_SETS][N_TILES][2];
    float C[M_TILES][N_TILES][4] = {};
#pragma unroll
    for (int set = 0; set < OPERAND_SETS; ++set) {
#pragma unroll
      for (int i = 0; i < M_TILES * 4; ++i) A[set][i / 4][i % 4] = Type::random((thread * 64 + set * 32 + i) * 16);
#pragma unroll
      for (int i = 0; i < N_TILES * 2; ++i) B[set][i / 2][i % 2] = Type::random((thread * 64 + set * 32 + 16 + i) * 16);
    }
    for (int iteration = 0; iteration < ITERATIONS; ++iteration) {
#pragma unroll
      for (int set = 0; set < OPERAND_SETS; ++set) {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
          for (int n = 0; n < N_TILES; ++n) Type::mma(C[m][n], A[set][m], B[set][n]);
        }
      }
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < M_TILES * N_TILES * 4; ++i) sum += C[i / (N_TILES * 4)][i / 4 % N_TILES][i % 4];
    sums[thread] = sum;  // so that nothing above is dead code
  }
#endif
}

template <class Type>
constexpr Loop mma_sync(const char* dtype) {
  return {"mma_sync",
          dtype,
          Type::LEAST_SM,
          ANY,
          1,
          WARPS * 32,
          2.0 * 16 * 8 * Type::K * M_TILES * N_TILES * OPERAND_SETS * ITERATIONS * WARPS,
          0,
          [](int blocks, const std::byte*, float* sums) { mma_sync_loop<Type><<<blocks, WARPS * 32>>>(sums); }};
}

// Two warpgroups, each with products of 64x256 on accumulators of its own: while one waits for its group, the other's is on the
// tensor cores. A and B are panels of 128 bytes a row, full of random numbers, so that how they are swizzled is all the same; 32 bytes
// of a row are one instruction's k, whatever the type.
constexpr int WARPGROUPS = 2, WGMMA_N = 256, PANEL_SLICES = 4, WGMMA_REPEATS = 4, WGMMA_ITERATIONS = 512;
constexpr int PANEL_ROW_BYTES = 128, WGMMA_SMEM_BYTES = (WARPGROUPS * 64 + WGMMA_N) * PANEL_ROW_BYTES;

template <class Type, bool A_IN_REGISTERS>
__global__ void __launch_bounds__(WARPGROUPS * 128, 1) wgmma_loop(float* sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, smem_B = smem_base();
  const uint32_t smem_A = smem_B + (WGMMA_N + threadIdx.x / 128 * 64) * PANEL_ROW_BYTES;
  for (uint32_t at = threadIdx.x * 4; at < WGMMA_SMEM_BYTES; at += blockDim.x * 4) {
    st_shared_b32(smem_B + at, Type::random((blockIdx.x * WGMMA_SMEM_BYTES + at) * 16));
  }
  uint32_t A[PANEL_SLICES][4];
  for (int i = 0; i < PANEL_SLICES * 4; ++i) A[i / 4][i % 4] = Type::random((thread * 64 + i) * 16);
  float C[WGMMA_N / 8][4] = {};
  fence_proxy_async();
  __syncthreads();
  const uint64_t A_panel = wgmma_descriptor(smem_A), B_panel = wgmma_descriptor(smem_B);
  for (int iteration = 0; iteration < WGMMA_ITERATIONS; ++iteration) {
    wgmma_fence(C, A);
#pragma unroll
    for (int i = 0; i < WGMMA_REPEATS * PANEL_SLICES; ++i) {
      const int slice = i % PANEL_SLICES;
      if constexpr (A_IN_REGISTERS) {
        Type::wgmma(C, A[slice], wgmma_advance(B_panel, slice * 32));
      } else {
        Type::wgmma(C, wgmma_advance(A_panel, slice * 32), wgmma_advance(B_panel, slice * 32));
      }
    }
    wgmma_commit();
    wgmma_wait<0>(C, A);
  }
  float sum = 0;
  for (const auto& tile : C) sum += tile[0] + tile[1] + tile[2] + tile[3];
  sums[thread] = sum;
#endif
}

template <class Type, bool A_IN_REGISTERS>
constexpr Loop wgmma(const char* dtype) {
  return {A_IN_REGISTERS ? "wgmma_rs" : "wgmma",
          dtype,
          90,
          90,
          1,
          WARPGROUPS * 128,
          2.0 * 64 * WGMMA_N * Type::K * WARPGROUPS * WGMMA_REPEATS * PANEL_SLICES * WGMMA_ITERATIONS,
          0,
          [](int blocks, const std::byte*, float* sums) {
            wgmma_loop<Type, A_IN_REGISTERS><<<blocks, WARPGROUPS * 128, WGMMA_SMEM_BYTES>>>(sums);
          }};
}

// ---- what else a kernel waits for ----------------------------------------------------------------------------------

// Eight chains each, so that none waits for another's result. 2^x of x in (-1, 0], as in a softmax.
constexpr int EX2_THREADS = 1024, EX2_CHAINS = 8, EX2_ITERATIONS = 8192;
__global__ void __launch_bounds__(EX2_THREADS, 1) ex2_loop(float* sums) {
  float x[EX2_CHAINS];
#pragma unroll
  for (int i = 0; i < EX2_CHAINS; ++i) x[i] = -0.01f * static_cast<float>(threadIdx.x % 64 + i);
  for (int iteration = 0; iteration < EX2_ITERATIONS; ++iteration) {
#pragma unroll
    for (int i = 0; i < EX2_CHAINS; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < EX2_CHAINS; ++i) sum += x[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// A buffer read again and again, around the L1; blocks begin `apart` values from each other, so that they are spread over all of it.
// 16 MiB lie in the L2 of every card from sm_80 on. Of 1 GiB no L2 still has anything when the next block comes to it.
constexpr int READ_THREADS = 512, READS = 4096, READ_UNROLL = 8;
constexpr size_t L2_BYTES = size_t{16} << 20, DRAM_BYTES = size_t{1} << 30;
constexpr double READ_WORK = double{READ_THREADS} * READS * sizeof(uint4);
template <size_t BYTES>
__global__ void __launch_bounds__(READ_THREADS) read_loop(const uint4* buffer, uint32_t apart, float* sums) {
  constexpr uint32_t MASK = BYTES / sizeof(uint4) - 1;
  uint32_t place = (blockIdx.x * apart + threadIdx.x) & MASK, bits = 0;
  for (int read = 0; read < READS; read += READ_UNROLL) {
#pragma unroll
    for (int i = 0; i < READ_UNROLL; ++i) {
      uint4 value;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                   : "l"(buffer + place));
      bits ^= value.x ^ value.y ^ value.z ^ value.w;
      place = (place + READ_THREADS) & MASK;
    }
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = __uint_as_float(bits & 0x3fffffff);
}

const Loop LOOPS[] = {
    mma_sync<F16>("fp16"),
    wgmma<F16, false>("fp16"),
    wgmma<F16, true>("fp16"),
    mma_sync<Bf16>("bf16"),
    wgmma<Bf16, false>("bf16"),
    wgmma<Bf16, true>("bf16"),
    mma_sync<E4m3>("e4m3"),
    wgmma<E4m3, false>("e4m3"),
    wgmma<E4m3, true>("e4m3"),
    {"ex2", "", 75, ANY, 1, EX2_THREADS, double{EX2_THREADS} * EX2_CHAINS* EX2_ITERATIONS, 0,
     [](int blocks, const std::byte*, float* sums) { ex2_loop<<<blocks, EX2_THREADS>>>(sums); }},
    {"l2_read", "", 80, ANY, 4, READ_THREADS, READ_WORK, L2_BYTES,
     [](int blocks, const std::byte* buffer, float* sums) {
       read_loop<L2_BYTES><<<blocks, READ_THREADS>>>(reinterpret_cast<const uint4*>(buffer), 7919 * READ_THREADS, sums);
     }},
    {"dram_read", "", 80, ANY, 4, READ_THREADS, READ_WORK, DRAM_BYTES,
     [](int blocks, const std::byte* buffer, float* sums) {
       read_loop<DRAM_BYTES><<<blocks, READ_THREADS>>>(reinterpret_cast<const uint4*>(buffer),
                                                       DRAM_BYTES / sizeof(uint4) / blocks, sums);
     }},
};

}  // namespace

std::span<const Loop> loops() {
  return LOOPS;
}

}  // namespace ladder
