// The GPU as the host code sees it; implemented in gpu.cu, or in gpu_none.cpp when the toolkit is missing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/error.hpp"
#include "harness/inputs.hpp"
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

// Device bytes one problem needs, guard zones included.
size_t gpu_bytes_needed(const Shape& shape, bool with_scores);

// Q, K, V, O, LSE (and S) of one shape in GPU memory. Each buffer lies between two guard zones of a known pattern.
class GpuProblem {
 public:
  // Uploads the inputs and poisons O and LSE with NaN. Fails with needed and available GiB when they do not fit.
  static Result<GpuProblem> create(const Shape& shape, const Inputs& inputs, bool with_scores);
  GpuProblem(GpuProblem&&) noexcept;
  GpuProblem& operator=(GpuProblem&&) noexcept;
  ~GpuProblem();

  // Overwrites O and LSE with NaN.
  Status poison_output();
  // One launch, waited for. Any launch or execution error is in the message.
  Status run(const Variant& variant);
  // Milliseconds of `launches` back-to-back launches, between two CUDA events.
  Result<double> time_ms(const Variant& variant, int launches);
  // O as it is now.
  Result<std::vector<f16>> read_output() const;
  // LSE as it is now: NaN unless a stage that writes it has run.
  Result<std::vector<float>> read_lse() const;
  // The given rows of O, d elements each; row (batch * heads + head) * n + i is query i of that head. Quick enough to
  // verify between two timed groups.
  Result<std::vector<f16>> read_output_rows(std::span<const int64_t> rows) const;
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
