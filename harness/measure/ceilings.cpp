#include "harness/measure/ceilings.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "harness/measure/loops.hpp"

namespace ladder {

struct Ceiling::State {
  const Loop* loop = nullptr;
  int blocks = 0;
  float* sums = nullptr;
  std::byte* buffer = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  double launch_ms = 0;  // of the last group
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
    cudaFree(sums);
    cudaFree(buffer);
  }
  Status check(cudaError_t error, const char* call) const {
    if (error == cudaSuccess) return {};
    return failure(ExitCode::check_failed,
                   "the " + std::string(loop->name) + " ceiling: " + call + ": " + cudaGetErrorString(error));
  }
};

Ceiling::Ceiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ceiling::Ceiling(Ceiling&&) noexcept = default;
Ceiling& Ceiling::operator=(Ceiling&&) noexcept = default;
Ceiling::~Ceiling() = default;

std::vector<std::string_view> Ceiling::names(std::string_view dtype) {
  std::vector<std::string_view> names;
  for (const Loop& loop : std::span(loops_begin(), loops_end())) {
    if (loop.dtype.empty() || loop.dtype == dtype) names.push_back(loop.name);
  }
  return names;
}

Result<Ceiling> Ceiling::create(std::string_view name, std::string_view dtype) {
  int device = 0, major = 0, minor = 0, processors = 0;
  auto state = std::make_unique<State>();
  state->loop = std::find_if(loops_begin(), loops_end(), [&](const Loop& loop) {
    return loop.name == name && (loop.dtype.empty() || loop.dtype == dtype);
  });
  const Loop& loop = *state->loop;
  Status done = state->check(cudaGetDevice(&device), "cudaGetDevice");
  for (const auto& [value, attribute] : {std::pair(&major, cudaDevAttrComputeCapabilityMajor),
                                         {&minor, cudaDevAttrComputeCapabilityMinor},
                                         {&processors, cudaDevAttrMultiProcessorCount}}) {
    if (done) done = state->check(cudaDeviceGetAttribute(value, attribute, device), "attribute");
  }
  const int sm = major * 10 + minor;
  if (done && (sm < loop.least_sm || sm > loop.most_sm)) {
    return failure(ExitCode::cannot_run_here, fmt::format("the {} ceiling is of sm_{}{}", name, loop.least_sm,
                                                          loop.most_sm > loop.least_sm ? " and newer" : " alone"));
  }
  state->blocks = processors * loop.blocks_per_sm;
  if (done) done = state->check(cudaMalloc(&state->sums, sizeof(float) * state->blocks * loop.threads), "cudaMalloc");
  if (done && loop.buffer_bytes > 0) {
    done = state->check(cudaMalloc(&state->buffer, loop.buffer_bytes), "cudaMalloc");
    if (done) done = state->check(cudaMemset(state->buffer, 0x5a, loop.buffer_bytes), "cudaMemset");
  }
  if (done) done = state->check(cudaEventCreate(&state->start), "cudaEventCreate");
  if (done) done = state->check(cudaEventCreate(&state->stop), "cudaEventCreate");
  if (!done) return tl::make_unexpected(done.error());
  return Ceiling(std::move(state));
}

double Ceiling::work() const {
  return state_->loop->work_per_block * state_->blocks;
}

Result<double> Ceiling::time_ms(int launches) {
  Status done = state_->check(cudaEventRecord(state_->start), "cudaEventRecord");
  for (int i = 0; i < launches && done; ++i) {
    state_->loop->launch(state_->blocks, state_->buffer, state_->sums);
    done = state_->check(cudaGetLastError(), "launch");
  }
  if (done) done = state_->check(cudaEventRecord(state_->stop), "cudaEventRecord");
  if (done) done = state_->check(cudaEventSynchronize(state_->stop), "cudaEventSynchronize");
  float ms = 0;
  if (done) done = state_->check(cudaEventElapsedTime(&ms, state_->start, state_->stop), "cudaEventElapsedTime");
  if (!done) return tl::make_unexpected(done.error());
  state_->launch_ms = double{ms} / launches;
  return double{ms};
}

Status Ceiling::keep_busy(double ms) {
  while (ms > 0) {
    const double launch_ms = state_->launch_ms;  // 0 before the first launch
    const Result<double> took = time_ms(launch_ms > 0 ? std::max(1, static_cast<int>(ms / launch_ms)) : 1);
    if (!took) return tl::make_unexpected(took.error());
    ms -= *took + launch_ms;
  }
  return {};
}

}  // namespace ladder
