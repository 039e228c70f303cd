// A GPU for testing bench and compare from outside on machines that have none: linked into the program `ladder_fake_gpu`
// in place of gpu.cu and ceilings.cu. It answers rightly, at a rate of its own for every stage. The environment makes it
// misbehave:
//   FAKE_GPU_WRONG=93_longer   this stage's output is wrong
//   FAKE_GPU_STALE=93_longer   this stage writes each output once and never again
//   FAKE_GPU_FAST=93_longer    this stage claims to be faster than the ceiling
//   FAKE_GPU_SLOW=90_first     this stage takes 2 s a launch
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "harness/devices/gpu.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/measure/ceilings.hpp"
#include "harness/measure/csv.hpp"
#include "harness/problem/formula.hpp"
#include "harness/stage.hpp"

namespace ladder {
namespace {

// A slow card: a group of small problems has hundreds of launches, and not ten thousands that its host pays for.
constexpr double CEILING_TFLOPS = 30;
size_t memory_held = 0;  // by the problems that stand

// Claimed milliseconds pass a hundred times faster.
void pass(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms / 100));
}

const Stage& stage_of(const Variant& variant) {
  for (const Stage& stage : stages()) {
    for (const Variant& candidate : stage.variants) {
      if (&candidate == &variant) return stage;
    }
  }
  std::abort();
}

bool told_to_be(const char* what, const Variant& variant) {
  const char* name = std::getenv(what);
  return name && stage_of(variant).name == name;
}

std::vector<OutputRow> all_rows(const Shape& shape, int output) {
  std::vector<OutputRow> rows;
  for (int64_t row = 0; row < shape.batch_heads() * shape.n; ++row) rows.push_back({output, row});
  return rows;
}

// O and LSE of one query, of a launch whose heads begin where the view says.
struct Row {
  std::vector<f16> O;
  float LSE;
};
Row attention(const Shape& shape, const Inputs& inputs, const View& view, int64_t query) {
  const int64_t n = shape.n, d = shape.d, head = query / n;
  const f16* const Q = &inputs.half("Q")[(view[0] * n + query) * d];
  const f16* const K = &inputs.half("K")[(view[1] + head) * n * d];
  const f16* const V = &inputs.half("V")[(view[2] + head) * n * d];
  const int64_t keys = shape.causal ? query % n + 1 : n;
  std::vector<double> weights(n), row(d);
  double max = -INFINITY, sum = 0;
  for (int64_t key = 0; key < keys; ++key) {
    double score = 0;
    for (int64_t i = 0; i < d; ++i) score += double{to_float(Q[i])} * double{to_float(K[key * d + i])};
    weights[key] = score * double{shape.scale()};
    max = std::max(max, weights[key]);
  }
  for (int64_t key = 0; key < keys; ++key) {
    const double weight = std::exp(weights[key] - max);
    sum += weight;
    for (int64_t i = 0; i < d; ++i) row[i] += weight * double{to_float(V[key * d + i])};
  }
  Row result{std::vector<f16>(d), static_cast<float>(max + std::log(sum))};
  for (int64_t i = 0; i < d; ++i) result.O[i] = to_f16(static_cast<float>(row[i] / sum));
  return result;
}

}  // namespace

// An output is not computed before somebody reads it, and then in the rows that are read.
struct GpuProblem::Buffers {
  struct Output {
    std::optional<View> written;  // by the last launch; nothing: poison
    bool wrong = false;
  };
  Shape shape;
  size_t memory;
  Inputs inputs = {};
  std::vector<Output> outputs = {};
  std::vector<uint8_t> negative;                      // heads of V
  std::map<std::pair<View, int64_t>, Row> rows = {};  // of views, with V as it was uploaded
  std::set<std::pair<const Variant*, int>> ran = {};

  Buffers(const Shape& of, uint64_t workspace_bytes, int more_heads, int number)
      : shape(of),
        memory(gpu_bytes_needed(of, workspace_bytes, more_heads, number)),
        outputs(number),
        negative(of.batch_heads() + more_heads) {
    memory_held += memory;
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() { memory_held -= memory; }

  void run(const Variant& variant, std::span<const Launch> launches) {
    const bool wrong = told_to_be("FAKE_GPU_WRONG", variant), stale = told_to_be("FAKE_GPU_STALE", variant);
    for (const Launch& launch : launches) {
      if (stale && !ran.insert({&variant, launch.output}).second) continue;
      outputs[launch.output] = {launch.view.empty() ? View(3) : launch.view, wrong};
    }
  }

  Row read(const OutputRow& row) {
    const Output& output = outputs[row.output];
    if (!output.written) return {std::vector<f16>(shape.d, POISON), NAN};
    if (output.wrong) return {std::vector<f16>(shape.d, to_f16(0.5f)), 0.5f};
    const View& view = *output.written;
    const auto [known, added] = rows.try_emplace({view, row.row});
    if (added) known->second = attention(shape, inputs, view, row.row);
    Row answer = known->second;
    if (negative[view[2] + row.row / shape.n]) {
      for (f16& value : answer.O) value.bits ^= 0x8000;
    }
    return answer;
  }
};

Result<GpuInfo> gpu_info() {
  // This build's stages may have no GPU half; a fake GPU does not need one.
  for (const Stage& stage : stages()) {
    for (const Variant& variant : stage.variants) {
      const_cast<Variant&>(variant).on_gpu = GpuLaunch(+[](gpu::Device&, const AttentionParams&) {});
    }
  }
  constexpr size_t MIB = size_t{1} << 20;  // little, so that a test can ask for too much
  return GpuInfo{.name = "Fake GPU",
                 .sm = 90,
                 .processors = 132,
                 .memory_total = 16 * MIB,
                 .memory_free = 8 * MIB - memory_held,
                 .smem_per_block = 227 * 1024,
                 .driver = "1.0",
                 .cuda = "13.0",
                 .pci_bus_id = "none"};
}

Result<KernelResources> gpu_resources(const Variant&, int) {
  return KernelResources{.registers = 200, .local_bytes = 0, .blocks_per_sm = 2};
}

GpuProblem::GpuProblem(std::unique_ptr<Buffers> buffers) : buffers_(std::move(buffers)) {}
GpuProblem::GpuProblem(GpuProblem&&) noexcept = default;
GpuProblem& GpuProblem::operator=(GpuProblem&&) noexcept = default;
GpuProblem::~GpuProblem() = default;

Result<GpuProblem> GpuProblem::create(const Shape& shape, const Inputs& inputs, uint64_t workspace_bytes,
                                      const Inputs& more_heads, int outputs) {
  const auto more = more_heads.empty() ? 0 : static_cast<int>(more_heads.at(0).spec().heads);
  auto buffers = std::make_unique<Buffers>(shape, workspace_bytes, more, outputs);
  buffers->inputs = inputs;
  for (size_t i = 0; i < more_heads.size(); ++i) buffers->inputs.at(i).append(more_heads.at(i));
  return GpuProblem(std::move(buffers));
}

Result<GpuProblem> GpuProblem::create_repeated(const Shape&, const Inputs&, uint64_t) {
  return failure(ExitCode::cannot_run_here, "the fake GPU holds no large problems");
}

Status GpuProblem::upload(const Inputs& inputs) {
  buffers_->inputs = inputs;
  buffers_->rows.clear();
  return {};
}

Status GpuProblem::poison_output() {
  for (auto& output : buffers_->outputs) output = {};
  return {};
}

Status GpuProblem::fill_output(int output, const Filling&) {
  buffers_->outputs[output] = {};
  return {};
}

Status GpuProblem::negate(std::string_view, std::span<const uint8_t> flip) {
  for (size_t head = 0; head < flip.size(); ++head) buffers_->negative[head] ^= flip[head];
  return {};
}

Status GpuProblem::run(const Variant& variant, const Launch& launch) {
  buffers_->run(variant, std::span(&launch, 1));
  return {};
}

Result<double> GpuProblem::time_ms(const Variant& variant, std::span<const Launch> launches) {
  buffers_->run(variant, launches);
  // The later on the ladder the faster, and variants of one rung by less.
  const Stage& stage = stage_of(variant);
  const auto all = static_cast<double>(stages().size()), order = static_cast<double>(&stage - stages().data()),
             own = static_cast<double>(&variant - stage.variants.data());
  double tflops = 5 + 20 * (order + own / static_cast<double>(2 * stage.variants.size())) / all;
  if (told_to_be("FAKE_GPU_FAST", variant)) tflops = 2 * CEILING_TFLOPS;
  double ms = flops_of(buffers_->shape) / (tflops * 1e9);
  if (told_to_be("FAKE_GPU_SLOW", variant)) ms = 2000;
  pass(ms * static_cast<double>(launches.size()));
  return ms * static_cast<double>(launches.size());
}

Result<Tensor> GpuProblem::read_rows(std::string_view name, std::span<const OutputRow> rows) const {
  const std::vector<TensorSpec> specs = formula_of(buffers_->shape).outputs(buffers_->shape);
  TensorSpec spec = *std::ranges::find(specs, name, &TensorSpec::name);
  if (static_cast<int64_t>(rows.size()) != spec.heads * spec.rows) {  // of all of them, the tensor as it is
    spec.heads = 1;
    spec.rows = static_cast<int>(rows.size());
  }
  Tensor tensor(spec);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row read = buffers_->read(rows[i]);
    if (name == "O") {
      std::ranges::copy(read.O, tensor.half().begin() + static_cast<std::ptrdiff_t>(i) * spec.columns);
    } else {
      tensor.single()[i] = read.LSE;
    }
  }
  return tensor;
}

Result<Tensor> GpuProblem::read_output(std::string_view name, int output) const {
  return read_rows(name, all_rows(buffers_->shape, output));
}

Status GpuProblem::check_guards() const {
  return {};
}
Status GpuProblem::check_inputs(const Inputs&) const {
  return {};
}

struct SmClocks::Counters {};
SmClocks::SmClocks(std::unique_ptr<Counters> counters) : counters_(std::move(counters)) {}
SmClocks::SmClocks(SmClocks&&) noexcept = default;
SmClocks& SmClocks::operator=(SmClocks&&) noexcept = default;
SmClocks::~SmClocks() = default;
Result<SmClocks> SmClocks::create() {
  return SmClocks(std::make_unique<Counters>());
}
void SmClocks::start() {}
std::optional<double> SmClocks::stop() {
  return 1500;
}

struct Ceiling::State {
  std::string name;
};
Ceiling::Ceiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ceiling::Ceiling(Ceiling&&) noexcept = default;
Ceiling& Ceiling::operator=(Ceiling&&) noexcept = default;
Ceiling::~Ceiling() = default;
std::vector<std::string_view> Ceiling::names(std::string_view) {
  return {"mma_sync", "ex2"};
}
Result<Ceiling> Ceiling::create(std::string_view name, std::string_view) {
  return Ceiling(std::make_unique<State>(std::string(name)));
}
double Ceiling::work() const {
  return state_->name == "ex2" ? 1e10 : 1e12;
}
Result<double> Ceiling::time_ms(int launches) {
  const double ms = 1e12 / (CEILING_TFLOPS * 1e9) * launches;
  pass(ms);
  return ms;
}
Status Ceiling::keep_busy(double ms) {
  pass(ms);
  return {};
}

}  // namespace ladder
