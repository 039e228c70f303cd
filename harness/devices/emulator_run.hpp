// One run of a variant on the emulator: buffers, launch, and everything the emulator saw.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/problem/problem.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

struct EmulatorRun {
  bool stopped = false;  // Options::stop ended it
  Tensors outputs;       // of the problem's heads, those that the variant writes; poison where it wrote nothing
  emulator::Counters counters;
  std::vector<emulator::Report> reports;
  std::vector<emulator::TraceEvent> trace;  // with Options::trace
  std::vector<emulator::TraceRegion> trace_regions;
  std::vector<std::pair<std::string, size_t>> buffers;  // in global memory: name, bytes
  std::vector<std::string> overwritten_guards;          // one message for each guard zone that was written to
  std::vector<std::string> modified_inputs;             // "Q"
  // writer(an output, a row of it, a column): the line that has written it last, where that is known.
  std::function<std::optional<emulator::SourceLine>(std::string_view, const Cell&, int64_t)> writer;
};

// `build` says which of the variant's two emulated builds runs.
EmulatorRun run_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                            const emulator::Options& options = {}, Build build = Build::pattern);

// Of launches of which no block runs.
struct LaunchStart {
  std::vector<emulator::Report> reports;
  uint64_t blocks = 0;
};
// The variant's launches for the shape, on tensors of zeros, which take no memory. Unless Options::starts_only is set, blocks run.
LaunchStart start_on_emulator(const Rung& rung, const Variant& variant, const Shape& shape,
                              const emulator::Options& options);

}  // namespace ladder
