#include "harness/devices/emulator_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "harness/devices/tensor_memory.hpp"

namespace ladder {
namespace {

constexpr size_t FAR_APART = 1 << 20;
constexpr int VERY_LONG = 5000;  // keys

// The memory of one tensor of a launch. The problem has some of its units: all of them, or two or three of many.
class LaunchedTensor {
 public:
  LaunchedTensor(const TensorSpec& launched, const TensorSpec& known, const Problem& problem, emulator::Device& device,
                 emulator::Access access)
      : problem_(problem),
        launched_(launched),
        spec_(known),
        memory_(std::make_unique<TensorBytes>(launched.memory_bytes())) {
    memory_->register_with(device, std::string(spec_.name), access);
    if (!launched_.is_packed()) {
      for_each_gap([&](std::span<std::byte> gap) { ladder::poison(spec_.element, gap); });
    }
  }

  void assign(std::span<const std::byte> values) const {
    for_each_run([&](std::byte* at, size_t offset, size_t bytes) { std::memcpy(at, &values[offset], bytes); });
  }
  bool holds(std::span<const std::byte> values) const {
    bool same = true;
    for_each_run([&](const std::byte* at, size_t offset, size_t bytes) {
      same = same && std::memcmp(at, &values[offset], bytes) == 0;
    });
    return same;
  }
  // What an output begins with.
  void clear() const {
    for_each_run([&](std::byte* at, size_t, size_t bytes) {
      if (spec_.is_added_to) {
        std::memset(at, 0, bytes);
      } else {
        ladder::poison(spec_.element, {at, bytes});
      }
    });
  }
  Tensor copy() const {
    Tensor tensor(spec_);
    for_each_run(
        [&](const std::byte* at, size_t offset, size_t bytes) { std::memcpy(&tensor.bytes()[offset], at, bytes); });
    return tensor;
  }
  void check_guards(std::vector<std::string>& messages) const {
    memory_->check_guards(std::string(spec_.name), messages);
    if (launched_.is_packed()) return;
    for_each_gap([&](std::span<const std::byte> gap) {
      std::vector<std::byte> values(gap.begin(), gap.end());
      if (!is_far_apart()) {
        for_each_run([&](const std::byte* at, size_t, size_t bytes) {
          ladder::poison(spec_.element, std::span(values).subspan(static_cast<size_t>(at - gap.data()), bytes));
        });
      }
      if (const auto at = first_not_poison(spec_.element, values)) {
        messages.push_back(fmt::format("between the rows of {}, {} bytes behind its start", spec_.name,
                                       gap.data() + *at - memory_->data()));
      }
    });
  }
  Arguments::Tensor argument() const {
    const auto& [sequences, heads, rows] = launched_.strides;
    return {spec_.name.data(), memory_->for_kernels(), {sequences, heads, rows}};
  }

 private:
  std::span<std::byte> memory() const { return {memory_->data(), memory_->bytes()}; }

  // Rows so far apart that what lies between them is not all touched.
  bool is_far_apart() const {
    const int64_t between = launched_.strides[2] - launched_.columns();
    return bytes_of(spec_.element, between) >= FAR_APART;
  }
  // visit(memory that holds nobody's elements): all of it, rows as well, or what lies beside rows that are far apart.
  template <class Visit>
  void for_each_gap(const Visit& visit) const {
    if (!is_far_apart()) return visit(memory());
    for_each_run([&](std::byte* at, size_t, size_t bytes) {
      const auto begin = static_cast<size_t>(at - memory_->data()), end = begin + bytes;
      visit(memory().subspan(begin - std::min(begin, GUARD_BYTES), std::min(begin, GUARD_BYTES)));
      visit(memory().subspan(end, std::min(memory_->bytes() - end, GUARD_BYTES)));
    });
  }

  // visit(where a run of elements lies, its offset in the problem's own tensor, its bytes)
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const auto bytes = [&](int64_t elements) { return bytes_of(spec_.element, elements); };
    if (problem_.far_heads == 0 || spec_.is_fixed) {
      return launched_.for_each_run([&](int64_t at, int64_t packed, int64_t count) {
        visit(memory_->data() + bytes(at), bytes(packed), bytes(count));
      });
    }
    for (int64_t unit = 0; unit < spec_.units(); ++unit) {
      visit(memory_->data() + bytes(launched_.offset(problem_.launched_head(unit))), bytes(spec_.index(unit, 0)),
            spec_.unit_bytes());
    }
  }

  const Problem& problem_;
  TensorSpec launched_, spec_;
  std::unique_ptr<TensorBytes> memory_;
};

// Where only some heads of many run, their equal shares and what lies behind all shares: the rest takes no memory.
void poison_workspace(std::span<std::byte> memory, const Problem& problem) {
  if (problem.far_heads == 0) return poison(Element::f32, memory);
  const auto heads = static_cast<size_t>(problem.launched().batch_heads());
  const auto poison_from = [&](size_t begin, size_t bytes) {
    const size_t word = begin / 4 * 4;
    poison(Element::f32, memory.subspan(word, begin + bytes - word));
  };
  const size_t share = memory.size() / heads;
  for (int64_t i = 0; i < problem.shape.batch_heads(); ++i) {
    poison_from(static_cast<size_t>(problem.launched_head(i)) * share, share);
  }
  poison_from(heads * share, memory.size() - heads * share);
}

// What the oldest GPU has that the rung is for; where a row takes it, a longer one may need a newer GPU.
emulator::Options on_oldest_gpu(emulator::Options options, const Rung& rung, const Variant& variant) {
  options.sm = rung.min_sm;
  if (variant.smem_bytes_per_key == 0) options.smem_limit = emulator::max_shared_memory(rung.min_sm);
  return options;
}

}  // namespace

EmulatorRun run_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                            const emulator::Options& options, Build build) {
  const Shape launched = problem.launched();
  emulator::Options limits = on_oldest_gpu(options, rung, variant);
  if (problem.far_heads > 0) {
    const auto heads = static_cast<uint64_t>(problem.far_heads);
    if (limits.slices == 0) limits.slices = heads;
    const auto slice_of = [&](int64_t head) {
      return static_cast<uint64_t>(problem.launched_head(head)) * limits.slices / heads;
    };
    if (limits.between == 0) {  // or whoever asks has said which
      limits.from = slice_of(0);
      limits.between = problem.shape.batch_heads() == 3 ? slice_of(1) : 0;
    }
  } else if (problem.some > 0 && variant.workspace_at(launched) == 0) {
    limits.some = static_cast<uint64_t>(problem.some);
    limits.check = limits.count =
        problem.some == 1;  // of several beside each other it is their answers that are asked for
    limits.between =
        problem.shape.keys() > VERY_LONG ? emulator::Options::LAST : problem.seed * 0x9e3779b97f4a7c15u >> 8;
  } else if (problem.ends_only && variant.workspace_at(launched) == 0) {
    constexpr int QUERIES = 32;  // at least, at each place; a block without a tile has one
    limits.ends = static_cast<uint64_t>(std::max(1, QUERIES / std::max(1, variant.tile.br)));
    // Of very long walks two are enough where all are alike.
    if (problem.shape.causal || problem.shape.keys() < VERY_LONG)
      limits.between = problem.seed * 0x9e3779b97f4a7c15u | 1;  // drawn by the seed
    limits.from = problem.shape.batch_heads() == 2 ? 1 : 0;  // who numbers heads wrongly takes the first for the second
  }
  limits.ordered_sums = variant.same_bits;
  const auto running = std::make_shared<emulator::Device>(limits);
  emulator::Device& device = *running;

  std::vector<LaunchedTensor> inputs, outputs;
  const auto add = [&](std::vector<LaunchedTensor>& tensors, std::span<const TensorSpec> of_launch,
                       std::span<const TensorSpec> known, emulator::Access access) {
    for (size_t i = 0; i < of_launch.size(); ++i) tensors.emplace_back(of_launch[i], known[i], problem, device, access);
  };
  const Formula& formula = problem.formula();
  add(inputs, formula.inputs(launched), formula.inputs(problem.shape), emulator::Access::read_only);
  add(outputs, outputs_of(variant, launched), outputs_of(variant, problem.shape), emulator::Access::read_write);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].assign(problem.inputs.at(i).bytes());
  for (const LaunchedTensor& output : outputs) output.clear();
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
  (build == Build::zero    ? variant.on_emulator_zeroed
   : build == Build::fused ? variant.on_emulator_fused
                           : variant.on_emulator)
      .with(arguments)(device);

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
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = problem.inputs.at(i);
    if (!inputs[i].holds(input.bytes())) run.modified_inputs.emplace_back(input.name());
  }
  std::vector<int64_t> heads;  // where the launch has them
  for (int64_t head = 0; problem.far_heads > 0 && head < problem.shape.batch_heads(); ++head)
    heads.push_back(problem.launched_head(head));
  run.writer = [running, heads, specs = outputs_of(variant, launched)](std::string_view output, const Cell& cell,
                                                                       int64_t column) {
    const TensorSpec& spec = *std::ranges::find(specs, output, &TensorSpec::name);
    const int64_t unit = heads.empty() ? cell.unit : heads[static_cast<size_t>(cell.unit)];
    return running->writer_of(output, bytes_of(spec.element, spec.offset(unit, cell.row) + column));
  };
  return run;
}

LaunchStart start_on_emulator(const Rung& rung, const Variant& variant, const Shape& shape,
                              const emulator::Options& options) {
  emulator::Device device(on_oldest_gpu(options, rung, variant));
  std::vector<std::unique_ptr<TensorBytes>> memory;
  const auto reserve = [&](std::string name, uint64_t bytes, emulator::Access access) {
    memory.emplace_back(std::make_unique<TensorBytes>(bytes))->register_with(device, std::move(name), access);
    return memory.back()->for_kernels();
  };
  Arguments arguments{.spec = shape};
  const auto add = [&](const std::vector<TensorSpec>& tensors, emulator::Access access) {
    for (const TensorSpec& spec : tensors) {
      const auto& [sequences, heads, rows] = spec.strides;
      arguments.add(
          {spec.name.data(), reserve(std::string(spec.name), spec.memory_bytes(), access), {sequences, heads, rows}});
    }
  };
  add(formula_of(shape).inputs(shape), emulator::Access::read_only);
  add(outputs_of(variant, shape), emulator::Access::read_write);
  if (const uint64_t bytes = variant.workspace_at(shape); bytes > 0)
    arguments.workspace = reserve("workspace", bytes, emulator::Access::read_write);
  variant.on_emulator.with(arguments)(device);
  return {device.reports(), device.counters().blocks};
}

}  // namespace ladder
