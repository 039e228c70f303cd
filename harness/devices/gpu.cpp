// The GPU's side of the harness, through the CUDA runtime.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string_view>

#include "common/ptx/device.cuh"
#include "harness/base/table.hpp"
#include "harness/devices/cuda_calls.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/devices/gpu_kernels.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

using gpu::Device;

// One allocation: guard zone, payload, guard zone.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> create(std::string name, size_t bytes) {
    DeviceBuffer buffer;
    buffer.name_ = std::move(name);
    buffer.bytes_ = bytes;
    std::byte* memory = nullptr;
    const std::string doing = "allocating " + bytes_text(double(bytes));
    if (auto status = checked(cudaMalloc(&memory, bytes + 2 * GUARD_BYTES), doing); !status) {
      cudaGetLastError();  // an allocation that failed is no reason for later calls to fail
      return failure(ExitCode::cannot_run_here, "{}", status.error().message);
    }
    buffer.memory_.reset(memory);
    for (std::byte* guard : {memory, memory + GUARD_BYTES + bytes}) {
      if (auto status = checked(cudaMemset(guard, GUARD_BYTE, GUARD_BYTES), "filling a guard zone"); !status) {
        return passed_on(status);
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
  std::array<const std::byte*, 2> guards() const { return {memory_.get(), memory_.get() + GUARD_BYTES + bytes_}; }

  Status check_guards() const {
    std::array<std::byte, GUARD_BYTES> guard;
    std::vector<std::string> messages;
    for (const std::byte* zone : guards()) {
      const cudaError_t error = cudaMemcpy(guard.data(), zone, guard.size(), cudaMemcpyDeviceToHost);
      if (auto status = checked(error, "reading a guard zone"); !status) return status;
      report_overwritten(guard, zone == memory_.get(), name_, messages);
    }
    return messages.empty() ? Status{} : failure(ExitCode::check_failed, "a write " + messages.front());
  }

 private:
  std::string name_;
  size_t bytes_ = 0;
  std::unique_ptr<std::byte, FreeOnDevice> memory_;
};

// Calls work(the table, so many bytes behind it), both in GPU memory, for as long as that. From the stream's pool: after the first time
// no allocation reaches the driver.
template <class T, class Work>
cudaError_t with_table(std::span<T> table, size_t bytes_behind, const Work& work) {
  std::byte* memory = nullptr;
  cudaError_t error = cudaMallocAsync(&memory, table.size_bytes() + bytes_behind, nullptr);
  if (error != cudaSuccess) return error;
  error = cudaMemcpy(memory, table.data(), table.size_bytes(), cudaMemcpyHostToDevice);
  if (error == cudaSuccess) error = work(reinterpret_cast<T*>(memory), memory + table.size_bytes());
  cudaFreeAsync(memory, nullptr);
  return error;
}

std::string version(int number) {  // 13000 is 13.0
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
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
  return GpuInfo{.name = properties.name,
                 .sm = properties.major * 10 + properties.minor,
                 .processors = properties.multiProcessorCount,
                 .memory_total = total,
                 .memory_free = free,
                 .smem_per_block = properties.sharedMemPerBlockOptin,
                 .driver = "CUDA " + version(driver),
                 .cuda = version(runtime),
                 .pci_bus_id = bus.data()};
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
    if (!status) return passed_on(status);
  }
  return KernelResources{attributes.numRegs, static_cast<int>(attributes.localSizeBytes), blocks};
}

namespace {

class SmCounters final : public SmClocks {
 public:
  Status allocate() {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device);
    for (Times* times : {&at_start_, &now_}) {
      SmTime* memory = nullptr;
      if (error == cudaSuccess) error = cudaMallocHost(&memory, sizeof(SmTime) * processors_);
      times->reset(memory);
    }
    return checked(error, "counting clocks");
  }

  void start() override { started_ = read(at_start_.get()); }
  std::optional<double> stop() override {
    if (!std::exchange(started_, false) || !read(now_.get())) return {};
    std::vector<double> mhz;
    for (int sm = 0; sm < processors_; ++sm) {
      const SmTime &from = at_start_[sm], &to = now_[sm];
      if (from.ns == 0 || to.ns <= from.ns) continue;
      mhz.push_back(1e3 * static_cast<double>(to.cycles - from.cycles) / static_cast<double>(to.ns - from.ns));
    }
    if (mhz.empty()) return {};
    std::ranges::nth_element(mhz, mhz.begin() + std::ssize(mhz) / 2);
    return mhz[mhz.size() / 2];
  }

 private:
  // As many blocks as there are SMs: nearly every SM gets one, and the others keep their 0.
  bool read(SmTime* to) const {
    std::fill_n(to, processors_, SmTime{});
    read_clocks(to, processors_);
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  }

  using Times = std::unique_ptr<SmTime[], FreePinned>;  // of all SMs, written by the card
  int processors_ = 0;
  Times at_start_, now_;
  bool started_ = false;
};

}  // namespace

Result<std::unique_ptr<SmClocks>> SmClocks::create() {
  auto counters = std::make_unique<SmCounters>();
  if (auto status = counters->allocate(); !status) return passed_on(status);
  return counters;
}

namespace {

class OnCard final : public GpuProblem {
 public:
  // All buffers, with nothing in them but poison.
  static Result<std::unique_ptr<OnCard>> create(const Shape& shape, uint64_t workspace_bytes, int64_t more_heads,
                                                int outputs) {
    size_t free = 0, total = 0;
    if (auto status = checked(cudaMemGetInfo(&free, &total), "asking for the GPU's memory"); !status) {
      return passed_on(status);
    }
    const size_t needed = gpu_bytes_needed(shape, workspace_bytes, static_cast<int>(more_heads), outputs);
    if (needed > free) {
      return failure(ExitCode::cannot_run_here, "This problem needs {} of GPU memory; {} of {} are free.",
                     bytes_text(double(needed)), bytes_text(double(free)), bytes_text(double(total)));
    }
    auto problem = std::make_unique<OnCard>();
    problem->shape_ = shape;
    Status status;
    const auto make = [&](std::string_view name, size_t bytes) {
      auto made = DeviceBuffer::create(std::string(name), bytes);
      if (!made && status) status = passed_on(made);
      return made ? std::move(*made) : DeviceBuffer();
    };
    const Formula& formula = formula_of(shape);
    const std::vector<TensorSpec> inputs = formula.inputs(shape);
    for (TensorSpec spec : inputs) {
      spec = spec.with_more(units_of_more(inputs, spec, more_heads));
      problem->inputs_.push_back({spec, make(spec.name, spec.memory_bytes())});
    }
    problem->outputs_.resize(outputs);
    for (DeviceTensors& set : problem->outputs_) {
      for (const TensorSpec& spec : formula.outputs(shape)) set.push_back({spec, make(spec.name, spec.memory_bytes())});
    }
    if (workspace_bytes > 0) {
      problem->workspace_ = make("workspace", workspace_bytes);
      if (status) {
        status =
            checked(cudaMemset(problem->workspace_.as<std::byte>(), 0xff, workspace_bytes), "poisoning the workspace");
      }
    }
    if (status) status = problem->poison_output();
    if (!status) return passed_on(status);
    return problem;
  }

  // Behind the units of `before`. Between the rows there is poison.
  Status upload(const Inputs& values, const Inputs& before = {}) {
    for (size_t i = 0; i < values.size(); ++i) {
      const DeviceTensor& input = inputs_[i];
      const Tensor& value = values.at(i);
      const int64_t first = before.empty() ? 0 : before.at(i).spec().units();
      if (first > 0 && input.spec.is_fixed) continue;
      const std::vector<std::byte> memory = in_memory(value);
      const std::span<const std::byte> bytes = memory.empty() ? value.bytes() : memory;
      const cudaError_t error = cudaMemcpy(input.begin(first), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
      if (auto status = checked(error, "uploading " + input.buffer.name()); !status) return status;
    }
    return {};
  }

  // What is there of each input is copied behind itself until the buffer is full.
  Status repeat(const Inputs& few) {
    Status status;
    for (const DeviceTensor& input : inputs_) {
      std::byte* const data = input.buffer.as<std::byte>();
      for (size_t done = few[input.spec.name].bytes().size(); status && done < input.buffer.bytes();) {
        const size_t bytes = std::min(done, input.buffer.bytes() - done);
        status =
            checked(cudaMemcpy(data + done, data, bytes, cudaMemcpyDeviceToDevice), "repeating " + input.buffer.name());
        done += bytes;
      }
    }
    return status;
  }

  Status poison_output() override {
    for (size_t output = 0; output < outputs_.size(); ++output) {
      if (auto status = fill_output(static_cast<int>(output), {}); !status) return status;
    }
    return checked(cudaDeviceSynchronize(), "poisoning the outputs");
  }

  Status fill_output(int output, const Filling& filling) override {
    const DeviceTensors& set = outputs_[output];
    for (size_t i = 0; i < set.size(); ++i) {
      const Filling::Numbers numbers = filling.numbers.empty() ? Filling::Numbers{} : filling.numbers[i];
      const DeviceBuffer& buffer = set[i].buffer;
      const ElementInfo& of = info(set[i].spec.element);
      const auto fill_with = [&](auto nan) {
        fill(buffer.as<decltype(nan)>(), static_cast<int64_t>(buffer.bytes() / sizeof nan), nan, filling.seed + i,
             numbers.middle, numbers.spread);
      };
      if (set[i].spec.is_added_to) {
        cudaMemsetAsync(buffer.as<std::byte>(), 0, buffer.bytes());
      } else if (of.element == Element::f16) {
        fill_with(filling.nan);
      } else if (of.element == Element::bf16) {
        fill_with(bf16{static_cast<uint16_t>(filling.nan.bits | 0x7f81)});  // an f16's NaN may be a number in bf16
      } else if (of.element == Element::f32) {
        fill_with(std::bit_cast<float>(uint32_t{filling.nan.bits} * 0x10001u));  // two of them are an f32 NaN
      } else {
        std::vector<std::byte> poisoned(buffer.bytes());
        poison(of.element, poisoned);
        cudaMemcpy(buffer.as<std::byte>(), poisoned.data(), poisoned.size(), cudaMemcpyHostToDevice);
      }
    }
    return checked(cudaGetLastError(), "poisoning the outputs");
  }

  Status negate(std::string_view name, std::span<const uint8_t> flip) override {
    const DeviceTensor& input = find(inputs_, name);
    cudaError_t error = with_table(flip, 0, [&](const uint8_t* table, std::byte*) {
      const TensorSpec& of = input.spec;
      const bool alike = of.lengths.count == 0 && of.page == 0;
      const int64_t piece = of.page > 0 ? of.page : of.rows();                        // rows that lie in one
      for (int64_t sequence = 0; sequence < (alike ? 1 : of.shape[0]); ++sequence) {  // of a length of its own
        const int64_t unit = sequence * of.shape[1];
        for (int64_t row = 0; row < of.rows_of(unit); row += piece) {
          change_sign(input.row(unit, row),
                      {alike ? of.units() : of.shape[1],
                       of.shape[1],
                       std::min(piece, of.rows_of(unit) - row),
                       of.columns(),
                       {of.strides[0], of.strides[1], of.strides[2]},
                       static_cast<int>(bytes_of(of.element, 1))},
                      table + unit);
        }
      }
      return cudaGetLastError();
    });
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    return checked(error, "changing the sign of " + input.buffer.name());
  }

  Status run(const Variant& variant, const Launch& launch) override {
    Device device;
    variant.on_gpu.with(arguments(variant, launch))(device);
    if (auto status = checked(device.error, "the launch was refused"); !status) return status;
    return checked(cudaDeviceSynchronize(), "the kernel died");
  }

  Result<double> time_ms(const Variant& variant, std::span<const Launch> launches) override {
    Device device;
    float milliseconds = 0;
    std::vector<std::function<void(Device&)>> starts;  // made before the clock starts
    for (const Launch& launch : launches) starts.push_back(variant.on_gpu.with(arguments(variant, launch)));
    const cudaError_t error = time_on_card(milliseconds, device.stream, [&] {
      for (const auto& start_kernel : starts) start_kernel(device);
      return device.error;
    });
    if (auto status = checked(error, "timing " + variant.label); !status) return passed_on(status);
    return double{milliseconds};
  }

  Result<Tensor> read_output(std::string_view name, int output) const override {
    const DeviceTensor& from = find(outputs_[output], name);
    return read(from, from.spec);
  }

  Result<uint64_t> hash_of_outputs() const override {
    unsigned long long sum = 0;
    const cudaError_t error = with_table(std::span(&sum, 1), 0, [&](unsigned long long* on_card, std::byte*) {
      uint64_t before = 0;
      for (const DeviceTensor& output : outputs_[0]) {
        add_hashes(output.buffer.as<std::byte>(), output.buffer.bytes(), before, on_card);
        before += output.buffer.bytes();
      }
      const cudaError_t launched = cudaGetLastError();
      return launched != cudaSuccess ? launched : cudaMemcpy(&sum, on_card, sizeof sum, cudaMemcpyDeviceToHost);
    });
    if (const Status status = checked(error, "hashing the outputs"); !status) return passed_on(status);
    return uint64_t{sum};
  }

  Result<Tensor> read_rows(std::string_view name, std::span<const OutputRow> rows) const override {
    const TensorSpec& whole = find(outputs_[0], name).spec;
    Tensor some(tensor(whole.name, whole.element, {1, 1, static_cast<int64_t>(rows.size()), whole.columns()}));
    if (rows.empty()) return some;
    std::vector<const std::byte*> from;
    for (const OutputRow& row : rows) {
      from.push_back(find(outputs_[row.output], name).row(row.cell.unit, row.cell.row));
    }
    const std::span<std::byte> to = some.bytes();
    const cudaError_t error =
        with_table(std::span(from), to.size(), [&](const std::byte* const* table, std::byte* gathered) {
          gather_rows(table, from.size(), whole.row_bytes(), gathered);
          const cudaError_t launched = cudaGetLastError();
          return launched != cudaSuccess ? launched
                                         : cudaMemcpy(to.data(), gathered, to.size(), cudaMemcpyDeviceToHost);
        });
    if (const Status status = checked(error, "reading rows of " + std::string(name)); !status) return passed_on(status);
    return some;
  }

  Status check_guards() const override {
    // All of them at once on the card; one by one only to say which it was.
    std::vector<const std::byte*> guards;
    for (const DeviceBuffer* buffer : buffers()) {
      for (const std::byte* guard : buffer->guards()) guards.push_back(guard);
    }
    unsigned changed = 0;
    const cudaError_t error =
        with_table(std::span(guards), sizeof changed, [&](const std::byte* const* table, std::byte* behind) {
          auto* const found = reinterpret_cast<unsigned*>(behind);
          if (const cudaError_t set = cudaMemset(found, 0, sizeof changed); set != cudaSuccess) return set;
          compare_guards(table, guards.size(), GUARD_BYTES, GUARD_BYTE, found);
          return cudaMemcpy(&changed, found, sizeof changed, cudaMemcpyDeviceToHost);
        });
    if (auto status = checked(error, "reading the guard zones"); !status || changed == 0) return status;
    for (const DeviceBuffer* buffer : buffers()) {
      if (auto status = buffer->check_guards(); !status) return status;
    }
    return {};
  }

  Status check_inputs(const Inputs& inputs) const override {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto now = read(inputs_[i], inputs.at(i).spec());
      if (!now) return passed_on(now);
      const std::span<const std::byte> expected = inputs.at(i).bytes();
      if (std::memcmp(now->bytes().data(), expected.data(), expected.size()) != 0) {
        return failure(ExitCode::check_failed, inputs_[i].buffer.name() + " was changed");
      }
    }
    return {};
  }

 private:
  struct DeviceTensor {
    TensorSpec spec;
    DeviceBuffer buffer;
    std::byte* row(int64_t unit, int64_t row = 0) const {
      return buffer.as<std::byte>() + bytes_of(spec.element, spec.offset(unit, row));
    }
    // From a unit on; of a cache all of it, for its units lie in pages.
    std::byte* begin(int64_t unit) const { return spec.page > 0 ? buffer.as<std::byte>() : row(unit); }
    Arguments::Tensor argument(int64_t unit) const {
      return {spec.name.data(), begin(unit), {spec.strides[0], spec.strides[1], spec.strides[2]}};
    }
  };
  using DeviceTensors = std::vector<DeviceTensor>;

  static const DeviceTensor& find(const DeviceTensors& tensors, std::string_view name) {
    return *std::ranges::find(tensors, name, [](const DeviceTensor& tensor) { return tensor.spec.name; });
  }

  std::vector<const DeviceBuffer*> buffers() const {
    std::vector<const DeviceBuffer*> all;
    for (const DeviceTensor& input : inputs_) all.push_back(&input.buffer);
    for (const DeviceTensors& set : outputs_) {
      for (const DeviceTensor& output : set) all.push_back(&output.buffer);
    }
    if (workspace_.bytes() > 0) all.push_back(&workspace_);
    return all;
  }

  // An output that the variant does not write has no address.
  Arguments arguments(const Variant& variant, const Launch& launch) const {
    Arguments arguments{.spec = shape_};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      arguments.add(inputs_[i].argument(launch.view.empty() ? 0 : launch.view[i]));
    }
    for (const TensorSpec& output : outputs_of(variant, shape_))
      arguments.add(find(outputs_[launch.output], output.name).argument(0));
    if (workspace_.bytes() > 0) arguments.workspace = workspace_.as<std::byte>();
    return arguments;
  }

  // A tensor's numbers as its strides lay them, which a value that was appended to has lost; nothing if it is packed anyway.
  static std::vector<std::byte> in_memory(const Tensor& tensor) {
    const TensorSpec& spec = tensor.spec();
    if (spec.is_packed()) return {};
    std::vector<std::byte> memory(spec.memory_bytes());
    poison(spec.element, memory);
    const auto bytes = [&](int64_t elements) { return bytes_of(spec.element, elements); };
    spec.for_each_run([&](int64_t at, int64_t packed, int64_t count) {
      std::memcpy(&memory[bytes(at)], tensor.at(packed), bytes(count));
    });
    return memory;
  }

  // The first units of a buffer, packed. Rows behind a sequence's length are nobody's, there as on the host.
  static Result<Tensor> read(const DeviceTensor& from, const TensorSpec& spec) {
    Tensor tensor(spec);
    if (spec.lengths.count > 0) tensor.poison();
    std::vector<std::byte> memory(spec.is_packed() ? 0 : spec.memory_bytes());
    const std::span<std::byte> to = memory.empty() ? tensor.bytes() : memory;
    const cudaError_t error = cudaMemcpy(to.data(), from.begin(0), to.size(), cudaMemcpyDeviceToHost);
    if (auto status = checked(error, "reading " + from.buffer.name()); !status) return passed_on(status);
    if (memory.empty()) return tensor;
    const auto bytes = [&](int64_t elements) { return bytes_of(spec.element, elements); };
    spec.for_each_run([&](int64_t at, int64_t packed, int64_t count) {
      std::byte* const run = &memory[bytes(at)];
      std::memcpy(tensor.at(packed), run, bytes(count));
      poison(spec.element, {run, bytes(count)});
    });
    if (const auto at = first_not_poison(spec.element, memory)) {
      return failure(ExitCode::check_failed, "a write between the rows of {}, {} bytes behind its start",
                     from.buffer.name(), *at);
    }
    return tensor;
  }

  Shape shape_;
  DeviceTensors inputs_;
  DeviceBuffer workspace_;  // empty unless a rung needs it
  std::vector<DeviceTensors> outputs_;
};

}  // namespace

Result<std::unique_ptr<GpuProblem>> GpuProblem::create(const Shape& shape, const Inputs& inputs,
                                                       uint64_t workspace_bytes, const Inputs& more_heads,
                                                       int outputs) {
  const int64_t more = fewest_units(more_heads);
  auto problem = OnCard::create(shape, workspace_bytes, more, outputs);
  if (!problem) return passed_on(problem);
  Status status = (*problem)->upload(inputs);
  if (status && more > 0) status = (*problem)->upload(more_heads, inputs);
  if (!status) return passed_on(status);
  return std::move(*problem);
}

Result<std::unique_ptr<GpuProblem>> GpuProblem::create_repeated(const Shape& shape, const Inputs& few,
                                                                uint64_t workspace_bytes) {
  auto problem = OnCard::create(shape, workspace_bytes, 0, 1);
  if (!problem) return passed_on(problem);
  Status status = (*problem)->upload(few);
  if (status) status = (*problem)->repeat(few);
  if (!status) return passed_on(status);
  return std::move(*problem);
}

}  // namespace ladder
