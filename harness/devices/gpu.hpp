// The GPU as the host code sees it; implemented in gpu.cu, or in gpu_none.cpp when the toolkit is missing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/problem/tolerance.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

struct GpuInfo {
  std::string name;                          // "NVIDIA H200"
  int sm = 0;                                // compute capability times ten: 90
  int processors = 0;                        // streaming multiprocessors
  size_t memory_total = 0, memory_free = 0;  // bytes
  size_t smem_per_block = 0;                 // opt-in limit, bytes
  std::string driver, cuda;                  // driver version (by NVML where there is one), CUDA runtime version
  std::string pci_bus_id;                    // to find the same card in NVML
};

// The first GPU, or why there is none to use (cannot_run_here).
Result<GpuInfo> gpu_info();

// What the compiler and the driver say about one compiled variant, at n keys.
struct KernelResources {
  int registers = 0;
  int local_bytes = 0;  // spills and stack, per thread
  int blocks_per_sm = 0;
};
Result<KernelResources> gpu_resources(const Variant& variant, int n);

// The clocks of the SMs, counted: each SM's cycles beside the card's time.
class SmClocks {
 public:
  static Result<std::unique_ptr<SmClocks>> create();
  virtual ~SmClocks() = default;
  // Begins, or begins again. The card must have nothing else to do.
  virtual void start() = 0;
  // MHz since start(), the median over the SMs; nothing when the card did not answer.
  virtual std::optional<double> stop() = 0;
};

// Device bytes one problem needs, guard zones included; the others as in GpuProblem::create.
size_t gpu_bytes_needed(const Shape& shape, uint64_t workspace_bytes, int more_heads = 0, int outputs = 1);

// The units that one launch works on: the problem's number of them, from the given one on, of each input.
using View = std::vector<int>;

// One launch: what it reads and which of the outputs it writes.
struct Launch {
  View view = {};  // empty: from the first head on
  int output = 0;
};

// What the outputs hold before a launch writes them: one NaN everywhere; or numbers that look like an answer, uniform,
// from a hash of `seed` and the index.
struct Filling {
  struct Numbers {
    float middle = 0, spread = 0;  // within middle +-spread
  };
  uint64_t seed = 0;
  f16 nan = POISON;                   // of an output of another type the same bits, or its own poison
  std::vector<Numbers> numbers = {};  // of each output; empty: the NaN
};

// A row of one set of outputs.
struct OutputRow {
  int output = 0;
  Cell cell = {};
};

// The tensors of one problem in GPU memory: inputs, sets of outputs, a workspace. Each lies between two guard zones of
// a known pattern. Offsets are 64 bits wide: a tensor may have more than 2^32 elements.
class GpuProblem {
 public:
  // Uploads the inputs and poisons all outputs. Fails with needed and available GiB when they do not fit. A timed group
  // needs more than one problem in the same memory: the inputs may go on behind the problem's units with those of
  // `more_heads` (the same tensors, a multiple of their steps), so that launches can begin at different ones, and there may
  // be several sets of outputs.
  static Result<std::unique_ptr<GpuProblem>> create(const Shape& shape, const Inputs& inputs, uint64_t workspace_bytes,
                                                    const Inputs& more_heads = {}, int outputs = 1);
  // For tensors larger than host memory: head h gets the inputs of head h % heads of `few`, copied on the card.
  static Result<std::unique_ptr<GpuProblem>> create_repeated(const Shape& shape, const Inputs& few,
                                                             uint64_t workspace_bytes);
  virtual ~GpuProblem() = default;

  // Overwrites all outputs with POISON.
  virtual Status poison_output() = 0;
  // The same for one set of outputs, with something else.
  virtual Status fill_output(int output, const Filling& filling) = 0;
  // Changes the sign of an input in the units for which `flip` is not 0, more heads included.
  virtual Status negate(std::string_view input, std::span<const uint8_t> flip) = 0;

  // One launch, waited for. Any launch or execution error is in the message.
  virtual Status run(const Variant& variant, const Launch& launch = {}) = 0;
  // Milliseconds of back-to-back launches, between two CUDA events. Nothing but the launches happens between the two.
  virtual Result<double> time_ms(const Variant& variant, std::span<const Launch> launches) = 0;

  // An output as it is now: poison unless a rung that writes it has run.
  virtual Result<Tensor> read_output(std::string_view name, int output = 0) const = 0;
  // A number of all bytes that the first set of outputs has, gaps between rows included. Where it is another, so are they; where it
  // is the same, they are but by a chance of 1 in 2^64. Nothing is read but the number.
  virtual Result<uint64_t> hash_of_outputs() const = 0;
  // The given rows of it, as one unit of rows.size() rows. One copy, whatever their number: quick enough to verify between
  // two timed groups.
  virtual Result<Tensor> read_rows(std::string_view name, std::span<const OutputRow> rows) const = 0;
  // Success, or which guard zone was overwritten where.
  virtual Status check_guards() const = 0;
  // Success, or which of the inputs no longer holds what was uploaded.
  virtual Status check_inputs(const Inputs& inputs) const = 0;
};

}  // namespace ladder
