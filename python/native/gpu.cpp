#include "python/native/gpu.hpp"

#include <cuda_runtime.h>

#include "common/ptx/device.cuh"

namespace ladder {
namespace {

Status checked(cudaError_t error, const std::string& doing) {
  if (error == cudaSuccess) return {};
  return failure(ExitCode::check_failed,
                 doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

// Makes a GPU the current one for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != device) error_ = cudaSetDevice(device);
    changed_ = error_ == cudaSuccess && before_ != device;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

}  // namespace

Result<GpuInfo> gpu_numbered(int device) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) {
    cudaGetLastError();
    return failure(ExitCode::cannot_run_here,
                   "GPU " + std::to_string(device) + " does not answer: " + cudaGetErrorString(error));
  }
  GpuInfo info;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.smem_per_block = properties.sharedMemPerBlockOptin;
  return info;
}

namespace {

template <class Start>
Status start_in(void* stream, int device, Start start) {
  const CurrentDevice current(device);
  if (auto status = checked(current.error(), "choosing GPU " + std::to_string(device)); !status) return status;
  gpu::Device where{.stream = static_cast<cudaStream_t>(stream)};
  start(where);
  return checked(where.error, "the launch was refused");
}

}  // namespace

Status start_on_gpu(const Variant& variant, const Arguments& arguments, const LogSumExpParams* lse, int device,
                    void* stream) {
  return start_in(stream, device, [&](gpu::Device& where) {
    variant.on_gpu.with(arguments)(where);
    if (lse != nullptr) log_sum_exp(where, *lse);
  });
}

Status append_on_gpu(const AppendParams& params, int device, void* stream) {
  return start_in(stream, device, [&](gpu::Device& where) { append(where, params); });
}

Status merge_on_gpu(const MergeParams& params, int device, void* stream) {
  return start_in(stream, device, [&](gpu::Device& where) { merge(where, params); });
}

}  // namespace ladder
