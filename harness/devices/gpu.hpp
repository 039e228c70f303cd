// The GPU as the host code sees it; implemented in gpu.cu, or in gpu_none.cpp when the toolkit is missing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/stage.hpp"

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

// Device bytes one problem needs, guard zones included; `more_heads` and `outputs` as in GpuProblem::create.
size_t gpu_bytes_needed(const Shape& shape, bool with_scores, int more_heads = 0, int outputs = 1);

// The heads that one launch works on: the shape's number of them, from the given ones of Q, K and V on.
struct View {
  int q = 0, k = 0, v = 0;
  bool operator==(const View&) const = default;
};

// One launch: what it reads and which of the outputs it writes.
struct Launch {
  View view = {};
  int output = 0;
};

// What an output holds before a launch writes it: one NaN everywhere; or numbers that look like an answer, uniform, from
// a hash of `seed` and the index.
struct Filling {
  uint64_t seed = 0;
  f16 nan = POISON;
  float O_spread = 0;                    // O is within +-O_spread; 0: the NaN, in O and LSE
  float LSE_middle = 0, LSE_spread = 0;  // LSE is within LSE_middle +-LSE_spread
};

// A row of one of the outputs: (batch * heads + head) * n + i is query i of that head.
struct OutputRow {
  int output = 0;
  int64_t row = 0;
};

// Q, K, V, S and outputs (O and LSE) of one shape in GPU memory. Each buffer lies between two guard zones of a known
// pattern. Offsets are 64 bits wide: a tensor may have more than 2^32 elements.
class GpuProblem {
 public:
  // Uploads the inputs and poisons all outputs. Fails with needed and available GiB when they do not fit. A timed group
  // needs more than one problem in the same memory: Q, K and V may go on behind the shape's heads with those of
  // `more_heads` ([any number of heads, n, d] each), so that launches can begin at different ones, and there may be
  // several outputs.
  static Result<GpuProblem> create(const Shape& shape, const Inputs& inputs, bool with_scores,
                                   const Inputs& more_heads = {}, int outputs = 1);
  // For tensors larger than host memory: head h gets the inputs of head h % heads of `few`, [heads, n, d] each, copied
  // on the card.
  static Result<GpuProblem> create_repeated(const Shape& shape, const Inputs& few, bool with_scores);
  GpuProblem(GpuProblem&&) noexcept;
  GpuProblem& operator=(GpuProblem&&) noexcept;
  ~GpuProblem();

  // Other inputs for the shape's heads, in the memory that is there.
  Status upload(const Inputs& inputs);
  // Overwrites O and LSE with POISON; all outputs.
  Status poison_output();
  // The same for one output, with something else.
  Status fill_output(int output, const Filling& filling);
  // Changes the sign of V in the heads for which `flip` is not 0, those of `more_heads` included.
  Status negate_v(std::span<const uint8_t> flip);

  // One launch, waited for. Any launch or execution error is in the message.
  Status run(const Variant& variant, const Launch& launch = {});
  // Milliseconds of back-to-back launches, between two CUDA events. Nothing but the launches happens between the two.
  Result<double> time_ms(const Variant& variant, std::span<const Launch> launches);

  // O as it is now.
  Result<std::vector<f16>> read_output(int output = 0) const;
  // LSE as it is now: NaN unless a stage that writes it has run.
  Result<std::vector<float>> read_lse(int output = 0) const;
  // The given rows of the outputs, d elements each, and their LSE. One copy, whatever their number: quick enough to
  // verify between two timed groups.
  Result<std::vector<f16>> read_output_rows(std::span<const OutputRow> rows) const;
  Result<std::vector<float>> read_lse_rows(std::span<const OutputRow> rows) const;
  // Success, or which guard zone was overwritten where.
  Status check_guards() const;
  // Success, or which of Q, K and V no longer holds what was uploaded.
  Status check_inputs(const Inputs& inputs) const;

 private:
  struct Buffers;
  explicit GpuProblem(std::unique_ptr<Buffers> buffers);
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace ladder
