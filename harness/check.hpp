// Right or wrong: one kernel, one problem, one back end, one verdict with its reasons.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/error.hpp"
#include "harness/inputs.hpp"
#include "harness/reference.hpp"
#include "harness/stage.hpp"

namespace ladder {

enum class Backend { emulator, gpu };
std::string_view to_string(Backend backend);

// Stable: the wrong kernels of the test-suite are matched by these.
enum class FailureKind {
  wrong_result,        // error against the reference above the tolerance
  wrong_lse,           // log-sum-exp of some row off by more than f32 explains, NaN or unwritten
  nan_output,          // NaN where the reference is a number, and the kernel wrote it
  unwritten_output,    // elements that still hold the NaN they were poisoned with
  guard_overwritten,   // a write before or behind a buffer
  input_modified,      // Q, K or V changed
  emulator_report,     // the emulator caught a race, a missing wait, ...; Failure::detail is the kind of report
  launch_failed,       // no launch, or it died
  counts_differ,       // Variant::predict against the emulator's count
  conflicts_differ,    // Variant::conflict_ways against the emulator's, on the worst ldmatrix line
  differs_from_naive,  // the GPU's output against stage 00's on the GPU
  property_broken,     // what must change nothing (harness/properties.hpp) changed something
};
std::string_view to_string(FailureKind kind);

struct Failure {
  FailureKind kind;
  std::string message;
  std::string detail = "";  // emulator_report: the kind of report, e.g. "race"
};

// The emulator's counters in the words of a prediction.
Counts counts_of(const emulator::Counters& counters);
// Also the wmma.load of an operand, which is an ldmatrix to the hardware.
bool is_ldmatrix(const emulator::SiteCounts& site);
// The line with the worst bank conflicts, by region; null without any.
const emulator::SiteCounts* worst_ldmatrix(const emulator::Counters& counters);
// Bank conflicts over all ldmatrix together: wavefronts per ideal wavefront; 0 without any.
double ldmatrix_ways(const emulator::Counters& counters);

// One problem with its answer: made once, given to every kernel.
struct Problem {
  Shape shape;
  InputKind kind;
  uint64_t seed;
  Inputs inputs;
  Reference reference;
};
Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed);

struct CheckResult {
  std::string stage, variant;
  Backend backend = Backend::emulator;
  Shape shape;
  std::string inputs;  // name of the InputKind, or of the property
  bool ok = false;
  double max_err = 0;  // largest |kernel - fp64| over the rows compared; NaN when an output is NaN
  double tolerance = 0;
  std::vector<Failure> failures;               // empty exactly when ok
  std::optional<emulator::Counters> counters;  // on the emulator
  std::vector<f16> output;                     // what the kernel left in O
  double seconds = 0;                          // host time spent, checks included

  bool has(FailureKind kind) const;
  bool has_report(std::string_view detail) const;
};

// Runs one variant on the emulator with all of its checks on. `stage` need not be registered.
CheckResult check_on_emulator(const Stage& stage, const Variant& variant, const Problem& problem,
                              const emulator::Options& options = {});

class GpuProblem;
// The same on the GPU. `problem_on_gpu` holds the problem's inputs; `naive`, if not empty, is stage 00's output in full.
CheckResult check_on_gpu(const Stage& stage, const Variant& variant, const Problem& problem, GpuProblem& problem_on_gpu,
                         std::span<const f16> naive);

// All of a stage's properties on one back end, at one small shape: a result for each. On the GPU, the first failure to
// run ends the list.
std::vector<CheckResult> check_properties(const Stage& stage, const Variant& variant, const Shape& shape, uint64_t seed,
                                          Backend backend);

}  // namespace ladder
