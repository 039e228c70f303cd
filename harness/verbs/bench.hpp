// ladder bench: the TFLOPS table, by the protocol of rounds.hpp, against peers and ceilings of the same run.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/results.hpp"
#include "harness/verbs/options.hpp"
#include "harness/verbs/recorded.hpp"
#include "harness/verify/judge.hpp"

namespace ladder {

// What is timed: those subjects that can be, beside all peers and ceilings; or, with `peers`, these and the peers of those names, none
// of whom may be missing, and nobody else.
struct BenchRequest {
  std::vector<Subject> subjects;
  std::string versus = "fa2";  // whose rate the last ratio is over
  std::optional<std::vector<std::string>> peers = {};
  std::function<void(const HeatRun&, const Results&)> after = {};  // a heat's table was printed
};
Result<ExitCode> bench(const Options& options, const GpuInfo& gpu, const BenchRequest& request);

// In turns, alone or burst, with the rounds and the soak that the options ask for.
Protocol protocol_of(const Options& options);

}  // namespace ladder
