// The GPU's side of the harness, through the CUDA runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <source_location>
#include <string_view>

#include "common/ptx/convert.cuh"
#include "common/ptx/launch.cuh"
#include "harness/devices/gpu.hpp"
#include "harness/devices/guarded.hpp"

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

__device__ uint64_t hash(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

__device__ void store(f16& to, float value) {
  to = ::to_f16(value);
}
__device__ void store(float& to, float value) {
  to = value;
}

// Uniform numbers in middle +-spread, or the NaN without a spread.
template <class T>
__global__ void fill(T* values, int64_t count, T nan, uint64_t seed, float middle, float spread) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (spread > 0) {
      store(values[i], middle + (static_cast<float>(hash(seed ^ hash(i)) >> 40) * 0x1p-23f - 1.0f) * spread);
    } else {
      values[i] = nan;
    }
  }
}

__global__ void negate(f16* values, int64_t per_head, const uint8_t* flip, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    if (flip[i / per_head]) values[i].bits ^= 0x8000;
  }
}

// A block copies one row.
template <class T>
__global__ void gather(const T* const* rows, T* to, int width) {
  for (int i = threadIdx.x; i < width; i += blockDim.x) to[int64_t{blockIdx.x} * width + i] = rows[blockIdx.x][i];
}

// The given rows of GPU memory, `width` elements each, in one piece.
template <class T>
Result<std::vector<T>> read_rows(const std::vector<const T*>& rows, int width, const char* doing) {
  std::vector<T> values(rows.size() * width);
  if (rows.empty()) return values;
  const size_t table_bytes = rows.size() * sizeof(rows[0]), value_bytes = values.size() * sizeof(T);
  // From the stream's pool: after the first time no allocation reaches the driver.
  std::byte* table = nullptr;
  cudaError_t error = cudaMallocAsync(&table, table_bytes + value_bytes, nullptr);
  if (error == cudaSuccess) {
    T* const gathered = reinterpret_cast<T*>(table + table_bytes);
    error = cudaMemcpy(table, rows.data(), table_bytes, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
      gather<<<static_cast<unsigned>(rows.size()), 128>>>(reinterpret_cast<const T* const*>(table), gathered, width);
      error = cudaGetLastError();
    }
    if (error == cudaSuccess) error = cudaMemcpy(values.data(), gathered, value_bytes, cudaMemcpyDeviceToHost);
    cudaFreeAsync(table, nullptr);
  }
  if (auto status = checked(error, doing); !status) return tl::make_unexpected(status.error());
  return values;
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
  struct Output {
    DeviceBuffer O, LSE;
  };
  Shape shape;
  int64_t heads = 0;  // in Q, K and V
  DeviceBuffer Q, K, V;
  DeviceBuffer workspace;  // empty unless a stage needs it, for its scores
  std::vector<Output> outputs;

  std::vector<const DeviceBuffer*> all() const {
    std::vector<const DeviceBuffer*> buffers{&Q, &K, &V};
    for (const Output& output : outputs) buffers.insert(buffers.end(), {&output.O, &output.LSE});
    if (workspace.bytes() > 0) buffers.push_back(&workspace);
    return buffers;
  }

  AttentionParams params(const Launch& launch) const {
    const int64_t head = int64_t{shape.n} * shape.d;
    AttentionParams params = params_for(shape);
    params.Q = Q.as<f16>() + launch.view.q * head;
    params.K = K.as<f16>() + launch.view.k * head;
    params.V = V.as<f16>() + launch.view.v * head;
    params.O = outputs[launch.output].O.as<f16>();
    params.LSE = outputs[launch.output].LSE.as<float>();
    params.workspace = workspace.bytes() > 0 ? workspace.as<std::byte>() : nullptr;
    return params;
  }

  // All buffers, with nothing in them but poison.
  static Result<std::unique_ptr<Buffers>> create(const Shape& shape, bool with_scores, int more_heads, int outputs) {
    size_t free = 0, total = 0;
    if (auto status = checked(cudaMemGetInfo(&free, &total), "asking for the GPU's memory"); !status) {
      return tl::make_unexpected(status.error());
    }
    const size_t needed = gpu_bytes_needed(shape, with_scores, more_heads, outputs);
    if (needed > free) {
      return failure(ExitCode::cannot_run_here, "This problem needs " + gib(double(needed)) + " of GPU memory; " +
                                                    gib(double(free)) + " of " + gib(double(total)) + " are free.");
    }
    auto buffers = std::make_unique<Buffers>();
    buffers->shape = shape;
    buffers->heads = shape.batch_heads() + more_heads;
    buffers->outputs.resize(outputs);
    Status status;
    const auto make = [&](DeviceBuffer& buffer, const char* name, size_t bytes) {
      if (!status) return;
      auto made = DeviceBuffer::create(name, bytes);
      if (made) {
        buffer = std::move(*made);
      } else {
        status = tl::make_unexpected(made.error());
      }
    };
    const size_t input_bytes = size_t(buffers->heads) * shape.n * shape.d * sizeof(f16);
    make(buffers->Q, "Q", input_bytes);
    make(buffers->K, "K", input_bytes);
    make(buffers->V, "V", input_bytes);
    for (Output& output : buffers->outputs) {
      make(output.O, "O", size_t(shape.elements()) * sizeof(f16));
      make(output.LSE, "LSE", size_t(shape.batch_heads()) * shape.n * sizeof(float));
    }
    if (with_scores) {
      make(buffers->workspace, "workspace", size_t(shape.batch_heads()) * shape.n * shape.n * sizeof(float));
      DeviceBuffer& workspace = buffers->workspace;
      if (status)
        status = checked(cudaMemset(workspace.as<std::byte>(), 0xff, workspace.bytes()), "poisoning the workspace");
    }
    if (!status) return tl::make_unexpected(status.error());
    return buffers;
  }

  // Q, K and V of `inputs` into the heads from `first` on.
  Status upload(const Inputs& inputs, int64_t first) {
    const std::pair<const DeviceBuffer*, const std::vector<f16>*> pairs[] = {
        {&Q, &inputs.Q}, {&K, &inputs.K}, {&V, &inputs.V}};
    for (const auto& [buffer, values] : pairs) {
      f16* const to = buffer->as<f16>() + first * shape.n * shape.d;
      const cudaError_t error = cudaMemcpy(to, values->data(), values->size() * sizeof(f16), cudaMemcpyHostToDevice);
      if (auto status = checked(error, "uploading " + buffer->name()); !status) return status;
    }
    return {};
  }
};

GpuProblem::GpuProblem(std::unique_ptr<Buffers> buffers) : buffers_(std::move(buffers)) {}
GpuProblem::GpuProblem(GpuProblem&&) noexcept = default;
GpuProblem& GpuProblem::operator=(GpuProblem&&) noexcept = default;
GpuProblem::~GpuProblem() = default;

Result<GpuProblem> GpuProblem::create(const Shape& shape, const Inputs& inputs, bool with_scores,
                                      const Inputs& more_heads, int outputs) {
  const auto more = static_cast<int>(more_heads.Q.size() / (size_t(shape.n) * shape.d));
  auto buffers = Buffers::create(shape, with_scores, more, outputs);
  if (!buffers) return tl::make_unexpected(buffers.error());
  Status status = (*buffers)->upload(inputs, 0);
  if (status) status = (*buffers)->upload(more_heads, shape.batch_heads());
  GpuProblem problem(std::move(*buffers));
  if (status) status = problem.poison_output();
  if (!status) return tl::make_unexpected(status.error());
  return problem;
}

Result<GpuProblem> GpuProblem::create_repeated(const Shape& shape, const Inputs& few, bool with_scores) {
  auto buffers = Buffers::create(shape, with_scores, 0, 1);
  if (!buffers) return tl::make_unexpected(buffers.error());
  Status status = (*buffers)->upload(few, 0);
  for (const DeviceBuffer* buffer : {&(*buffers)->Q, &(*buffers)->K, &(*buffers)->V}) {
    // What is there is copied behind itself until the buffer is full.
    std::byte* const data = buffer->as<std::byte>();
    for (size_t done = few.Q.size() * sizeof(f16); status && done < buffer->bytes();) {
      const size_t bytes = std::min(done, buffer->bytes() - done);
      status = checked(cudaMemcpy(data + done, data, bytes, cudaMemcpyDeviceToDevice), "repeating " + buffer->name());
      done += bytes;
    }
  }
  GpuProblem problem(std::move(*buffers));
  if (status) status = problem.poison_output();
  if (!status) return tl::make_unexpected(status.error());
  return problem;
}

Status GpuProblem::upload(const Inputs& inputs) {
  return buffers_->upload(inputs, 0);
}

Status GpuProblem::poison_output() {
  for (size_t output = 0; output < buffers_->outputs.size(); ++output) {
    if (auto status = fill_output(static_cast<int>(output), {}); !status) return status;
  }
  return checked(cudaDeviceSynchronize(), "poisoning O and LSE");
}

Status GpuProblem::fill_output(int output, const Filling& filling) {
  const auto& [O, LSE] = buffers_->outputs[output];
  // Two f16 NaNs side by side are an f32 NaN.
  const float nan = std::bit_cast<float>(uint32_t{filling.nan.bits} * 0x10001u);
  fill<f16><<<1024, 256>>>(O.as<f16>(), buffers_->shape.elements(), filling.nan, filling.seed, 0.0f, filling.O_spread);
  fill<float><<<1024, 256>>>(LSE.as<float>(), static_cast<int64_t>(LSE.bytes() / sizeof(float)), nan, ~filling.seed,
                             filling.LSE_middle, filling.O_spread > 0 ? filling.LSE_spread : 0.0f);
  return checked(cudaGetLastError(), "poisoning O and LSE");
}

Status GpuProblem::negate_v(std::span<const uint8_t> flip) {
  const int64_t per_head = int64_t{buffers_->shape.n} * buffers_->shape.d;
  uint8_t* table = nullptr;
  cudaError_t error = cudaMallocAsync(&table, flip.size(), nullptr);
  if (error == cudaSuccess) {
    error = cudaMemcpy(table, flip.data(), flip.size(), cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
      negate<<<1024, 256>>>(buffers_->V.as<f16>(), per_head, table, static_cast<int64_t>(flip.size()) * per_head);
      error = cudaGetLastError();
    }
    cudaFreeAsync(table, nullptr);
  }
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  return checked(error, "changing the sign of V");
}

Status GpuProblem::run(const Variant& variant, const Launch& launch) {
  Device device;
  variant.on_gpu(device, buffers_->params(launch));
  if (auto status = checked(device.error, "the launch was refused"); !status) return status;
  return checked(cudaDeviceSynchronize(), "the kernel died");
}

Result<double> GpuProblem::time_ms(const Variant& variant, std::span<const Launch> launches) {
  const Event start, stop;
  Device device;
  float milliseconds = 0;
  for (const Event* event : {&start, &stop}) {
    if (auto status = checked(event->created(), "creating an event"); !status) {
      return tl::make_unexpected(status.error());
    }
  }
  std::vector<AttentionParams> params;  // made before the clock starts
  for (const Launch& launch : launches) params.push_back(buffers_->params(launch));
  cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaEventRecord(start.get(), device.stream);
  for (const AttentionParams& each : params) variant.on_gpu(device, each);
  if (error == cudaSuccess) error = device.error;
  if (error == cudaSuccess) error = cudaEventRecord(stop.get(), device.stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(stop.get());
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, start.get(), stop.get());
  if (auto status = checked(error, "timing " + variant.label); !status) return tl::make_unexpected(status.error());
  return double{milliseconds};
}

Result<std::vector<f16>> GpuProblem::read_output(int output) const {
  const DeviceBuffer& buffer = buffers_->outputs[output].O;
  std::vector<f16> values(buffer.bytes() / sizeof(f16));
  const cudaError_t error = cudaMemcpy(values.data(), buffer.as<f16>(), buffer.bytes(), cudaMemcpyDeviceToHost);
  if (auto status = checked(error, "reading O"); !status) return tl::make_unexpected(status.error());
  return values;
}

Result<std::vector<float>> GpuProblem::read_lse(int output) const {
  const DeviceBuffer& buffer = buffers_->outputs[output].LSE;
  std::vector<float> lse(buffer.bytes() / sizeof(float));
  const cudaError_t error = cudaMemcpy(lse.data(), buffer.as<float>(), buffer.bytes(), cudaMemcpyDeviceToHost);
  if (auto status = checked(error, "reading LSE"); !status) return tl::make_unexpected(status.error());
  return lse;
}

Result<std::vector<f16>> GpuProblem::read_output_rows(std::span<const OutputRow> rows) const {
  std::vector<const f16*> from;
  for (const OutputRow& row : rows) {
    from.push_back(buffers_->outputs[row.output].O.as<f16>() + row.row * buffers_->shape.d);
  }
  return read_rows(from, buffers_->shape.d, "reading rows of O");
}

Result<std::vector<float>> GpuProblem::read_lse_rows(std::span<const OutputRow> rows) const {
  std::vector<const float*> from;
  for (const OutputRow& row : rows) from.push_back(buffers_->outputs[row.output].LSE.as<float>() + row.row);
  return read_rows(from, 1, "reading rows of LSE");
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
    const size_t bytes = original->size() * sizeof(f16);
    const cudaError_t error = cudaMemcpy(now.data(), buffer->as<f16>(), bytes, cudaMemcpyDeviceToHost);
    if (auto status = checked(error, "reading " + buffer->name()); !status) return status;
    if (std::memcmp(now.data(), original->data(), bytes) != 0) {
      return failure(ExitCode::check_failed, buffer->name() + " was changed");
    }
  }
  return {};
}

}  // namespace ladder
