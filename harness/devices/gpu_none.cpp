// The GPU's side of the harness in a build without the CUDA Toolkit: it has no GPU, and says why.
#include "harness/devices/gpu.hpp"

namespace ladder {
namespace {

Unexpected no_gpu() {
  return failure(ExitCode::cannot_run_here,
                 "This build has no GPU half: " LADDER_NO_GPU_HALF
                 ".\n"
                 "  Here:  add --on cpu      the same kernels, emulated\n"
                 "  Or install the CUDA Toolkit (12.4 or newer) and configure again, with -DLADDER_CUDA=AUTO.");
}

}  // namespace

Result<GpuInfo> gpu_info() {
  return no_gpu();
}
Result<KernelResources> gpu_resources(const Variant&, int) {
  return no_gpu();
}
Result<std::unique_ptr<SmClocks>> SmClocks::create() {
  return no_gpu();
}
Result<std::unique_ptr<GpuProblem>> GpuProblem::create(const Shape&, const Inputs&, uint64_t, const Inputs&, int) {
  return no_gpu();
}
Result<std::unique_ptr<GpuProblem>> GpuProblem::create_repeated(const Shape&, const Inputs&, uint64_t) {
  return no_gpu();
}

}  // namespace ladder
