// The judge: a plan of trials for some variants at some shapes, and a verdict over each, on any back end. It knows what a launch may
// take of time, which references several variants share and what ends early; verbs say what is asked, and print the report.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/verify/check.hpp"
#include "harness/verify/check_report.hpp"
#include "harness/verify/trials.hpp"

namespace ladder {

struct Subject {
  const Rung* rung;
  const Variant* variant;
  std::string name;              // of its line in the report
  bool quick = false;            // a few trials, whatever is asked of all
  const Variant* own = nullptr;  // of the rung itself, where the variant stands in its place
};

// What is asked of all subjects.
struct CheckChoice {
  TrialChoice trials = {};
  bool answers_only = false;   // counts may be what they are
  bool counts_told = false;    // other counts are told, and no failure
  bool first_failure = false;  // a subject's check ends with a wrong answer
  bool may_loop = false;       // without a timeout, a launch is stopped all the same when it is far beyond its work
  std::optional<double> timeout = {};  // seconds for one launch with its inputs and reference
};

// Where a trial runs.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Place place() const = 0;
  virtual Status fits(const Shape& shape, uint64_t workspace_bytes) const = 0;
  virtual std::vector<Trial> trials(const Subject& subject, const Shape& shape, const TrialChoice& choice) const = 0;
  // The seconds that a launch takes here, roughly.
  virtual double seconds(const Variant& variant, const Trial& trial) const = 0;
  // After these a launch that may loop is stopped; nothing: it cannot loop for ever.
  virtual std::optional<double> patience(const Variant& variant, const Trial& trial, bool may_loop) const = 0;
  // Whether subjects take their turn within a trial, whose memory they share, or trials within a subject.
  virtual bool by_trial() const = 0;
  // What to say of the first trial of a plan; mostly nothing.
  virtual std::string remark(const Trial&) const { return ""; }
  // A result for each input set. An Error is about the back end, and no verdict.
  virtual Result<std::vector<CheckResult>> run(const Subject& subject, const Trial& trial, const Problem& problem,
                                               const std::atomic<bool>& stop) = 0;
};
std::unique_ptr<Backend> emulator_backend();
// For subjects that run on it.
std::unique_ptr<Backend> gpu_backend(const GpuInfo& gpu);

class Judge {
 public:
  explicit Judge(const CheckChoice& choice) : choice_(choice) {}

  // All subjects take all shapes. Fails for what is no verdict.
  Status judge(Backend& backend, const std::vector<Subject>& subjects, const std::vector<Shape>& shapes);

  CheckReport report;
  size_t planned = 0, done = 0;  // launches
  bool lost = false;             // a thread still runs that nobody can stop

 private:
  CheckLine& line(const Subject& subject, Place place, const Shape& shape);
  bool keep(const Subject& subject, Place place, const Shape& shape, std::vector<CheckResult> results);

  const CheckChoice choice_;
  // Of a first look, over all groups of problems, and which of the notes says it.
  struct {
    size_t trials = 0, of = 0, subjects = 0;
    std::string name, number;
    std::optional<size_t> note;
  } looked_;
};

}  // namespace ladder
