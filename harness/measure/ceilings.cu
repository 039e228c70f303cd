#include <cuda_runtime.h>

#include <string>

#include "common/ptx/convert.cuh"
#include "common/ptx/tensor_core.cuh"
#include "harness/measure/ceilings.hpp"

namespace ladder {
namespace {

// 16 warps on each SM, 4 for each of its tensor cores, each with 8 independent accumulators: enough to hide the latency
// of an mma.sync several times over. 32 accumulator and 40 operand registers leave room for all of them.
constexpr int WARPS = 16, M_TILES = 2, N_TILES = 4, OPERAND_SETS = 2;
constexpr int ITERATIONS = 4096;
constexpr double FLOPS_PER_MMA = 2.0 * 16 * 8 * 16;

// Two f16 near N(0, 1): the sum of four uniform numbers, from a hash of the counter.
[[maybe_unused]] __device__ uint32_t random_pair(uint32_t counter) {
  float values[2];
  for (float& value : values) {
    value = -2.0f;
    for (int i = 0; i < 4; ++i) {
      counter = counter * 747796405u + 2891336453u;  // PCG
      const uint32_t word = ((counter >> ((counter >> 28) + 4)) ^ counter) * 277803737u;
      value += static_cast<float>(word >> 8) * 0x1p-24f;
    }
    value *= 1.732f;  // four uniform numbers have variance 1/3
  }
  return pack_f16x2(values[0], values[1]);
}

__global__ void __launch_bounds__(WARPS * 32, 1) mma_sync_loop(float* sums) {
#if __CUDA_ARCH__ >= 800
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t A[OPERAND_SETS][M_TILES][4], B[OPERAND_SETS][N_TILES][2];
  float C[M_TILES][N_TILES][4] = {};
#pragma unroll
  for (int set = 0; set < OPERAND_SETS; ++set) {
#pragma unroll
    for (int i = 0; i < M_TILES * 4; ++i) A[set][i / 4][i % 4] = random_pair((thread * 64 + set * 32 + i) * 16);
#pragma unroll
    for (int i = 0; i < N_TILES * 2; ++i) B[set][i / 2][i % 2] = random_pair((thread * 64 + set * 32 + 16 + i) * 16);
  }
  for (int iteration = 0; iteration < ITERATIONS; ++iteration) {
#pragma unroll
    for (int set = 0; set < OPERAND_SETS; ++set) {
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) mma_m16n8k16(C[m][n], A[set][m], B[set][n][0], B[set][n][1]);
      }
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < M_TILES * N_TILES * 4; ++i) sum += C[i / (N_TILES * 4)][i / 4 % N_TILES][i % 4];
  sums[thread] = sum;  // so that nothing above is dead code
#endif
}

Status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return failure(ExitCode::check_failed,
                 std::string("the mma_sync ceiling: ") + call + ": " + cudaGetErrorString(error));
}

}  // namespace

struct MmaCeiling::State {
  int processors = 0;
  float* sums = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
    cudaFree(sums);
  }
};

MmaCeiling::MmaCeiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
MmaCeiling::MmaCeiling(MmaCeiling&&) noexcept = default;
MmaCeiling& MmaCeiling::operator=(MmaCeiling&&) noexcept = default;
MmaCeiling::~MmaCeiling() = default;

Result<MmaCeiling> MmaCeiling::create() {
  int device = 0, major = 0;
  auto state = std::make_unique<State>();
  Status done = check(cudaGetDevice(&device), "cudaGetDevice");
  if (done) done = check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "attribute");
  if (done && major < 8) return failure(ExitCode::cannot_run_here, "the mma_sync ceiling needs sm_80 (mma.m16n8k16)");
  if (done) {
    done = check(cudaDeviceGetAttribute(&state->processors, cudaDevAttrMultiProcessorCount, device), "attribute");
  }
  if (done) done = check(cudaMalloc(&state->sums, sizeof(float) * state->processors * WARPS * 32), "cudaMalloc");
  if (done) done = check(cudaEventCreate(&state->start), "cudaEventCreate");
  if (done) done = check(cudaEventCreate(&state->stop), "cudaEventCreate");
  if (!done) return tl::make_unexpected(done.error());
  return MmaCeiling(std::move(state));
}

double MmaCeiling::flops() const {
  return FLOPS_PER_MMA * M_TILES * N_TILES * OPERAND_SETS * ITERATIONS * WARPS * state_->processors;
}

Result<double> MmaCeiling::time_ms(int launches) {
  Status done = check(cudaEventRecord(state_->start), "cudaEventRecord");
  for (int i = 0; i < launches && done; ++i) {
    mma_sync_loop<<<state_->processors, WARPS * 32>>>(state_->sums);
    done = check(cudaGetLastError(), "launch");
  }
  if (done) done = check(cudaEventRecord(state_->stop), "cudaEventRecord");
  if (done) done = check(cudaEventSynchronize(state_->stop), "cudaEventSynchronize");
  float ms = 0;
  if (done) done = check(cudaEventElapsedTime(&ms, state_->start, state_->stop), "cudaEventElapsedTime");
  if (!done) return tl::make_unexpected(done.error());
  return ms;
}

}  // namespace ladder
