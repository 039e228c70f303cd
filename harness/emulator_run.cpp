#include "harness/emulator_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "harness/guarded.hpp"
#include "harness/inputs.hpp"

namespace ladder {
namespace {

template <class T>
void check_guards(const GuardedBuffer<T>& buffer, std::string_view name, std::vector<std::string>& messages) {
  if (const auto at = overwritten(buffer.guard_before())) {
    messages.push_back(fmt::format("{} bytes before the start of {}", GUARD_BYTES - *at, name));
  }
  if (const auto at = overwritten(buffer.guard_behind())) {
    messages.push_back(fmt::format("{} bytes behind the end of {}", *at, name));
  }
}

}  // namespace

EmulatorRun run_on_emulator(const Stage& stage, const Variant& variant, const Shape& shape, const Inputs& inputs,
                            const emulator::Options& options) {
  const GuardedBuffer<f16> Q(inputs.Q), K(inputs.K), V(inputs.V);
  GuardedBuffer<f16> O(shape.elements());
  std::ranges::fill(O.values(), POISON);
  std::optional<GuardedBuffer<float>> S, LSE;
  const auto poisoned = [](std::optional<GuardedBuffer<float>>& buffer, size_t count) {
    buffer.emplace(count);
    std::memset(buffer->data(), 0xff, buffer->bytes());  // NaN
  };
  if (stage.materialises_scores) poisoned(S, shape.batch_heads() * shape.n * shape.n);
  if (stage.writes_lse) poisoned(LSE, shape.batch_heads() * shape.n);

  emulator::Device device(options);
  device.register_buffer(Q.data(), Q.bytes(), "Q", emulator::Access::read_only);
  device.register_buffer(K.data(), K.bytes(), "K", emulator::Access::read_only);
  device.register_buffer(V.data(), V.bytes(), "V", emulator::Access::read_only);
  device.register_buffer(O.data(), O.bytes(), "O", emulator::Access::read_write);
  if (S) device.register_buffer(S->data(), S->bytes(), "S", emulator::Access::read_write);
  if (LSE) device.register_buffer(LSE->data(), LSE->bytes(), "LSE", emulator::Access::read_write);

  AttentionParams params = params_for(shape);
  params.Q = Q.data();
  params.K = K.data();
  params.V = V.data();
  params.O = O.data();
  params.S = S ? S->data() : nullptr;
  params.LSE = LSE ? LSE->data() : nullptr;
  variant.on_emulator(device, params);

  EmulatorRun run;
  run.output.assign(O.values().begin(), O.values().end());
  if (LSE) run.lse.assign(LSE->values().begin(), LSE->values().end());
  run.counters = device.counters();
  run.reports = device.reports();
  run.trace = device.trace();
  run.trace_regions = device.trace_regions();
  for (const emulator::Device::Buffer& buffer : device.buffers()) run.buffers.emplace_back(buffer.name, buffer.bytes);
  check_guards(Q, "Q", run.overwritten_guards);
  check_guards(K, "K", run.overwritten_guards);
  check_guards(V, "V", run.overwritten_guards);
  check_guards(O, "O", run.overwritten_guards);
  if (S) check_guards(*S, "S", run.overwritten_guards);
  if (LSE) check_guards(*LSE, "LSE", run.overwritten_guards);
  const auto unchanged = [&](const GuardedBuffer<f16>& buffer, const std::vector<f16>& original, const char* name) {
    if (std::memcmp(buffer.data(), original.data(), buffer.bytes()) != 0) run.modified_inputs.push_back(name);
  };
  unchanged(Q, inputs.Q, "Q");
  unchanged(K, inputs.K, "K");
  unchanged(V, inputs.V, "V");
  return run;
}

}  // namespace ladder
