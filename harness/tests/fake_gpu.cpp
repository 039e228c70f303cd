// A GPU for testing bench and compare from outside on machines that have none: linked into the program `ladder_fake_gpu`
// in place of gpu.cu and ceilings.cu. It answers rightly, at a rate of its own for every stage. The environment makes it
// misbehave:
//   FAKE_GPU_WRONG=03_kvpipe   this stage's output is wrong
//   FAKE_GPU_STALE=03_kvpipe   this stage writes its output once and never again
//   FAKE_GPU_FAST=03_kvpipe    this stage claims to be faster than the ceiling
//   FAKE_GPU_SLOW=00_naive     this stage takes 1.5 s a launch
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>

#include "harness/ceilings.hpp"
#include "harness/csv.hpp"
#include "harness/gpu.hpp"
#include "harness/guarded.hpp"
#include "harness/stage.hpp"

namespace ladder {
namespace {

constexpr double CEILING_TFLOPS = 600;
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

std::vector<f16> attention(const Shape& shape, const Inputs& inputs, std::vector<float>& lse) {
  std::vector<f16> O(static_cast<size_t>(shape.elements()));
  const size_t n = static_cast<size_t>(shape.n), d = static_cast<size_t>(shape.d);
  std::vector<double> weights(n), row(d);
  for (size_t query = 0; query < static_cast<size_t>(shape.batch_heads()) * n; ++query) {
    const size_t head = query / n * n;
    const size_t keys = shape.causal ? query % n + 1 : n;
    double max = -INFINITY, sum = 0;
    for (size_t key = 0; key < keys; ++key) {
      double score = 0;
      for (size_t i = 0; i < d; ++i) {
        score += double{to_float(inputs.Q[query * d + i])} * double{to_float(inputs.K[(head + key) * d + i])};
      }
      weights[key] = score / std::sqrt(double(shape.d));
      max = std::max(max, weights[key]);
    }
    row.assign(d, 0);
    for (size_t key = 0; key < keys; ++key) {
      const double weight = std::exp(weights[key] - max);
      sum += weight;
      for (size_t i = 0; i < d; ++i) row[i] += weight * double{to_float(inputs.V[(head + key) * d + i])};
    }
    for (size_t i = 0; i < d; ++i) O[query * d + i] = to_f16(static_cast<float>(row[i] / sum));
    lse.push_back(static_cast<float>(max + std::log(sum)));
  }
  return O;
}

}  // namespace

struct GpuProblem::Buffers {
  Shape shape;
  size_t memory;
  std::vector<f16> answer = {}, O = {};
  std::vector<float> lse = {};
  std::set<const Variant*> ran = {};

  Buffers(const Shape& of, bool with_scores) : shape(of), memory(gpu_bytes_needed(of, with_scores)) {
    memory_held += memory;
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() { memory_held -= memory; }
};

Result<GpuInfo> gpu_info() {
  // This build's stages may have no GPU half; a fake GPU does not need one.
  for (const Stage& stage : stages()) {
    for (const Variant& variant : stage.variants) {
      const_cast<Variant&>(variant).on_gpu = [](gpu::Device&, const AttentionParams&) {};
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

Result<GpuProblem> GpuProblem::create(const Shape& shape, const Inputs& inputs, bool with_scores) {
  auto buffers = std::make_unique<Buffers>(shape, with_scores);
  buffers->answer = attention(shape, inputs, buffers->lse);
  buffers->O.assign(buffers->answer.size(), POISON);
  return GpuProblem(std::move(buffers));
}

Status GpuProblem::poison_output() {
  buffers_->O.assign(buffers_->O.size(), POISON);
  return {};
}

Status GpuProblem::run(const Variant& variant) {
  const bool again = !buffers_->ran.insert(&variant).second;
  if (again && told_to_be("FAKE_GPU_STALE", variant)) return {};
  buffers_->O = buffers_->answer;
  if (told_to_be("FAKE_GPU_WRONG", variant)) buffers_->O.assign(buffers_->O.size(), to_f16(0.5f));
  return {};
}

Result<double> GpuProblem::time_ms(const Variant& variant, int launches) {
  if (auto done = run(variant); !done) return tl::make_unexpected(done.error());
  const double number = std::atof(std::string(stage_of(variant).name.substr(0, 2)).c_str());
  double tflops = 100 + 20 * number + static_cast<double>(variant.label.size() % 7);
  if (told_to_be("FAKE_GPU_FAST", variant)) tflops = 2 * CEILING_TFLOPS;
  double ms = attention_flops(buffers_->shape) / (tflops * 1e9);
  if (told_to_be("FAKE_GPU_SLOW", variant)) ms = 1500;
  pass(ms * launches);
  return ms * launches;
}

Result<std::vector<f16>> GpuProblem::read_output() const {
  return buffers_->O;
}

Result<std::vector<float>> GpuProblem::read_lse() const {
  return buffers_->lse;
}

Result<std::vector<f16>> GpuProblem::read_output_rows(std::span<const int64_t> rows) const {
  std::vector<f16> output;
  const int64_t d = buffers_->shape.d;
  for (const int64_t row : rows) {
    output.insert(output.end(), buffers_->O.begin() + row * d, buffers_->O.begin() + (row + 1) * d);
  }
  return output;
}

Status GpuProblem::check_guards() const {
  return {};
}
Status GpuProblem::check_inputs(const Inputs&) const {
  return {};
}

struct MmaCeiling::State {};
MmaCeiling::MmaCeiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
MmaCeiling::MmaCeiling(MmaCeiling&&) noexcept = default;
MmaCeiling& MmaCeiling::operator=(MmaCeiling&&) noexcept = default;
MmaCeiling::~MmaCeiling() = default;
Result<MmaCeiling> MmaCeiling::create() {
  return MmaCeiling(std::make_unique<State>());
}
double MmaCeiling::flops() const {
  return 1e12;
}
Result<double> MmaCeiling::time_ms(int launches) {
  const double ms = flops() / (CEILING_TFLOPS * 1e9) * launches;
  pass(ms);
  return ms;
}

}  // namespace ladder
