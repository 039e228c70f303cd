#include "harness/devices/emulator_run.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "harness/devices/tensor_memory.hpp"

namespace ladder {
namespace {

// `problem` has `per_head` elements in each of its heads, which may be the first and the last of many.
template <class T>
class Heads {
 public:
  Heads(const Problem& problem, TensorMemory<T>& memory, size_t per_head)
      : memory_(memory),
        per_head_(per_head),
        heads_(static_cast<size_t>(problem.shape.batch_heads())),
        is_far_(problem.far_heads > 0) {}

  // Where the problem's head i lies.
  std::span<T> operator[](size_t i) const {
    const std::span<T> all = memory_.values();
    return is_far_ && i > 0 ? all.last(per_head_) : all.subspan(i * per_head_, per_head_);
  }
  void fill(T value) const {
    for (size_t i = 0; i < heads_; ++i) std::ranges::fill((*this)[i], value);
  }
  void assign(std::span<const T> values) const {
    for (size_t i = 0; i < heads_; ++i) {
      std::memcpy((*this)[i].data(), values.data() + i * per_head_, per_head_ * sizeof(T));
    }
  }
  bool holds(std::span<const T> values) const {
    for (size_t i = 0; i < heads_; ++i) {
      if (std::memcmp((*this)[i].data(), values.data() + i * per_head_, per_head_ * sizeof(T)) != 0) return false;
    }
    return true;
  }
  std::vector<T> copy() const {
    std::vector<T> values;
    for (size_t i = 0; i < heads_; ++i) values.insert(values.end(), (*this)[i].begin(), (*this)[i].end());
    return values;
  }

 private:
  TensorMemory<T>& memory_;
  size_t per_head_, heads_;
  bool is_far_;
};

}  // namespace

EmulatorRun run_on_emulator(const Stage& stage, const Variant& variant, const Problem& problem,
                            const emulator::Options& options, Unset build) {
  const Shape& shape = problem.shape;
  const Shape launched = problem.launched();
  const auto rows = static_cast<size_t>(launched.batch_heads()) * shape.n, elements = rows * shape.d;
  const size_t per_head = size_t(shape.n) * shape.d;

  std::vector<TensorBytes*> buffers;
  std::vector<std::string> names;
  emulator::Options limits = options;
  // What the oldest GPU has that the stage is for; where a row takes it, a longer one may need a newer GPU.
  if (variant.smem_bytes_per_key == 0) limits.smem_limit = emulator::max_shared_memory(stage.min_sm);
  if (problem.far_heads > 0) limits.slices = static_cast<uint64_t>(problem.far_heads);
  emulator::Device device(limits);
  const auto add = [&](TensorBytes& buffer, const char* name, emulator::Access access) {
    buffer.register_with(device, name, access);
    buffers.push_back(&buffer);
    names.push_back(name);
  };
  TensorMemory<f16> Q(elements), K(elements), V(elements), O(elements);
  add(Q, "Q", emulator::Access::read_only);
  add(K, "K", emulator::Access::read_only);
  add(V, "V", emulator::Access::read_only);
  add(O, "O", emulator::Access::read_write);
  Heads(problem, Q, per_head).assign(problem.inputs.Q);
  Heads(problem, K, per_head).assign(problem.inputs.K);
  Heads(problem, V, per_head).assign(problem.inputs.V);
  Heads(problem, O, per_head).fill(POISON);
  constexpr float UNWRITTEN = std::numeric_limits<float>::quiet_NaN();
  std::optional<TensorMemory<float>> workspace, LSE;
  if (const uint64_t bytes = variant.workspace_at(launched); bytes > 0) {
    add(workspace.emplace((bytes + 3) / 4), "workspace", emulator::Access::read_write);
    Heads(problem, *workspace, workspace->values().size() / launched.batch_heads()).fill(UNWRITTEN);
  }
  if (variant.writes_lse) {
    add(LSE.emplace(rows), "LSE", emulator::Access::read_write);
    Heads(problem, *LSE, shape.n).fill(UNWRITTEN);
  }

  AttentionParams params = params_for(launched);
  params.Q = Q.for_kernels();
  params.K = K.for_kernels();
  params.V = V.for_kernels();
  params.O = O.for_kernels();
  params.workspace = workspace ? workspace->for_kernels() : nullptr;
  params.LSE = LSE ? LSE->for_kernels() : nullptr;
  (build == Unset::pattern ? variant.on_emulator : variant.on_emulator_zeroed)(device, params);

  EmulatorRun run;
  run.stopped = device.stopped();
  run.output = Heads(problem, O, per_head).copy();
  if (LSE) run.lse = Heads(problem, *LSE, shape.n).copy();
  run.counters = device.counters();
  run.reports = device.reports();
  run.trace = device.trace();
  run.trace_regions = device.trace_regions();
  for (const emulator::Device::Buffer& buffer : device.buffers()) run.buffers.emplace_back(buffer.name, buffer.bytes);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i]->check_guards(names[i], run.overwritten_guards);
  if (!Heads(problem, Q, per_head).holds(problem.inputs.Q)) run.modified_inputs.push_back("Q");
  if (!Heads(problem, K, per_head).holds(problem.inputs.K)) run.modified_inputs.push_back("K");
  if (!Heads(problem, V, per_head).holds(problem.inputs.V)) run.modified_inputs.push_back("V");
  return run;
}

}  // namespace ladder
