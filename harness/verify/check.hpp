// Right or wrong: one kernel, one problem, one back end, one verdict with its reasons.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/base/error.hpp"
#include "harness/problem/problem.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

enum class Place { emulator, gpu };
std::string_view to_string(Place backend);

// Stable: the wrong kernels of the test-suite are matched by these. A cause stands before what follows from it.
enum class FailureKind {
  launch_failed,      // no launch, or it died
  hangs,              // it did not end in time, nor when asked to
  emulator_report,    // the emulator caught a race, a missing wait, ...; Failure::detail is the kind of report
  input_modified,     // Q, K or V changed
  guard_overwritten,  // a write before or behind a buffer
  unset_variable,     // two builds that differ in nothing but what unset variables hold give different outputs
  order_dependent,  // another order of the threads of a block gives other outputs, counts or reports; of a variant with the
                    // same bits in every run (Variant::same_bits) another order of blocks, or another launch
  unwritten_output,    // elements that still hold the NaN they were poisoned with
  nan_output,          // NaN where the reference is a number, and the kernel wrote it
  wrong_result,        // error against the reference above the tolerance, at one place or in the mean
  wrong_lse,           // log-sum-exp of some row off by more than f32 explains, NaN or unwritten
  differs_from_naive,  // the GPU's output against rung 00's on the GPU
  property_broken,     // what must change nothing (harness/properties.hpp) changed something
  conflicts_differ,    // Variant::conflict_ways against the emulator's, on the worst ldmatrix line
  counts_differ,       // Variant::predict against the emulator's count
};
std::string_view to_string(FailureKind kind);

// Right and slow is not wrong: these two kinds say that the counts are not as predicted, the others that the answers are
// not right.
constexpr bool is_about_counts(FailureKind kind) {
  return kind == FailureKind::counts_differ || kind == FailureKind::conflicts_differ;
}

struct Failure {
  FailureKind kind;
  std::string message;
  std::string detail = "";                       // emulator_report: the kind of report, e.g. "race"
  std::vector<emulator::SourceLine> where = {};  // lines that the message is about, the one at fault first
};

// Also the wmma.load of an operand, which is an ldmatrix to the hardware.
bool is_ldmatrix(const emulator::SiteCounts& site);
// The line with the worst bank conflicts, by region; null without any.
const emulator::SiteCounts* worst_ldmatrix(const emulator::Counters& counters);
// Bank conflicts over all ldmatrix together: wavefronts per ideal wavefront; 0 without any.
double ldmatrix_ways(const emulator::Counters& counters);

// How far an output is off that is held to a plain attention.
struct OutputError {
  std::string output;  // "O"
  double max_err = 0, tolerance = 0, rms_err = 0, rms_tolerance = 0;
};
// Whether an error is nearer to its tolerance than another one to its own, or further beyond; NaN is further than all.
bool is_worse(double error, double tolerance, double than, double its_tolerance);

struct CheckResult {
  std::string rung = {}, variant = {};
  Place backend = Place::emulator;
  Shape shape = {};
  std::string inputs = {};  // name of the InputKind, or of the property
  bool ok = false;
  double max_err = 0;  // largest |kernel - fp64| over the rows compared; NaN when an output is NaN
  double tolerance = 0;
  double rms_err = 0, rms_tolerance = 0;            // of all elements; 0 for a property
  std::vector<OutputError> errors = {};             // output by output; the four above are those of the worst
  std::vector<Failure> failures = {};               // empty exactly when ok
  std::vector<Failure> told = {};                   // counts that differ, where that is no failure
  std::optional<emulator::Counters> counters = {};  // on the emulator
  Tensor output = {};                               // the first of the outputs as the kernel left it, all heads
  double seconds = 0;                               // host time spent, checks included

  bool answers_right() const;
  bool counts_right() const;
  bool has(FailureKind kind) const;
  void fail(FailureKind kind, std::string message, std::string_view detail = "",
            std::vector<emulator::SourceLine> where = {});
};

// Where the emulator's checks are weaker in this build than elsewhere, as a sentence; empty if they are not. CMake finds it out.
std::string_view weaker_checks();

// A result without a word yet.
CheckResult start_result(const Rung& rung, const Variant& variant, const Shape& shape, std::string_view inputs,
                         Place backend);

// Runs one variant on the emulator with all of its checks on: a result for each input set of the problem, in which a fault
// of the launch stands as well. `rung` need not be registered. With `both_builds`, the build with zeros in unset variables
// runs too, if there is one, with the threads of a block in another order. It must do the same, bit for bit. So must a variant
// with `same_bits` whose blocks begin and arrive in other orders. With `also_fused`, the build that rounds a product and the sum behind
// it once runs as well, and must be right by itself.
std::vector<CheckResult> check_sets_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                                                const emulator::Options& options = {}, bool both_builds = false,
                                                bool also_fused = false);
// The same for a problem of one input set.
CheckResult check_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                              const emulator::Options& options = {}, bool both_builds = false);

// Whether it can be launched. Of a workspace whose numbers 31 bits cannot number a block in the middle and the last run, for nothing but
// what the emulator reports of them; else no block does.
CheckResult check_start(const Rung& rung, const Variant& variant, const Shape& shape,
                        const emulator::Options& options = {});

// Whether each query of a launch is read by some block before its first product, by none that has begun with keys of another head alone.
bool each_query_is_begun(const Rung& rung, const Variant& variant, const Shape& shape,
                         const emulator::Options& options);

// Adds that blocks have written nothing, as was not predicted; where some of many blocks have run, of a launch of which all write.
void judge_idle_blocks(CheckResult& result, const Variant& variant, const Problem& problem, uint32_t multiprocessors);
// Adds what was counted otherwise than predicted, on so many multiprocessors.
void judge_counts(CheckResult& result, const Variant& variant, const Problem& problem, uint32_t multiprocessors);

// Whether all of a grid's blocks have the same to do, so that any few of them tell of all.
bool blocks_are_alike(const Shape& shape);

// Adds what costs more than in the rung's own variant, or runs less beside its products, on the same problem; and of counts that this
// one leaves to its record all that is otherwise, where the `whole` launch has run. Where its ends alone have, which queries those are is
// the kernel's choice, and if heads' inputs are not `of_one_kind`, so is what their data have a say in.
void judge_beside(CheckResult& result, const Variant& variant, const emulator::Counters& own, bool whole,
                  bool of_one_kind = true);

class GpuProblem;
// The same on the GPU, where a variant with `same_bits` is launched so many times. `problem_on_gpu` holds the problem's inputs;
// `naive`, if not empty, is the first output of the plainest rung, in full.
std::vector<CheckResult> check_sets_on_gpu(const Rung& rung, const Variant& variant, const Problem& problem,
                                           GpuProblem& problem_on_gpu, const Tensor& naive, int launches);
CheckResult check_on_gpu(const Rung& rung, const Variant& variant, const Problem& problem, GpuProblem& problem_on_gpu,
                         const Tensor& naive);

// All of a rung's properties on one back end, at one small shape: a result for each. On the GPU, the first failure to
// run ends the list.
std::vector<CheckResult> check_properties(const Rung& rung, const Variant& variant, const Shape& shape, uint64_t seed,
                                          Place backend);

}  // namespace ladder
