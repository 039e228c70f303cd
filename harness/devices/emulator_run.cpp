#include "harness/devices/emulator_run.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "harness/devices/tensor_memory.hpp"

namespace ladder {
namespace {

// The memory of one tensor of a launch. The problem has some of its heads: all of them, or two or three of many.
class LaunchedTensor {
 public:
  LaunchedTensor(const TensorSpec& launched, const Problem& problem, emulator::Device& device, emulator::Access access)
      : problem_(problem), spec_(launched), memory_(std::make_unique<TensorBytes>(launched.bytes())) {
    spec_.heads = problem.shape.batch_heads();
    memory_->register_with(device, std::string(spec_.name), access);
  }

  void assign(std::span<const std::byte> values) const {
    for_each_head([&](std::byte* head, size_t offset) { std::memcpy(head, &values[offset], spec_.head_bytes()); });
  }
  bool holds(std::span<const std::byte> values) const {
    bool same = true;
    for_each_head([&](std::byte* head, size_t offset) {
      same = same && std::memcmp(head, &values[offset], spec_.head_bytes()) == 0;
    });
    return same;
  }
  void poison() const {
    for_each_head([&](std::byte* head, size_t) { ladder::poison({head, spec_.head_bytes()}); });
  }
  Tensor copy() const {
    Tensor tensor(spec_);
    for_each_head(
        [&](const std::byte* head, size_t offset) { std::memcpy(&tensor.bytes()[offset], head, spec_.head_bytes()); });
    return tensor;
  }
  void check_guards(std::vector<std::string>& messages) const {
    memory_->check_guards(std::string(spec_.name), messages);
  }
  Arguments::Tensor argument() const { return {spec_.name.data(), memory_->for_kernels(), {}}; }

 private:
  // visit(where the head lies, its offset in the problem's own tensor)
  template <class Visit>
  void for_each_head(const Visit& visit) const {
    const size_t bytes = spec_.head_bytes();
    for (int64_t i = 0; i < spec_.heads; ++i) {
      visit(memory_->data() + static_cast<size_t>(problem_.launched_head(i)) * bytes, static_cast<size_t>(i) * bytes);
    }
  }

  const Problem& problem_;
  TensorSpec spec_;
  std::unique_ptr<TensorBytes> memory_;
};

// Where only some heads of many run, their equal shares and what lies behind all shares: the rest takes no memory.
void poison_workspace(std::span<std::byte> memory, const Problem& problem) {
  if (problem.far_heads == 0) return poison(memory);
  const auto heads = static_cast<size_t>(problem.launched().batch_heads());
  const auto poison_from = [&](size_t begin, size_t bytes) {
    const size_t word = begin / 4 * 4;
    poison(memory.subspan(word, begin + bytes - word));
  };
  const size_t share = memory.size() / heads;
  for (int64_t i = 0; i < problem.shape.batch_heads(); ++i) {
    poison_from(static_cast<size_t>(problem.launched_head(i)) * share, share);
  }
  poison_from(heads * share, memory.size() - heads * share);
}

}  // namespace

EmulatorRun run_on_emulator(const Stage& stage, const Variant& variant, const Problem& problem,
                            const emulator::Options& options, Unset build) {
  const Shape launched = problem.launched();
  emulator::Options limits = options;
  limits.sm = stage.min_sm;
  // What the oldest GPU has that the stage is for; where a row takes it, a longer one may need a newer GPU.
  if (variant.smem_bytes_per_key == 0) limits.smem_limit = emulator::max_shared_memory(stage.min_sm);
  if (problem.far_heads > 0) {
    const auto heads = static_cast<uint64_t>(problem.far_heads);
    if (limits.slices == 0) limits.slices = heads;
    const auto middle = static_cast<uint64_t>(problem.launched_head(1));
    limits.between = problem.shape.batch_heads() == 3 ? middle * limits.slices / heads : 0;
  } else if (problem.ends_only && variant.workspace_at(launched) == 0) {
    constexpr int QUERIES = 32;  // at least, at each place; a block without a tile has one
    limits.ends = static_cast<uint64_t>(std::max(1, QUERIES / std::max(1, variant.tile.br)));
    limits.between = problem.seed * 0x9e3779b97f4a7c15u | 1;  // drawn by the seed
  }
  emulator::Device device(limits);

  std::vector<LaunchedTensor> inputs, outputs;
  for (const TensorSpec& spec : problem.formula().inputs(launched)) {
    inputs.emplace_back(spec, problem, device, emulator::Access::read_only).assign(problem.inputs[spec.name].bytes());
  }
  for (const TensorSpec& spec : outputs_of(variant, launched)) {
    outputs.emplace_back(spec, problem, device, emulator::Access::read_write).poison();
  }
  std::optional<TensorBytes> workspace;
  if (const uint64_t bytes = variant.workspace_at(launched); bytes > 0) {
    workspace.emplace(bytes).register_with(device, "workspace", emulator::Access::read_write);
    poison_workspace({workspace->data(), bytes}, problem);
  }

  Arguments arguments{.spec = launched};
  for (const auto* tensors : {&inputs, &outputs}) {
    for (const LaunchedTensor& tensor : *tensors) arguments.add(tensor.argument());
  }
  if (workspace) arguments.workspace = workspace->for_kernels();
  (build == Unset::pattern ? variant.on_emulator : variant.on_emulator_zeroed).with(arguments)(device);

  EmulatorRun run;
  run.stopped = device.stopped();
  run.counters = device.counters();
  run.reports = device.reports();
  run.trace = device.trace();
  run.trace_regions = device.trace_regions();
  for (const emulator::Device::Buffer& buffer : device.buffers()) run.buffers.emplace_back(buffer.name, buffer.bytes);
  for (const auto* tensors : {&inputs, &outputs}) {
    for (const LaunchedTensor& tensor : *tensors) tensor.check_guards(run.overwritten_guards);
  }
  if (workspace) workspace->check_guards("workspace", run.overwritten_guards);
  for (const LaunchedTensor& output : outputs) run.outputs.add(output.copy());
  for (const LaunchedTensor& input : inputs) {
    const std::string_view name = input.argument().name;
    if (!input.holds(problem.inputs[name].bytes())) run.modified_inputs.emplace_back(name);
  }
  return run;
}

}  // namespace ladder
