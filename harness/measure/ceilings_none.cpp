// The ceilings of a build without the CUDA Toolkit: there are none.
#include "harness/measure/ceilings.hpp"

namespace ladder {

struct MmaCeiling::State {};

MmaCeiling::MmaCeiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
MmaCeiling::MmaCeiling(MmaCeiling&&) noexcept = default;
MmaCeiling& MmaCeiling::operator=(MmaCeiling&&) noexcept = default;
MmaCeiling::~MmaCeiling() = default;

Result<MmaCeiling> MmaCeiling::create() {
  return failure(ExitCode::cannot_run_here, "This build has no GPU half.");
}
double MmaCeiling::flops() const {
  return 0;
}
Result<double> MmaCeiling::time_ms(int) {
  return failure(ExitCode::cannot_run_here, "This build has no GPU half.");
}

}  // namespace ladder
