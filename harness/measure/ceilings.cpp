#include "harness/measure/ceilings.hpp"

#include <algorithm>
#include <utility>

#include "harness/devices/cuda_calls.hpp"
#include "harness/measure/loops.hpp"

namespace ladder {

namespace {

class OnCard final : public Ceiling {
 public:
  explicit OnCard(const Loop* loop) : loop_(*loop) {}

  Status prepare() {
    int device = 0, major = 0, minor = 0, processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    for (const auto& [value, attribute] : {std::pair(&major, cudaDevAttrComputeCapabilityMajor),
                                           {&minor, cudaDevAttrComputeCapabilityMinor},
                                           {&processors, cudaDevAttrMultiProcessorCount}}) {
      if (error == cudaSuccess) error = cudaDeviceGetAttribute(value, attribute, device);
    }
    const int sm = major * 10 + minor;
    if (error == cudaSuccess && (sm < loop_.least_sm || sm > loop_.most_sm)) {
      return failure(ExitCode::cannot_run_here, "the {} ceiling is of sm_{}{}", loop_.name, loop_.least_sm,
                     loop_.most_sm > loop_.least_sm ? " and newer" : " alone");
    }
    blocks_ = processors * loop_.blocks_per_sm;
    float* sums = nullptr;
    std::byte* buffer = nullptr;
    if (error == cudaSuccess) error = cudaMalloc(&sums, sizeof(float) * blocks_ * loop_.threads);
    sums_.reset(sums);
    if (error == cudaSuccess && loop_.buffer_bytes > 0) error = cudaMalloc(&buffer, loop_.buffer_bytes);
    buffer_.reset(buffer);
    if (error == cudaSuccess && buffer) error = cudaMemset(buffer, 0x5a, loop_.buffer_bytes);
    return checked(error, fmt::format("preparing the {} ceiling", loop_.name));
  }

  double work() const override { return loop_.work_per_block * blocks_; }

  Result<double> time_ms(int launches) override {
    float ms = 0;
    const cudaError_t error = time_on_card(ms, nullptr, [&] {
      for (int i = 0; i < launches; ++i) loop_.launch(blocks_, buffer_.get(), sums_.get());
      return cudaGetLastError();
    });
    const Status timed = checked(error, fmt::format("timing the {} ceiling", loop_.name));
    if (!timed) return passed_on(timed);
    launch_ms_ = double{ms} / launches;
    return double{ms};
  }

  Status keep_busy(double ms) override {
    while (ms > 0) {
      const double launch_ms = launch_ms_;  // 0 before the first launch
      const Result<double> took = time_ms(launch_ms > 0 ? std::max(1, static_cast<int>(ms / launch_ms)) : 1);
      if (!took) return passed_on(took);
      ms -= *took + launch_ms;
    }
    return {};
  }

 private:
  const Loop& loop_;
  int blocks_ = 0;
  std::unique_ptr<float, FreeOnDevice> sums_;
  std::unique_ptr<std::byte, FreeOnDevice> buffer_;
  double launch_ms_ = 0;  // of the last group
};

}  // namespace

std::vector<std::string_view> Ceiling::names(std::string_view dtype) {
  std::vector<std::string_view> names;
  for (const Loop& loop : loops()) {
    if (loop.dtype.empty() || loop.dtype == dtype) names.push_back(loop.name);
  }
  return names;
}

Result<std::unique_ptr<Ceiling>> Ceiling::create(std::string_view name, std::string_view dtype) {
  const auto loop = std::ranges::find_if(
      loops(), [&](const Loop& each) { return each.name == name && (each.dtype.empty() || each.dtype == dtype); });
  auto ceiling = std::make_unique<OnCard>(&*loop);
  if (const Status prepared = ceiling->prepare(); !prepared) return passed_on(prepared);
  return ceiling;
}

}  // namespace ladder
