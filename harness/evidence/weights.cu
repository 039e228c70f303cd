// What makes a weight: how many clocks a scheduler takes for instructions of one kind, and of two kinds in turns, which tells whether they
// share a unit. One warp for each scheduler, and two. Prints CSV, one row for each mix: clocks per warp and step, of an instruction of
// each kind, or as many as the name says.
// Exit code: 0 done; 1 an error of CUDA; 77 no GPU of sm_90.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#ifndef LADDER_COMMIT
#define LADDER_COMMIT "unknown"
#endif

#include "common/ptx/convert.cuh"
#include "harness/evidence/card.cuh"

namespace {

constexpr int STEPS = 512, SCORES = 32, RUNS = 5;

// A step: from 32 scores of a lane to what is left of them.
#define STEP(NAME, ...)                                                                      \
  struct NAME {                                                                              \
    static __device__ __forceinline__ void step(float (&x)[SCORES], uint32_t (&out)[16]) {   \
      _Pragma("unroll") for (int i = 0; i < SCORES; i += 2) { __VA_ARGS__ }                  \
    }                                                                                        \
  }
#define EX2(OF) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[OF]))
#define FMA(OF) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x[OF]) : "f"(x[(OF + 2) % SCORES]))
#define E4M3(TO)                                                                                                      \
  asm volatile("{\n.reg .b16 t;\ncvt.rn.satfinite.e4m3x2.f32 t, %1, %2;\ncvt.u32.u16 %0, t;\n}" : "=r"(out[(TO) / 2]) \
               : "f"(x[TO]), "f"(x[TO + 1]))
#define E4M3_OF_F16(TO)                                                                                            \
  asm volatile("{\n.reg .b16 t;\ncvt.rn.satfinite.e4m3x2.f16x2 t, %1;\ncvt.u32.u16 %0, t;\n}" : "=r"(out[(TO) / 2]) \
               : "r"(__float_as_uint(x[TO])))
#define F16(TO) asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out[(TO) / 2]) : "f"(x[TO]), "f"(x[TO + 1]))
#define BF16(TO) asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out[(TO) / 2]) : "f"(x[TO]), "f"(x[TO + 1]))
#define EX2_F16(OF) asm volatile("ex2.approx.f16x2 %0, %0;" : "+r"(out[(OF) / 2]))
#define FMA_F16(OF) asm volatile("fma.rn.f16x2 %0, %0, %0, %0;" : "+r"(out[(OF) / 2]))
#define PRMT(OF) asm volatile("prmt.b32 %0, %0, %1, 0x6420;" : "+r"(out[(OF) / 2]) : "r"(out[((OF) / 2 + 1) % 16]))

STEP(Exponentials, EX2(i); EX2(i + 1););
STEP(ToE4m3, E4M3(i););
STEP(ToE4m3OfF16, E4M3_OF_F16(i););
STEP(ToF16, F16(i););
STEP(ToBf16, BF16(i););
STEP(HalfExponentials, EX2_F16(i););
STEP(HalfFma, FMA_F16(i););
STEP(Fma, FMA(i); FMA(i + 1););
STEP(Permute, PRMT(i););
STEP(ExponentialsToE4m3, EX2(i); EX2(i + 1); E4M3(i););
STEP(ExponentialsToF16, EX2(i); EX2(i + 1); F16(i););
STEP(ExponentialsFma, EX2(i); EX2(i + 1); FMA(i); FMA(i + 1););
STEP(ToE4m3Fma, E4M3(i); FMA(i); FMA(i + 1););
STEP(ToF16Fma, F16(i); FMA(i); FMA(i + 1););
STEP(HalfExponentialsHalfFma, EX2_F16(i); FMA_F16(i););

// A tile of scores as f01_e4m3 makes it: scaled, weights, their sum, bytes.
struct AsInF01 {
  static __device__ __forceinline__ void step(float (&x)[SCORES], uint32_t (&out)[16]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SCORES; i += 4) {
      float w[4];
      for (int k = 0; k < 4; ++k) w[k] = ex2_approx(x[i + k] * 0.25f - 3.0f);
      sum += (w[0] + w[1]) + (w[2] + w[3]);
      out[i / 4] ^= pack_e4m3x2(w[0], w[1]) | uint32_t{pack_e4m3x2(w[2], w[3])} << 16;
      for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(x[i + k]));
    }
    out[15] ^= __float_as_uint(sum);
  }
};
// The same, but bytes are cut out of f16, whose exponents are those of e4m3 when weights are 2^8 times smaller: half a step is added
// first, and bits 7 to 14 of a half are the byte.
struct CutOfF16 {
  static __device__ __forceinline__ void step(float (&x)[SCORES], uint32_t (&out)[16]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SCORES; i += 4) {
      float w[4];
      for (int k = 0; k < 4; ++k) w[k] = ex2_approx(x[i + k] * 0.25f - 11.0f);
      sum += (w[0] + w[1]) + (w[2] + w[3]);
      const uint32_t low = pack_f16x2(w[0], w[1]) * 2 + 0x00800080, high = pack_f16x2(w[2], w[3]) * 2 + 0x00800080;
      out[i / 4] ^= prmt_b32(low, high, 0x7531);
      for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(x[i + k]));
    }
    out[15] ^= __float_as_uint(sum);
  }
};
// And exponentials of two halves at a time, by a polynomial: x = whole + part, 2^part by two steps of Horner's rule.
struct PolynomialOfF16 {
  static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  static __device__ __forceinline__ uint32_t add2(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  static __device__ __forceinline__ uint32_t exp2(uint32_t x) {  // 2^(x - 8) of two halves, for x >= -16
    const uint32_t magic = 0x66006600;                           // 1536: its last place is 1
    const uint32_t whole = add2(x, magic), part = sub_f16x2(x, sub_f16x2(whole, magic));
    const uint32_t p = fma2(fma2(part, 0x33b033b0, 0x398c398c), part, 0x3c003c00);
    return p + ((whole << 10) & 0xfc00fc00);
  }
  static __device__ __forceinline__ void step(float (&x)[SCORES], uint32_t (&out)[16]) {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < SCORES; i += 4) {
      uint32_t w[2];
      for (int k = 0; k < 2; ++k)
        w[k] = exp2(pack_f16x2(fmaxf(x[i + 2 * k] * 0.25f - 3.0f, -14.0f), fmaxf(x[i + 2 * k + 1] * 0.25f - 3.0f, -14.0f)));
      sum = add2(sum, add2(w[0], w[1]));
      out[i / 4] ^= prmt_b32(w[0] * 2 + 0x00800080, w[1] * 2 + 0x00800080, 0x7531);
      for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(x[i + k]));
    }
    out[15] ^= sum;
  }
};

template <class Step>
__global__ void run(float seed, uint32_t* result, long long* clocks) {
  float x[SCORES];
  uint32_t out[16];
#pragma unroll
  for (int i = 0; i < SCORES; ++i) x[i] = seed + i * 0.01f + threadIdx.x * 1e-4f;
#pragma unroll
  for (int i = 0; i < 16; ++i) out[i] = threadIdx.x + i;
  __syncthreads();
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) Step::step(x, out);
  __syncthreads();
  const long long end = clock64();
  uint32_t all = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) all ^= out[i];
#pragma unroll
  for (int i = 0; i < SCORES; ++i) all ^= __float_as_uint(x[i]);
  result[threadIdx.x] = all;
  if (threadIdx.x == 0) *clocks = end - begin;
}

template <class Step>
void print_row(const char* name) {
  uint32_t* result;
  long long* clocks;
  checked(cudaMalloc(&result, 1024 * 4), "memory");
  checked(cudaMalloc(&clocks, 8), "memory");
  for (const int warps : {4, 8, 16}) {
    std::vector<long long> times;
    for (int i = 0; i < RUNS; ++i) {
      run<Step><<<1, warps * 32>>>(0.5f, result, clocks);
      long long of_run;
      checked(cudaMemcpy(&of_run, clocks, 8, cudaMemcpyDeviceToHost), "a run");
      times.push_back(of_run);
    }
    std::ranges::sort(times);
    std::printf("%s,%d,%.2f,%s\n", name, warps / 4, double(times[RUNS / 2]) / STEPS, about_this_run().c_str());
  }
  cudaFree(result), cudaFree(clocks);
}

}  // namespace

int main() {
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major != 9) return 77;
  std::printf("step of 32 scores,warps of a scheduler,clocks,gpu,cuda,commit,date\n");
  print_row<Exponentials>("32 ex2");
  print_row<ToE4m3>("16 cvt.e4m3x2.f32");
  print_row<ToE4m3OfF16>("16 cvt.e4m3x2.f16x2");
  print_row<ToF16>("16 cvt.f16x2.f32");
  print_row<ToBf16>("16 cvt.bf16x2.f32");
  print_row<HalfExponentials>("16 ex2.f16x2");
  print_row<HalfFma>("16 fma.f16x2");
  print_row<Fma>("32 fma");
  print_row<Permute>("16 prmt");
  print_row<ExponentialsToE4m3>("32 ex2 and 16 cvt.e4m3x2.f32");
  print_row<ExponentialsToF16>("32 ex2 and 16 cvt.f16x2.f32");
  print_row<ExponentialsFma>("32 ex2 and 32 fma");
  print_row<ToE4m3Fma>("16 cvt.e4m3x2.f32 and 32 fma");
  print_row<ToF16Fma>("16 cvt.f16x2.f32 and 32 fma");
  print_row<HalfExponentialsHalfFma>("16 ex2.f16x2 and 16 fma.f16x2");
  print_row<AsInF01>("weights as in f01");
  print_row<CutOfF16>("bytes cut out of f16");
  print_row<PolynomialOfF16>("polynomials of f16");
}
