// The GPU's side of the harness in a build without the CUDA Toolkit: it has no GPU, and says why.
#include "harness/devices/gpu.hpp"

namespace ladder {
namespace {

tl::unexpected<Error> no_gpu() {
  return failure(ExitCode::cannot_run_here,
                 "This build has no GPU half: " LADDER_NO_GPU_HALF
                 ".\n"
                 "  Here:  add --on cpu      the same kernels, emulated\n"
                 "  Or install the CUDA Toolkit (12.4 or newer) and configure again, with -DLADDER_CUDA=AUTO.");
}

}  // namespace

struct GpuProblem::Buffers {};

GpuProblem::GpuProblem(std::unique_ptr<Buffers> buffers) : buffers_(std::move(buffers)) {}
GpuProblem::GpuProblem(GpuProblem&&) noexcept = default;
GpuProblem& GpuProblem::operator=(GpuProblem&&) noexcept = default;
GpuProblem::~GpuProblem() = default;

struct SmClocks::Counters {};

SmClocks::SmClocks(std::unique_ptr<Counters> counters) : counters_(std::move(counters)) {}
SmClocks::SmClocks(SmClocks&&) noexcept = default;
SmClocks& SmClocks::operator=(SmClocks&&) noexcept = default;
SmClocks::~SmClocks() = default;
Result<SmClocks> SmClocks::create() {
  return no_gpu();
}
void SmClocks::start() {}
std::optional<double> SmClocks::stop() {
  return {};
}

Result<GpuInfo> gpu_info() {
  return no_gpu();
}
Result<KernelResources> gpu_resources(const Variant&, int) {
  return no_gpu();
}
Result<GpuProblem> GpuProblem::create(const Shape&, const Inputs&, uint64_t, const Inputs&, int) {
  return no_gpu();
}
Result<GpuProblem> GpuProblem::create_repeated(const Shape&, const Inputs&, uint64_t) {
  return no_gpu();
}
Status GpuProblem::upload(const Inputs&) {
  return no_gpu();
}
Status GpuProblem::poison_output() {
  return no_gpu();
}
Status GpuProblem::fill_output(int, const Filling&) {
  return no_gpu();
}
Status GpuProblem::negate(std::string_view, std::span<const uint8_t>) {
  return no_gpu();
}
Status GpuProblem::run(const Variant&, const Launch&) {
  return no_gpu();
}
Result<double> GpuProblem::time_ms(const Variant&, std::span<const Launch>) {
  return no_gpu();
}
Result<Tensor> GpuProblem::read_output(std::string_view, int) const {
  return no_gpu();
}
Result<Tensor> GpuProblem::read_rows(std::string_view, std::span<const OutputRow>) const {
  return no_gpu();
}
Status GpuProblem::check_guards() const {
  return no_gpu();
}
Status GpuProblem::check_inputs(const Inputs&) const {
  return no_gpu();
}

}  // namespace ladder
