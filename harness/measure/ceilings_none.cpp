// The ceilings of a build without the CUDA Toolkit: there are none.
#include "harness/measure/ceilings.hpp"

namespace ladder {
namespace {

tl::unexpected<Error> no_gpu() {
  return failure(ExitCode::cannot_run_here, "This build has no GPU half.");
}

}  // namespace

struct Ceiling::State {};

Ceiling::Ceiling(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ceiling::Ceiling(Ceiling&&) noexcept = default;
Ceiling& Ceiling::operator=(Ceiling&&) noexcept = default;
Ceiling::~Ceiling() = default;

std::vector<std::string_view> Ceiling::names(std::string_view) {
  return {};
}
Result<Ceiling> Ceiling::create(std::string_view, std::string_view) {
  return no_gpu();
}
double Ceiling::work() const {
  return 0;
}
Result<double> Ceiling::time_ms(int) {
  return no_gpu();
}
Status Ceiling::keep_busy(double) {
  return no_gpu();
}

}  // namespace ladder
