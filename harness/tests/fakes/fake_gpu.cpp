// A GPU for testing bench and compare from outside on machines that have none: linked into the program `ladder_fake_gpu`
// in place of gpu.cu and ceilings.cu. It answers rightly, at a rate of its own for every rung. The environment makes it
// misbehave:
//   FAKE_GPU_WRONG=93_longer   this rung's output is wrong
//   FAKE_GPU_STALE=93_longer   this rung writes each output once and never again
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "harness/devices/gpu.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/measure/ceilings.hpp"
#include "harness/measure/csv.hpp"
#include "harness/problem/formula.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {
namespace {

// A slow card: a group of small problems has hundreds of launches, and not ten thousands that its host pays for.
constexpr double CEILING_TFLOPS = 30;
size_t memory_held = 0;  // by the problems that stand

// Whatever a rung's parameters are, no kernel runs here.
struct Nothing {};
void convert(const Arguments&, Nothing&) {}

// Claimed milliseconds pass a hundred times faster.
void pass(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms / 100));
}

const Rung& rung_of(const Variant& variant) {
  for (const Rung& rung : rungs()) {
    for (const Variant& candidate : rung.variants) {
      if (&candidate == &variant) return rung;
    }
  }
  std::abort();
}

bool told_to_be(const char* what, const Variant& variant) {
  const char* name = std::getenv(what);
  return name && rung_of(variant).name == name;
}

// An output is not computed before somebody reads it, and then in the rows that are read.
class FakeProblem final : public GpuProblem {
 public:
  FakeProblem(const Shape& of, const Inputs& given, uint64_t workspace_bytes, int more_heads, int number)
      : shape(of),
        memory(gpu_bytes_needed(of, workspace_bytes, more_heads, number)),
        inputs(given),
        outputs(number),
        negative(static_cast<size_t>(of.batch_heads() + more_heads)) {
    memory_held += memory;
  }
  FakeProblem(const FakeProblem&) = delete;
  FakeProblem& operator=(const FakeProblem&) = delete;
  ~FakeProblem() override { memory_held -= memory; }
  void add(const Inputs& more_heads) {
    for (size_t i = 0; i < more_heads.size(); ++i)
      inputs.at(i).append(more_heads.at(i), 0, more_heads.at(i).spec().units());
  }

  Status poison_output() override {
    for (auto& output : outputs) output = {};
    return {};
  }
  Status fill_output(int output, const Filling&) override {
    outputs[output] = {};
    return {};
  }
  Status negate(std::string_view, std::span<const uint8_t> flip) override {
    for (size_t head = 0; head < flip.size(); ++head) negative[head] ^= flip[head];
    return {};
  }
  Status run(const Variant& variant, const Launch& launch) override {
    launch_all(variant, std::span(&launch, 1));
    return {};
  }
  Result<double> time_ms(const Variant& variant, std::span<const Launch> launches) override {
    launch_all(variant, launches);
    // The later on the ladder the faster, and variants of one rung by less.
    const Rung& rung = rung_of(variant);
    const auto all = static_cast<double>(rungs().size()), order = static_cast<double>(&rung - rungs().data()),
               own = static_cast<double>(&variant - rung.variants.data());
    const double tflops = 5 + 20 * (order + own / static_cast<double>(2 * rung.variants.size())) / all;
    const double ms = flops_of(shape) / (tflops * 1e9);
    pass(ms * static_cast<double>(launches.size()));
    return ms * static_cast<double>(launches.size());
  }
  Result<Tensor> read_rows(std::string_view name, std::span<const OutputRow> asked) const override {
    const std::vector<TensorSpec> specs = formula_of(shape).outputs(shape);
    const TensorSpec& spec = specs[place_of(specs, name)];
    Tensor some(tensor(name, spec.element, {1, 1, std::ssize(asked), spec.columns()}));
    some.poison();
    solve(name, asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!outputs[asked[i].output].written) continue;
      const std::vector<double> numbers = read(name, spec, asked[i]);
      for (int64_t c = 0; c < spec.columns(); ++c)
        some.set(static_cast<int64_t>(i) * spec.columns() + c, numbers[static_cast<size_t>(c)]);
    }
    return some;
  }
  Result<Tensor> read_output(std::string_view name, int output) const override {
    const std::vector<TensorSpec> specs = formula_of(shape).outputs(shape);
    Tensor whole(specs[place_of(specs, name)]);
    std::vector<OutputRow> all;
    for (int64_t unit = 0; unit < whole.spec().units(); ++unit) {
      for (int64_t row = 0; row < whole.spec().rows(); ++row) all.push_back({output, {unit, row}});
    }
    const auto read = read_rows(name, all);
    std::ranges::copy(read->bytes(), whole.bytes().begin());
    return whole;
  }
  Result<uint64_t> hash_of_outputs() const override {
    std::string all;
    for (const TensorSpec& spec : formula_of(shape).outputs(shape)) {
      const auto output = read_output(spec.name, 0);
      all.append(reinterpret_cast<const char*>(output->bytes().data()), output->bytes().size());
    }
    return std::hash<std::string>{}(all);
  }
  Status check_guards() const override { return {}; }
  Status check_inputs(const Inputs&) const override { return {}; }

 private:
  struct Output {
    std::optional<View> written;  // by the last launch; nothing: poison
    bool wrong = false;
  };
  Shape shape;
  size_t memory;
  Inputs inputs;
  std::vector<Output> outputs;
  std::vector<uint8_t> negative;             // units of the odd input
  mutable std::map<View, Inputs> seen = {};  // by a launch of that view, with the odd input as uploaded
  mutable std::map<std::tuple<View, std::string_view, Cell>, std::vector<double>> rows = {};  // answers
  std::set<std::pair<const Variant*, int>> ran = {};

  void launch_all(const Variant& variant, std::span<const Launch> launches) {
    const bool wrong = told_to_be("FAKE_GPU_WRONG", variant), stale = told_to_be("FAKE_GPU_STALE", variant);
    for (const Launch& launch : launches) {
      if (stale && !ran.insert({&variant, launch.output}).second) continue;
      outputs[launch.output] = {launch.view.empty() ? View(inputs.size()) : launch.view, wrong};
    }
  }

  // What a launch of that view reads.
  const Inputs& inputs_of(const View& view) const {
    const auto [known, added] = seen.try_emplace(view);
    const std::vector<TensorSpec> specs = formula_of(shape).inputs(shape);
    for (size_t i = 0; added && i < specs.size(); ++i) {
      Tensor& tensor = known->second.add(Tensor(specs[i]));
      std::ranges::copy(
          inputs.at(i).bytes().subspan(static_cast<size_t>(view[i]) * specs[i].unit_bytes(), specs[i].bytes()),
          tensor.bytes().begin());
    }
    return known->second;
  }

  // The right answers of these rows, those of one view at a time.
  void solve(std::string_view name, std::span<const OutputRow> asked) const {
    const Formula& formula = formula_of(shape);
    std::map<View, std::set<Cell>> missing;
    for (const OutputRow& row : asked) {
      const auto& view = outputs[row.output].written;
      if (view && !rows.contains({*view, name, row.cell})) missing[*view].insert(row.cell);
    }
    for (const auto& [view, cells] : missing) {
      const std::vector<Cell> list(cells.begin(), cells.end());
      const Cells all(formula.outputs(shape).size(), list);
      const Reference reference = formula.make_reference(shape, inputs_of(view), all, 1, false);
      for (const Reference::Answer& answer : reference.answers) {
        for (size_t i = 0; i < list.size(); ++i) {
          rows[{view, answer.output, list[i]}] = {answer.row(i).begin(), answer.row(i).end()};
        }
      }
    }
  }

  std::vector<double> read(std::string_view name, const TensorSpec& spec, const OutputRow& row) const {
    const Output& output = outputs[row.output];
    const auto columns = static_cast<size_t>(spec.columns());
    if (output.wrong) return std::vector<double>(columns, 0.5);
    std::vector<double> answer = rows.at({*output.written, name, row.cell});
    const Formula& formula = formula_of(shape);
    const std::vector<TensorSpec> specs = formula.inputs(shape);
    const size_t odd = place_of(specs, formula.odd_input);
    if (odd == specs.size() || std::ranges::find(formula.odd_outputs, name) == formula.odd_outputs.end()) return answer;
    const int64_t group = std::max<int64_t>(1, spec.units() / specs[odd].units());
    if (negative[static_cast<size_t>((*output.written)[odd] + row.cell.unit / group)]) {
      for (double& value : answer) value = -value;
    }
    return answer;
  }
};

class FakeClocks final : public SmClocks {
  void start() override {}
  std::optional<double> stop() override { return 1500; }
};

class FakeCeiling final : public Ceiling {
 public:
  explicit FakeCeiling(std::string_view name) : name_(name) {}
  double work() const override { return name_ == "ex2" ? 1e10 : 1e12; }
  Result<double> time_ms(int launches) override {
    const double ms = 1e12 / (CEILING_TFLOPS * 1e9) * launches;
    pass(ms);
    return ms;
  }
  Status keep_busy(double ms) override {
    pass(ms);
    return {};
  }

 private:
  std::string name_;
};

}  // namespace

Result<GpuInfo> gpu_info() {
  // This build's rungs may have no GPU half; a fake GPU does not need one.
  for (const Rung& rung : rungs()) {
    for (const Variant& variant : rung.variants) {
      const_cast<Variant&>(variant).on_gpu = GpuLaunch(+[](gpu::Device&, const Nothing&) {});
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

Result<std::unique_ptr<GpuProblem>> GpuProblem::create(const Shape& shape, const Inputs& inputs,
                                                       uint64_t workspace_bytes, const Inputs& more_heads,
                                                       int outputs) {
  const auto more = more_heads.empty() ? 0 : static_cast<int>(fewest_units(more_heads));
  auto problem = std::make_unique<FakeProblem>(shape, inputs, workspace_bytes, more, outputs);
  problem->add(more_heads);
  return problem;
}
Result<std::unique_ptr<GpuProblem>> GpuProblem::create_repeated(const Shape&, const Inputs&, uint64_t) {
  return failure(ExitCode::cannot_run_here, "the fake GPU holds no large problems");
}
Result<std::unique_ptr<SmClocks>> SmClocks::create() {
  return std::make_unique<FakeClocks>();
}
std::vector<std::string_view> Ceiling::names(std::string_view) {
  return {"mma_sync", "ex2"};
}
Result<std::unique_ptr<Ceiling>> Ceiling::create(std::string_view name, std::string_view) {
  return std::make_unique<FakeCeiling>(name);
}

}  // namespace ladder
