// The ceilings of a build without the CUDA Toolkit: there are none.
#include "harness/measure/ceilings.hpp"

namespace ladder {

std::vector<std::string_view> Ceiling::names(std::string_view) {
  return {};
}
Result<std::unique_ptr<Ceiling>> Ceiling::create(std::string_view, std::string_view) {
  return failure(ExitCode::cannot_run_here, "This build has no GPU half.");
}

}  // namespace ladder
