// Plain CUDA beside the words of these kernels, a pair per line: what is done | why it is written so, then CUDA's line,
// then ours. The page "How these kernels are written" is made from this file, and a test has nvcc compile it, so no
// name on that page can be wrong.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include "common/gpu.cuh"

// clang-format off
__global__ void pairs(AttentionParams p, const half* Q, float scale, int row, int chunk, int key, float x, bool grown) {
  extern __shared__ float S[];
  __shared__ __align__(16) half K[64][128];
  const uint32_t smem_S = smem_base(), smem_K = smem_S + 256;
  float score = 0.0f, row_max = 0.0f;
  [[maybe_unused]] uint4 eight_halves;
  [[maybe_unused]] half2 pair;
  [[maybe_unused]] uint32_t pair_bits;
  [[maybe_unused]] half one;
  [[maybe_unused]] f16 ours;

  // The kernel's arguments | One struct, `AttentionParams`, for every kernel: pointers, `n`, `d`, the scale
  { x = scale; }
  { x = p.softmax_scale; }

  // Sixteen bits | `f16` is opaque: kernels move it, and say where they convert
  { one = Q[row]; }
  { ours = ld_global_f16(p.Q + row); }

  // To f32, and back | One instruction each
  { x = __half2float(one); one = __float2half_rn(x); }
  { x = to_float(ours); ours = to_f16(x); }

  // Two numbers in a register | As `mma` wants its operands
  { pair = __floats2half2_rn(score, x); }
  { pair_bits = pack_f16x2(score, x); }

  // Sixteen bytes of global memory | The widest load of a thread on these GPUs
  { eight_halves = *reinterpret_cast<const uint4*>(Q + chunk * 8); }
  { eight_halves = ld_global_v4(p.Q + chunk * 8); }

  // Write a float of shared memory | An address is a number, counted in bytes
  { S[key] = score; }
  { st_shared_b32(smem_S + key * 4, __float_as_uint(score)); }

  // Read it | 32 bits; what they mean, the kernel says
  { score = S[key]; }
  { score = __uint_as_float(ld_shared_b32(smem_S + key * 4)); }

  // Sixteen bytes of a row | 256 bytes per row, 16 per chunk; a swizzle changes this line alone
  { eight_halves = *reinterpret_cast<uint4*>(&K[row][chunk * 8]); }
  { eight_halves = ld_shared_v4(smem_K + row * 256 + chunk * 16); }

  // Copy to shared memory, and go on | [`cp.async`](../03_kvpipe/README.md), by its own name
  { __pipeline_memcpy_async(&K[row][chunk * 8], Q + chunk * 8, 16); __pipeline_commit(); __pipeline_wait_prior(0); }
  { cp_async_16(smem_K + row * 256 + chunk * 16, p.Q + chunk * 8); cp_async_commit(); cp_async_wait<0>(); }

  // Exchange with lane `lane ^ 1` | All 32 lanes take part, always
  { row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1)); }
  { row_max = fmaxf(row_max, shfl_xor(row_max, 1)); }

  // Does any lane say yes? | Every lane gets the answer; here too all 32 take part
  { grown = __any_sync(0xffffffff, grown); }
  { grown = vote_any(grown); }

  // An exponential | The hardware has powers of two, so log2 e comes into the exponent
  { x = __expf(score - row_max); }
  { x = ex2_approx((score - row_max) * 1.44269504f); }
  if (grown) S[0] = x + score + row_max;
}

// The maximum of a row, as p01_rowwise takes it: a thread over its keys, a warp by shuffles, the block through shared
// memory.
__global__ void row_maximum(const float* row, int n, float* result) {
  __shared__ float warp_max[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float thread_max = -INFINITY;
  for (int key = threadIdx.x; key < n; key += blockDim.x) thread_max = fmaxf(thread_max, row[key]);
  for (int mask = 16; mask > 0; mask /= 2) thread_max = fmaxf(thread_max, __shfl_xor_sync(0xffffffff, thread_max, mask));
  if (lane == 0) warp_max[warp] = thread_max;
  __syncthreads();
  float row_max = -INFINITY;
  for (int w = 0; w < blockDim.x / 32; ++w) row_max = fmaxf(row_max, warp_max[w]);
  if (threadIdx.x == 0) *result = row_max;
}

void launches(cudaStream_t stream, Device& device, const AttentionParams& p, dim3 grid, dim3 block, uint32_t bytes, const half* Q) {
  // Start the kernel | `launch` raises the limit of shared memory, and keeps the first error
  { pairs<<<grid, block, bytes, stream>>>(p, Q, 1.0f, 0, 0, 0, 0.0f, false); }
  { launch(device, pairs, grid, block, bytes, p, Q, 1.0f, 0, 0, 0, 0.0f, false); }
}
