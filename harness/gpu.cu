// The GPU's side of the harness, through the CUDA runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <source_location>
#include <string_view>

#include "common/ptx/launch.cuh"
#include "harness/gpu.hpp"
#include "harness/guarded.hpp"

namespace ladder {
namespace {

using Here = std::source_location;

std::string where(const Here& here) {
  const std::string_view path = here.file_name();
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(here.line());
}

// Success, or what the runtime said about the call, with its source line.
Status checked(cudaError_t error, const std::string& doing, const Here& here = Here::current()) {
  if (error == cudaSuccess) return {};
  return failure(ExitCode::check_failed,
                 doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ", " + where(here) + ")");
}

std::string gib(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1024.0 * 1024.0 * 1024.0));
  return text;
}

struct FreeOnDevice {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};

// One allocation: guard zone, payload, guard zone.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> create(std::string name, size_t bytes) {
    DeviceBuffer buffer;
    buffer.name_ = std::move(name);
    buffer.bytes_ = bytes;
    std::byte* memory = nullptr;
    if (auto status = checked(cudaMalloc(&memory, bytes + 2 * GUARD_BYTES), "allocating " + gib(double(bytes)));
        !status) {
      cudaGetLastError();  // an allocation that failed is no reason for later calls to fail
      return tl::make_unexpected(status.error());
    }
    buffer.memory_.reset(memory);
    for (std::byte* guard : {memory, memory + GUARD_BYTES + bytes}) {
      if (auto status = checked(cudaMemset(guard, GUARD_BYTE, GUARD_BYTES), "filling a guard zone"); !status) {
        return tl::make_unexpected(status.error());
      }
    }
    return buffer;
  }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get() + GUARD_BYTES);
  }
  size_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

  Status check_guards() const {
    std::array<std::byte, GUARD_BYTES> guard;
    const auto read = [&](const std::byte* from) {
      return checked(cudaMemcpy(guard.data(), from, guard.size(), cudaMemcpyDeviceToHost), "reading a guard zone");
    };
    if (auto status = read(memory_.get()); !status) return status;
    if (const auto at = overwritten(guard)) {
      return failure(ExitCode::check_failed,
                     "a write " + std::to_string(GUARD_BYTES - *at) + " bytes before the start of " + name_);
    }
    if (auto status = read(memory_.get() + GUARD_BYTES + bytes_); !status) return status;
    if (const auto at = overwritten(guard)) {
      return failure(ExitCode::check_failed, "a write " + std::to_string(*at) + " bytes behind the end of " + name_);
    }
    return {};
  }

 private:
  std::string name_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, FreeOnDevice> memory_;
};

class Event {
 public:
  Event() { error_ = cudaEventCreate(&event_); }
  ~Event() {
    if (error_ == cudaSuccess) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaError_t created() const { return error_; }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
  cudaError_t error_;
};

__global__ void fill(f16* values, int64_t count, f16 value) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) values[i] = value;
}

std::string version(int number) {  // 13000 is 13.0
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace

Result<GpuInfo> gpu_info() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaDriverGetVersion(&driver);  // stays 0 where there is no driver; the runtime would call that one "insufficient"
    const std::string reason = driver == 0            ? "no NVIDIA driver is loaded"
                               : error == cudaSuccess ? "the driver lists none"
                                                      : cudaGetErrorString(error);
    return failure(ExitCode::cannot_run_here,
                   "No GPU: " + reason + ".\n  Here:  add --on cpu      the same kernels, emulated");
  }
  cudaDeviceProp properties{};
  size_t free = 0, total = 0;
  std::array<char, 32> bus{};
  for (const Status& status :
       {checked(cudaSetDevice(0), "choosing GPU 0"), checked(cudaGetDeviceProperties(&properties, 0), "asking GPU 0"),
        checked(cudaMemGetInfo(&free, &total), "asking for its memory"),
        checked(cudaDriverGetVersion(&driver), "asking for the driver"),
        checked(cudaRuntimeGetVersion(&runtime), "asking for the CUDA runtime"),
        checked(cudaDeviceGetPCIBusId(bus.data(), bus.size(), 0), "asking for its PCI address")}) {
    if (!status) return failure(ExitCode::cannot_run_here, "The GPU does not answer. " + status.error().message);
  }
  GpuInfo info;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.processors = properties.multiProcessorCount;
  info.memory_total = total;
  info.memory_free = free;
  info.smem_per_block = properties.sharedMemPerBlockOptin;
  info.driver = "CUDA " + version(driver);
  info.cuda = version(runtime);
  info.pci_bus_id = bus.data();
  return info;
}

Result<KernelResources> gpu_resources(const Variant& variant, int n) {
  cudaFuncAttributes attributes{};
  int blocks = 0;
  const auto smem = static_cast<int>(variant.smem_at(n));
  for (const Status& status :
       {checked(cudaFuncGetAttributes(&attributes, variant.gpu_kernel), "asking for a kernel's registers"),
        // Raised where needed, never lowered: launch() counts on the 48 KiB that every kernel may have.
        checked(cudaFuncSetAttribute(variant.gpu_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     std::max(smem, 48 * 1024)),
                "raising a kernel's shared memory"),
        checked(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                    &blocks, variant.gpu_kernel, variant.tile.warps > 0 ? variant.tile.warps * 32 : 256, smem),
                "asking for a kernel's occupancy")}) {
    if (!status) return tl::make_unexpected(status.error());
  }
  return KernelResources{attributes.numRegs, static_cast<int>(attributes.localSizeBytes), blocks};
}

struct GpuProblem::Buffers {
  Shape shape;
  DeviceBuffer Q, K, V, O, LSE;
  DeviceBuffer S;  // empty unless the stage materialises its scores
  AttentionParams params{};

  std::vector<const DeviceBuffer*> all() const {
    std::vector<const DeviceBuffer*> buffers{&Q, &K, &V, &O, &LSE};
    if (S.bytes() > 0) buffers.push_back(&S);
    return buffers;
  }
};

GpuProblem::GpuProblem(std::unique_ptr<Buffers> buffers) : buffers_(std::move(buffers)) {}
GpuProblem::GpuProblem(GpuProblem&&) noexcept = default;
GpuProblem& GpuProblem::operator=(GpuProblem&&) noexcept = default;
GpuProblem::~GpuProblem() = default;

Result<GpuProblem> GpuProblem::create(const Shape& shape, const Inputs& inputs, bool with_scores) {
  size_t free = 0, total = 0;
  if (auto status = checked(cudaMemGetInfo(&free, &total), "asking for the GPU's memory"); !status) {
    return tl::make_unexpected(status.error());
  }
  const size_t needed = gpu_bytes_needed(shape, with_scores);
  if (needed > free) {
    return failure(ExitCode::cannot_run_here, "This problem needs " + gib(double(needed)) + " of GPU memory; " +
                                                  gib(double(free)) + " of " + gib(double(total)) + " are free.");
  }
  auto buffers = std::make_unique<Buffers>();
  buffers->shape = shape;
  const size_t bytes = size_t(shape.elements()) * sizeof(f16);
  const auto make = [&](DeviceBuffer& buffer, const char* name, size_t size) -> Status {
    auto made = DeviceBuffer::create(name, size);
    if (!made) return tl::make_unexpected(made.error());
    buffer = std::move(*made);
    return {};
  };
  const auto upload = [&](DeviceBuffer& buffer, const char* name, const std::vector<f16>& values) -> Status {
    if (auto status = make(buffer, name, bytes); !status) return status;
    return checked(cudaMemcpy(buffer.as<f16>(), values.data(), bytes, cudaMemcpyHostToDevice),
                   std::string("uploading ") + name);
  };
  if (auto status = upload(buffers->Q, "Q", inputs.Q); !status) return tl::make_unexpected(status.error());
  if (auto status = upload(buffers->K, "K", inputs.K); !status) return tl::make_unexpected(status.error());
  if (auto status = upload(buffers->V, "V", inputs.V); !status) return tl::make_unexpected(status.error());
  if (auto status = make(buffers->O, "O", bytes); !status) return tl::make_unexpected(status.error());
  const size_t lse_bytes = size_t(shape.batch_heads()) * shape.n * sizeof(float);
  if (auto status = make(buffers->LSE, "LSE", lse_bytes); !status) return tl::make_unexpected(status.error());
  if (with_scores) {
    const size_t score_bytes = size_t(shape.batch_heads()) * shape.n * shape.n * sizeof(float);
    if (auto status = make(buffers->S, "S", score_bytes); !status) return tl::make_unexpected(status.error());
    if (auto status = checked(cudaMemset(buffers->S.as<float>(), 0xff, score_bytes), "poisoning S"); !status) {
      return tl::make_unexpected(status.error());
    }
  }
  AttentionParams& params = buffers->params;
  params = params_for(shape);
  params.Q = buffers->Q.as<f16>();
  params.K = buffers->K.as<f16>();
  params.V = buffers->V.as<f16>();
  params.O = buffers->O.as<f16>();
  params.LSE = buffers->LSE.as<float>();
  params.S = with_scores ? buffers->S.as<float>() : nullptr;
  GpuProblem problem(std::move(buffers));
  if (auto status = problem.poison_output(); !status) return tl::make_unexpected(status.error());
  return problem;
}

Status GpuProblem::poison_output() {
  fill<<<1024, 256>>>(buffers_->O.as<f16>(), buffers_->shape.elements(), POISON);
  if (auto status = checked(cudaGetLastError(), "poisoning O"); !status) return status;
  const DeviceBuffer& lse = buffers_->LSE;
  if (auto status = checked(cudaMemset(lse.as<float>(), 0xff, lse.bytes()), "poisoning LSE"); !status) return status;
  return checked(cudaDeviceSynchronize(), "poisoning O and LSE");
}

Status GpuProblem::run(const Variant& variant) {
  Device device;
  variant.on_gpu(device, buffers_->params);
  if (auto status = checked(device.error, "the launch was refused"); !status) return status;
  return checked(cudaDeviceSynchronize(), "the kernel died");
}

Result<double> GpuProblem::time_ms(const Variant& variant, int launches) {
  const Event start, stop;
  Device device;
  float milliseconds = 0;
  for (const Event* event : {&start, &stop}) {
    if (auto status = checked(event->created(), "creating an event"); !status) {
      return tl::make_unexpected(status.error());
    }
  }
  cudaError_t error = cudaEventRecord(start.get(), device.stream);
  for (int i = 0; i < launches; ++i) variant.on_gpu(device, buffers_->params);
  if (error == cudaSuccess) error = device.error;
  if (error == cudaSuccess) error = cudaEventRecord(stop.get(), device.stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(stop.get());
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, start.get(), stop.get());
  if (auto status = checked(error, "timing " + variant.label); !status) return tl::make_unexpected(status.error());
  return double{milliseconds};
}

Result<std::vector<f16>> GpuProblem::read_output() const {
  std::vector<f16> output(buffers_->shape.elements());
  const cudaError_t error =
      cudaMemcpy(output.data(), buffers_->O.as<f16>(), buffers_->O.bytes(), cudaMemcpyDeviceToHost);
  if (auto status = checked(error, "reading O"); !status) return tl::make_unexpected(status.error());
  return output;
}

Result<std::vector<float>> GpuProblem::read_lse() const {
  const DeviceBuffer& buffer = buffers_->LSE;
  std::vector<float> lse(buffer.bytes() / sizeof(float));
  const cudaError_t error = cudaMemcpy(lse.data(), buffer.as<float>(), buffer.bytes(), cudaMemcpyDeviceToHost);
  if (auto status = checked(error, "reading LSE"); !status) return tl::make_unexpected(status.error());
  return lse;
}

Result<std::vector<f16>> GpuProblem::read_output_rows(std::span<const int64_t> rows) const {
  const size_t d = buffers_->shape.d;
  std::vector<f16> output(rows.size() * d);
  for (size_t i = 0; i < rows.size(); ++i) {
    const cudaError_t error = cudaMemcpyAsync(output.data() + i * d, buffers_->O.as<f16>() + rows[i] * d,
                                              d * sizeof(f16), cudaMemcpyDeviceToHost);
    if (auto status = checked(error, "reading rows of O"); !status) return tl::make_unexpected(status.error());
  }
  if (auto status = checked(cudaDeviceSynchronize(), "reading rows of O"); !status) {
    return tl::make_unexpected(status.error());
  }
  return output;
}

Status GpuProblem::check_guards() const {
  for (const DeviceBuffer* buffer : buffers_->all()) {
    if (auto status = buffer->check_guards(); !status) return status;
  }
  return {};
}

Status GpuProblem::check_inputs(const Inputs& inputs) const {
  std::vector<f16> now(inputs.Q.size());
  const std::pair<const DeviceBuffer*, const std::vector<f16>*> pairs[] = {
      {&buffers_->Q, &inputs.Q}, {&buffers_->K, &inputs.K}, {&buffers_->V, &inputs.V}};
  for (const auto& [buffer, original] : pairs) {
    const cudaError_t error = cudaMemcpy(now.data(), buffer->as<f16>(), buffer->bytes(), cudaMemcpyDeviceToHost);
    if (auto status = checked(error, "reading " + buffer->name()); !status) return status;
    if (std::memcmp(now.data(), original->data(), buffer->bytes()) != 0) {
      return failure(ExitCode::check_failed, buffer->name() + " was changed");
    }
  }
  return {};
}

}  // namespace ladder
