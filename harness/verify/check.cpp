#include "harness/verify/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "harness/devices/emulator_run.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/devices/guarded.hpp"
#include "harness/problem/spec.hpp"
#include "harness/verify/properties.hpp"

namespace ladder {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Cell cell_of(const TensorSpec& spec, int64_t element) {
  return {element / spec.unit_elements(), element / spec.columns() % spec.rows()};
}

// Whether is(its number) holds for any of an output's elements, or for one of a cell's.
bool any(const Tensor& output, const auto& is, int64_t first = 0, std::optional<int64_t> count = {}) {
  for (int64_t i = first; i < first + count.value_or(output.spec().elements()); ++i) {
    if (is(i)) return true;
  }
  return false;
}
bool any(const Tensor& output, const Cell& cell, const auto& is) {
  return any(output, is, output.spec().index(cell.unit, cell.row), output.spec().columns());
}

// All of its elements are the first one, which is poison.
bool is_unwritten(const Tensor& output, const Cell& cell) {
  const int64_t first = output.spec().index(cell.unit, cell.row);
  const size_t bytes = bytes_of(output.spec().element, 1);
  return output.is_poison(first) &&
         std::memcmp(output.at(first), output.at(first) + bytes, output.spec().row_bytes() - bytes) == 0;
}

bool has_unwritten(const Tensors& outputs) {
  return std::ranges::any_of(
      outputs, [](const Tensor& output) { return any(output, [&](int64_t i) { return output.is_poison(i); }); });
}

std::vector<Cell> written_cells(const Tensor& output) {
  std::vector<Cell> written;
  for (int64_t unit = 0; unit < output.spec().units(); ++unit) {
    for (int64_t row = 0; row < output.spec().rows_of(unit); ++row) {
      if (!is_unwritten(output, {unit, row})) written.push_back({unit, row});
    }
  }
  return written;
}

// A query's scores where their exponentials alone leave f32: then a maximum is missing, or begins wrongly.
std::string scores_of(const Problem& problem, const Cell& cell) {
  const Spec& spec = problem.shape;
  if (!problem.formula().is_attention || spec.softcap > 0 || spec.alibi) return "";
  const Rows Q(problem.inputs["Q"], cell.unit), K(problem.inputs["K"], cell.unit / (spec.heads / spec.key_heads()));
  const std::span<const float> query = Q.row(cell.row);
  double least = std::numeric_limits<double>::infinity(), most = -least;
  int64_t largest = -1;
  for_each_run_of_keys(spec, cell.unit / spec.heads, cell.row, [&](const Keys& run) {
    for (int64_t number = run.first; number < run.last; ++number) {
      const double score = spec.scale() * std::inner_product(query.begin(), query.end(), K.row(number).begin(), 0.0);
      least = std::min(least, score);
      if (score > most) most = score, largest = number;
    }
  });
  constexpr double LN_OF_LARGEST = 88;
  if (!std::isfinite(least) || !std::isfinite(most) || std::max(-least, most) < LN_OF_LARGEST) return "";
  return fmt::format("; its scores lie between {:.4g} and {:.4g}, the largest is that of key {}", least, most, largest);
}

// "; 12 of the 64 rows that are compared are off: rows 52 to 63 of 2 heads, in columns 64 to 127": what the rows that are off, or NaN,
// have in common says more of the cause than one of them.
std::string rows_off(const Reference::Answer& answer, const Tensor& output, size_t set) {
  std::set<int64_t> rows, columns, units;
  int64_t off = 0, all = 0;
  for (size_t i = 0; i < answer.cells.size(); ++i) {
    if (answer.set_of(i) != set) continue;
    ++all;
    const auto first = output.spec().index(answer.cells[i].unit, answer.cells[i].row);
    const auto is_off = [&](int64_t column) {
      const double error =
          error_of(output[static_cast<size_t>(first + column)], answer.row(i)[static_cast<size_t>(column)]);
      return !(error <= answer.tolerance_of_row(set, i));  // NaN too
    };
    size_t in_row = 0;
    for (int64_t column = 0; column < answer.columns; ++column) {
      if (!is_off(column)) continue;
      ++in_row;
      columns.insert(column);
    }
    if (in_row == 0) continue;
    ++off;
    rows.insert(answer.cells[i].row);
    units.insert(answer.cells[i].unit);
  }
  if (off == 0) return "";
  std::string text = off == all
                         ? fmt::format("; all {} rows that are compared are off", all)
                         : fmt::format("; {} of the {} rows that are compared are off: {}{} of {} head{}", off, all,
                                       *rows.begin(), rows.size() > 1 ? fmt::format(" to {}", *rows.rbegin()) : "",
                                       units.size(), units.size() > 1 ? "s" : "");
  if (static_cast<int64_t>(columns.size()) < answer.columns)
    text += fmt::format(", in columns {} to {}", *columns.begin(), *columns.rbegin());
  return text;
}

// One input set of a launch, in one of its outputs.
struct SetView {
  const Problem& problem;
  const Reference::Answer& answer;
  const Tensor& output;
  size_t set;

  // Calls visit(cell) for each row of the output that belongs to the set.
  template <class Visit>
  void for_each_cell(const Visit& visit) const {
    for (int64_t unit = 0; unit < output.spec().units(); ++unit) {
      if (answer.set_of_unit(unit) != set) continue;
      for (int64_t row = 0; row < output.spec().rows_of(unit); ++row) {
        if (!problem.ends_only || !is_unwritten(output, {unit, row})) visit(Cell{unit, row});
      }
    }
  }
  template <class Visit>
  void for_each_element(const Visit& visit) const {
    for_each_cell([&](const Cell& cell) {
      const int64_t first = output.spec().index(cell.unit, cell.row);
      for (int64_t i = first; i < first + output.spec().columns(); ++i) visit(i);
    });
  }
  std::string place(const Cell& cell, int64_t column) const {
    return fmt::format("{}, column {}", ladder::place(problem, output.spec(), cell), column);
  }
};

// Who has written an element of an output, where that is known, as EmulatorRun has it.
using Writer = decltype(EmulatorRun::writer);
void fail_at(CheckResult& result, FailureKind kind, std::string message, const Writer& writer, const Tensor& output,
             const Cell& cell, int64_t column) {
  std::vector<emulator::SourceLine> where;
  if (const auto line = writer ? writer(output.name(), cell, column) : std::nullopt) {
    message += fmt::format("; last written at {}", emulator::to_string(*line));
    where.push_back(*line);
  }
  result.fail(kind, std::move(message), "", std::move(where));
}

// Elements of the set for which is_bad(their number) holds, and what there is to say of them.
template <class IsBad, class Say>
void report_elements(CheckResult& result, const SetView& view, FailureKind kind, const char* what, const IsBad& is_bad,
                     const Say& say, const Writer& writer) {
  int64_t bad = 0, all = 0, first = 0;
  view.for_each_element([&](int64_t i) {
    ++all;
    if (is_bad(i) && bad++ == 0) first = i;
  });
  if (bad == 0) return;
  const TensorSpec& spec = view.output.spec();
  const Cell cell = cell_of(spec, first);
  const int64_t column = first % spec.columns();
  fail_at(result, kind,
          fmt::format("{} of {} output elements {}, the first at {}{}", bad, all, what, view.place(cell, column),
                      say(cell)),
          writer, view.output, cell, column);
}

// Whether NaN may stand in the output of this set at all: then the reference alone says where.
bool expects_nan(const Reference::Answer& answer, size_t set) {
  for (size_t i = 0; i < answer.cells.size(); ++i) {
    if (answer.set_of(i) == set && std::ranges::any_of(answer.row(i), [](double value) { return std::isnan(value); }))
      return true;
  }
  return false;
}

// An output that is held to a plain computation in its types.
void judge_against_baseline(CheckResult& result, const Problem& problem, size_t set, const Reference::Answer& answer,
                            const Tensor& output, const Writer& writer) {
  const SetView view{problem, answer, output, set};
  const auto say = [&](const Cell& cell) { return rows_off(answer, output, set) + scores_of(problem, cell); };
  const ElementInfo& of = info(output.spec().element);
  report_elements(
      result, view, FailureKind::unwritten_output, "were never written", [&](int64_t i) { return output.is_poison(i); },
      [](const Cell&) { return ""; }, {});
  if (of.has_nan && !expects_nan(answer, set)) {
    report_elements(
        result, view, FailureKind::nan_output, "are NaN",
        [&](int64_t i) { return std::isnan(of.to(output.at(i))) && !output.is_poison(i); }, say, writer);
  }
  const Comparison worst = compare_to_reference(answer, output, set);
  const OutputError error{std::string(output.name()), worst.max_err, worst.tolerance, worst.rms, worst.rms_tolerance};
  if (result.errors.empty() || is_worse(error.max_err, error.tolerance, result.max_err, result.tolerance)) {
    result.max_err = error.max_err;
    result.tolerance = error.tolerance;
    result.rms_err = error.rms_err;
    result.rms_tolerance = error.rms_tolerance;
  }
  result.errors.push_back(error);
  const bool number_expected = std::isfinite(worst.expected);
  if (!worst.within() && !(std::isnan(worst.max_err) && !result.failures.empty())) {
    const std::string place = view.place(worst.cell, worst.column);
    std::string range;
    if (std::abs(worst.got) >= of.largest) {
      range = fmt::format("; {} goes to {:g} and no further, so the output or a weight has left its range", of.name,
                          of.largest);
    }
    fail_at(result, number_expected && std::isnan(worst.got) ? FailureKind::nan_output : FailureKind::wrong_result,
            number_expected
                ? fmt::format("max error {:.2e} above the tolerance {:.2e} at {}: {:.6g} instead of {:.6g}{}",
                              worst.max_err, worst.tolerance, place, worst.got, worst.expected, range + say(worst.cell))
                : fmt::format("{:.6g} at {}, where the inputs' NaN and infinities make {:.6g} of the formula",
                              worst.got, place, worst.expected),
            writer, output, worst.cell, worst.column);
  } else if (!worst.rms_within() && !std::isnan(worst.rms)) {
    result.fail(FailureKind::wrong_result,
                fmt::format("root mean square error {:.3e} above {:.3e}, {:.2g} times that of "
                            "the plain formula in this type: everywhere a "
                            "little too wrong, as if something were rounded once too often",
                            worst.rms, worst.rms_tolerance, answer.rms_factor));
  }
}

// An output of one f32 in each row that is off by no more than its row explains: the log-sum-exp, or a sink's gradient.
void judge_rows(CheckResult& result, const Problem& problem, size_t set, const Reference::Answer& answer,
                const Tensor& output, const Writer& writer) {
  const auto number = [&](size_t i) {
    return output[static_cast<size_t>(output.spec().index(answer.cells[i].unit, answer.cells[i].row))];
  };
  size_t wrong = 0, all = 0, first = 0;
  for (size_t i = 0; i < answer.cells.size(); ++i) {
    if (answer.set_of(i) != set) continue;
    ++all;
    const double got = number(i), expected = answer.values[i];
    if (got == expected || std::abs(got - expected) <= answer.row_tolerance[i]) continue;  // false for NaN
    if (std::isnan(got) && std::isnan(expected)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  const bool is_lse = answer.output == "LSE";
  fail_at(result, is_lse ? FailureKind::wrong_lse : FailureKind::wrong_result,
          fmt::format("{} is wrong in {} of {} rows, the first at {}: {:.7g} instead of {:.7g}, where f32 explains "
                      "{:.1e}",
                      is_lse ? "log-sum-exp" : answer.output, wrong, all,
                      place(problem, output.spec(), answer.cells[first]), number(first), answer.values[first],
                      answer.row_tolerance[first]),
          writer, output, answer.cells[first], 0);
}

void judge_outputs(CheckResult& result, const Problem& problem, size_t set, const Tensors& outputs,
                   const Writer& writer = {}) {
  const std::vector<Failure> of_launch = result.failures;
  const bool several = std::ranges::count_if(outputs, [&](const Tensor& output) {
                         return !problem.reference[output.name()].baseline.empty();
                       }) > 1;
  for (const Tensor& output : outputs) {
    const Reference::Answer& answer = problem.reference[output.name()];
    // What is wrong with one output says nothing of another, and where there are others it is named.
    std::vector<Failure> others = std::exchange(result.failures, of_launch);
    (answer.baseline.empty() ? judge_rows : judge_against_baseline)(result, problem, set, answer, output, writer);
    for (size_t i = of_launch.size(); i < result.failures.size(); ++i) {
      if (several && !answer.baseline.empty()) result.failures[i].message.insert(0, fmt::format("{}: ", output.name()));
      others.push_back(std::move(result.failures[i]));
    }
    result.failures = std::move(others);
  }
}

// Whether the emulator has reported anything: each report is a failure of that kind.
bool fail_reports(CheckResult& result, FailureKind kind, const std::vector<emulator::Report>& reports,
                  const std::string& where = "") {
  for (const emulator::Report& report : reports) {
    result.fail(kind, where + report.message, emulator::to_string(report.kind), report.where);
  }
  return !reports.empty();
}

void judge_emulator_run(CheckResult& result, const EmulatorRun& run) {
  fail_reports(result, FailureKind::emulator_report, run.reports);
  for (const std::string& message : run.overwritten_guards) {
    result.fail(FailureKind::guard_overwritten, "a write " + message);
  }
  for (const std::string& name : run.modified_inputs) result.fail(FailureKind::input_modified, name + " was changed");
}

// Rows that the reference leaves out are held to the plainest rung on the same GPU. Each of the two may be off by the
// tolerance.
void judge_against_naive(CheckResult& result, const Problem& problem, size_t set, const Tensor& output,
                         const Tensor& naive) {
  const Reference::Answer& answer = problem.reference.answers.front();
  double most = 0;
  for (size_t i = 0; i < answer.cells.size(); ++i) {
    if (answer.set_of(i) == set) most = std::max(most, answer.tolerance_of_row(set, i));
  }
  double difference = 0;
  SetView{problem, answer, output, set}.for_each_element([&](int64_t i) {
    const double a = output[static_cast<size_t>(i)], b = naive[static_cast<size_t>(i)];
    if (!std::isfinite(a) && !std::isfinite(b)) return;  // the reference tells NaN and infinity apart
    if (std::isnan(difference)) return;
    if (!(std::abs(a - b) <= difference)) difference = std::abs(a - b);
  });
  if (difference <= 2 * most) return;
  result.fail(FailureKind::differs_from_naive,
              fmt::format("differs from {} on this GPU by {:.2e} somewhere; {:.2e} is allowed", rungs().front().name,
                          difference, 2 * most));
}

}  // namespace

void CheckResult::fail(FailureKind kind, std::string message, std::string_view detail,
                       std::vector<emulator::SourceLine> where) {
  failures.push_back({kind, std::move(message), std::string(detail), std::move(where)});
}

std::string_view weaker_checks() {
  constexpr std::string_view HERE = LADDER_WEAKER;
  return HERE.empty() ? HERE : "Checks are weaker here: " LADDER_WEAKER ".";
}

CheckResult start_result(const Rung& rung, const Variant& variant, const Shape& shape, std::string_view inputs,
                         Place backend) {
  return {.rung = std::string(rung.name),
          .variant = variant.label,
          .backend = backend,
          .shape = shape,
          .inputs = std::string(inputs)};
}

bool is_worse(double error, double tolerance, double than, double its_tolerance) {
  return !std::isnan(than) && !(error * its_tolerance <= than * tolerance);
}

std::string_view to_string(Place backend) {
  return backend == Place::gpu ? "gpu" : "emulator";
}

std::string_view to_string(FailureKind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(FailureKind::counts_differ) + 1> NAMES = {
      "launch_failed",     "hangs",
      "emulator_report",   "input_modified",
      "guard_overwritten", "unset_variable",
      "order_dependent",   "unwritten_output",
      "nan_output",        "wrong_result",
      "wrong_lse",         "differs_from_naive",
      "property_broken",   "conflicts_differ",
      "counts_differ"};
  static_assert(!NAMES.back().empty());
  return NAMES[static_cast<size_t>(kind)];
}

bool CheckResult::answers_right() const {
  return std::ranges::all_of(failures, [](const Failure& failure) { return is_about_counts(failure.kind); });
}

bool CheckResult::counts_right() const {
  return told.empty() &&
         std::ranges::none_of(failures, [](const Failure& failure) { return is_about_counts(failure.kind); });
}

bool CheckResult::has(FailureKind kind) const {
  return std::ranges::any_of(failures, [=](const Failure& failure) { return failure.kind == kind; });
}

namespace {

// The first element in which two runs of the same problem differ in a bit, where not both are NaN.
std::optional<std::string> difference(const Problem& problem, const Tensors& outputs, const Tensors& others) {
  for (const Tensor& output : outputs) {
    const Tensor& other = others[output.name()];
    const TensorSpec& spec = output.spec();
    if (std::ranges::equal(output.bytes(), other.bytes())) continue;
    for (int64_t i = 0; i < spec.elements(); ++i) {
      const double a = output[static_cast<size_t>(i)], b = other[static_cast<size_t>(i)];
      if (std::memcmp(output.at(i), other.at(i), bytes_of(spec.element, 1)) == 0 || (std::isnan(a) && std::isnan(b)))
        continue;
      return fmt::format("{:.9g} and {:.9g} in {} at {}, column {}", a, b, output.name(),
                         place(problem, spec, cell_of(spec, i)), i % spec.columns());
    }
  }
  return std::nullopt;
}

// In what two runs of the same problem differ; nothing if in nothing. Where blocks add to a sum in any order, its last bits say
// nothing.
std::optional<std::string> difference(const Variant& variant, const Problem& problem, const EmulatorRun& run,
                                      const EmulatorRun& again) {
  if (run.counters.gmem_bytes_reduced == 0 || variant.same_bits) {
    if (auto what = difference(problem, run.outputs, again.outputs)) return what;
  }
  if (run.counters == again.counters) return std::nullopt;
  std::string what = "other counts:";
  for (const emulator::Count& count : emulator::COUNTS) {
    const uint64_t a = run.counters.*count.value, b = again.counters.*count.value;
    if (a != b) what += fmt::format(" {} and {} {},", a, b, count.words);
  }
  what.pop_back();
  return what;
}

// A result for each input set: the faults of the launch, and what judge_set(result, set) finds.
std::vector<CheckResult> results_of(const CheckResult& launch, const Problem& problem, const Stopwatch& watch,
                                    Tensors& outputs, const auto& judge_set) {
  std::vector<CheckResult> results;
  for (size_t set = 0; set < problem.kinds.size(); ++set) {
    CheckResult& result = results.emplace_back(launch);
    result.inputs = to_string(problem.kinds[set]);
    judge_set(result, set);
    result.ok = result.failures.empty();
    result.seconds = watch.seconds() / static_cast<double>(problem.kinds.size());
  }
  if (!outputs.empty()) results.front().output = std::move(outputs.at(0));
  return results;
}

// The same problem once more, in the other build and with the threads of a block in another order.
void judge_again(CheckResult& launch, const Rung& rung, const Variant& variant, const Problem& problem,
                 const emulator::Options& options, const EmulatorRun& run) {
  const Build build = variant.on_emulator_zeroed != nullptr ? Build::zero : Build::pattern;
  emulator::Options other_order = options;
  other_order.schedule = problem.seed | 1;
  const EmulatorRun again = run_on_emulator(rung, variant, problem, other_order, build);
  if (!again.stopped && run.counters.gmem_bytes_reduced > 0) {
    CheckResult first, other;
    for (size_t set = 0; set < problem.kinds.size(); ++set) {
      judge_outputs(first, problem, set, run.outputs);
      judge_outputs(other, problem, set, again.outputs);
    }
    if (first.failures.empty() && !other.failures.empty()) {  // or else it is wrong in every order
      launch.fail(FailureKind::order_dependent,
                  "with another order, and with other bits in what nobody has set: " + other.failures.front().message);
      return;
    }
  }
  if (again.stopped || (again.reports.empty() && !difference(variant, problem, run, again))) return;
  const EmulatorRun in_order = run_on_emulator(rung, variant, problem, options, build);
  if (in_order.stopped) return;
  if (const auto what = difference(variant, problem, run, in_order)) {
    launch.fail(FailureKind::unset_variable,
                fmt::format("a variable is read that nobody has set: two builds that differ in nothing but what such a "
                            "variable holds give {}",
                            *what));
    return;
  }
  if (fail_reports(launch, FailureKind::order_dependent, again.reports,
                   "with the threads of a block in another order: "))
    return;
  if (const auto what = difference(variant, problem, run, again)) {
    launch.fail(FailureKind::order_dependent,
                fmt::format("what it does depends on which thread of a block comes first: two orders give {}", *what));
  }
}

// One input set where a product and the sum behind it were rounded once, as nvcc's FMA does it: what is wrong there alone says so, and so
// does what is wrong without.
void judge_fused(CheckResult& result, const Problem& problem, size_t set, const EmulatorRun& fused) {
  CheckResult own;
  fail_reports(own, FailureKind::emulator_report, fused.reports);
  if (own.failures.empty()) judge_outputs(own, problem, set, fused.outputs, fused.writer);
  if (result.answers_right()) {
    if (own.failures.empty()) return;
    Failure& first = own.failures.front();
    result.fail(
        first.kind,
        "right only where a product is rounded before it is added to; with one rounding for both, as on a GPU: " +
            first.message,
        first.detail, first.where);
  } else if (own.failures.empty()) {
    result.failures.front().message +=
        "; right only where a product and the sum behind it have one rounding, which no compiler promises";
  }
}

// The same problem in other orders of blocks: of their beginning, and, as several run at a time, of their arrival.
void judge_orders_of_blocks(CheckResult& launch, const Rung& rung, const Variant& variant, const Problem& problem,
                            const emulator::Options& options, const EmulatorRun& run) {
  uint64_t order = problem.seed;
  for (const int at_a_time : {1, 2, 4, 1, 3}) {
    emulator::Options other = options;
    other.cluster_order = other.schedule = ++order;
    other.threads = at_a_time;
    const EmulatorRun again = run_on_emulator(rung, variant, problem, other);
    if (again.stopped) return;
    if (fail_reports(launch, FailureKind::order_dependent, again.reports, "with its blocks in another order: ")) return;
    if (const auto what = difference(problem, run.outputs, again.outputs)) {
      return launch.fail(FailureKind::order_dependent,
                         fmt::format("what it does depends on which block comes first: two orders give {}", *what));
    }
  }
}

// As many as there are tiles of queries, or of keys, if these are more: then none of a launch's blocks has a second share. In
// `pairs` a head's last tile counts twice if it is alone.
uint32_t one_for_each_share(const Variant& variant, const Problem& problem, bool pairs) {
  const Shape launched = problem.launched();
  const int64_t br = std::max(1, variant.tile.br), bc = std::max(1, variant.tile.bc);
  const auto tiles = [&](int64_t n, int64_t rows) {
    return pairs ? 2 * ((n + 2 * rows - 1) / (2 * rows)) : (n + rows - 1) / rows;
  };
  const int64_t of_head = pairs ? std::max(tiles(launched.n, br), tiles(launched.keys(), bc)) : tiles(launched.n, br);
  return static_cast<uint32_t>(launched.batch_heads() * of_head);
}

// Where a kernel leaves out known heads of many: other parts of its grids that may be theirs. It may take heads in turn instead of one
// after the other, all of them or those of each sequence, in some of its launches or in all, or some heads in each of several launches, or begin as many blocks as there are
// multiprocessors, or take the last head first, or have so many in a row.
std::vector<emulator::Options> other_parts(const Variant& variant, const Problem& problem,
                                           const emulator::Options& options) {
  emulator::Options in_runs = options, other = options;
  in_runs.in_runs = true;
  other.in_runs = false;
  emulator::Options in_turn = other, of_each_sequence = other, in_launches = other, exactly = other,
                    from_behind = other;
  in_turn.interleaved = 1;
  of_each_sequence.interleaved = static_cast<uint64_t>(problem.launched().batch);
  in_launches.slices = static_cast<uint64_t>(std::max(2, problem.far_heads / 8));
  in_launches.whole_up_to = 64;
  exactly.multiprocessors = one_for_each_share(variant, problem, false);
  // The first part, the last, and the one that lies as far from the end as a known head between them from the beginning.
  from_behind.between =
      static_cast<uint64_t>(problem.far_heads - 1 - problem.launched_head(problem.shape.batch_heads() - 2));
  if (options.in_runs) return {other, in_turn, of_each_sequence, in_launches, exactly, from_behind};
  return {in_turn, of_each_sequence, in_launches, exactly, from_behind, in_runs};
}

// The problem with the answers of rows that a launch of few clusters has written. Each block that has written has at least
// a tile of queries, or the end of one; or a row, where blocks share a tile's keys.
Problem answered(CheckResult& launch, const Variant& variant, const Problem& question, const EmulatorRun& run) {
  Cells some;
  for (const Tensor& output : run.outputs) {
    const std::vector<Cell> written = written_cells(output);
    const uint64_t blocks = run.counters.blocks - run.counters.idle_blocks;
    const int tile = std::max(1, variant.tile.br);
    const bool of_tiles = variant.few_rows == 0 && question.shape.n % tile == 0;
    const uint64_t of_block = of_tiles ? static_cast<uint64_t>(tile) : 1;
    const auto rows = static_cast<uint64_t>(output.spec().units() * output.spec().rows());
    const uint64_t least = launch.has(FailureKind::counts_differ) ? 0 : 1;  // that all of them are idle has been said
    const uint64_t fewest = std::clamp(blocks * of_block, least, rows);
    if (some.empty() && written.size() < fewest) {
      launch.fail(FailureKind::unwritten_output,
                  written.empty() ? fmt::format("no row of {} was ever written", output.name())
                                  : fmt::format("{} blocks have written to {} queries, where {} are theirs at least",
                                                blocks, written.size(), fewest));
    }
    const auto MOST = std::clamp<size_t>(65536 / static_cast<size_t>(std::max(1, question.shape.keys())), 12,
                                         40);        // rows of long walks take long
    std::vector<Cell>& cells = some.emplace_back();  // in odd steps, which meet every lane's
    const size_t step = written.size() / MOST | 1;
    std::optional<int64_t>
        asked;  // the unit of which a row of NaN is among them: whether one may stand there, the reference says
    const auto is_nan = [&](int64_t i) { return std::isnan(output[static_cast<size_t>(i)]); };
    for (size_t i = 0; i < written.size(); ++i) {
      const bool is_first_nan = asked != written[i].unit && any(output, written[i], is_nan);
      if (is_first_nan) asked = written[i].unit;
      if (i % step == 0 || is_first_nan) cells.push_back(written[i]);
    }
  }
  some.resize(question.formula().outputs(question.shape).size(), some.front());
  Problem problem = question;
  problem.reference =
      problem.formula().make_reference(problem.shape, problem.inputs, some, problem.kinds.size(), false);
  return problem;
}

}  // namespace

std::vector<CheckResult> check_sets_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                                                const emulator::Options& given, bool both_builds, bool also_fused) {
  const Stopwatch watch;
  emulator::Options options = given;
  if (variant.same_bits)
    options.threads = 1;  // its blocks may wait for those that have begun before, and for no others
  if (problem.far_heads > 0) {
    options.multiprocessors = one_for_each_share(variant, problem, true);
    options.in_runs = variant.workspace_at(problem.launched()) > 0;  // what a launch reads, the one before has written
  }
  CheckResult launch = start_result(rung, variant, problem.launched(), "", Place::emulator);
  EmulatorRun run;
  if (variant.on_emulator == nullptr) {
    launch.fail(FailureKind::launch_failed, "this variant has no emulated build");
  } else {
    run = run_on_emulator(rung, variant, problem, options);
    if (problem.far_heads > 0 && !run.stopped && has_unwritten(run.outputs)) {
      for (const emulator::Options& parts : other_parts(variant, problem, options)) {
        EmulatorRun other = run_on_emulator(rung, variant, problem, parts);
        if (has_unwritten(other.outputs)) continue;
        run = std::move(other);
        options = parts;
        break;
      }
    }
    launch.counters = run.counters;
    judge_emulator_run(launch, run);
  }
  const bool complete =
      variant.on_emulator != nullptr && !run.stopped &&
      std::ranges::none_of(run.reports, [](const emulator::Report& report) { return emulator::is_fatal(report.kind); });
  const bool is_counted = problem.far_heads == 0 && !problem.ends_only;  // predictions are for all blocks
  if (complete && is_counted) judge_counts(launch, variant, problem, options.multiprocessors);
  if (complete && problem.ends_only) judge_idle_blocks(launch, variant, problem, emulator::MANY_MULTIPROCESSORS);
  if (complete && both_builds && launch.answers_right()) judge_again(launch, rung, variant, problem, options, run);
  if (complete && both_builds && variant.same_bits && launch.answers_right())
    judge_orders_of_blocks(launch, rung, variant, problem, options, run);

  std::optional<Problem> ends;
  if (complete && problem.ends_only) ends = answered(launch, variant, problem, run);
  const Problem& judged = ends ? *ends : problem;
  std::optional<EmulatorRun> fused;
  if (complete && also_fused && variant.on_emulator_fused != nullptr)
    fused = run_on_emulator(rung, variant, problem, options, Build::fused);

  return results_of(launch, problem, watch, run.outputs, [&](CheckResult& result, size_t set) {
    result.max_err = std::numeric_limits<double>::quiet_NaN();
    if (complete)  // what an ended launch has left tells nothing
      judge_outputs(result, judged, set, run.outputs, run.writer);
    if (fused && !fused->stopped) judge_fused(result, judged, set, *fused);
  });
}

CheckResult check_on_emulator(const Rung& rung, const Variant& variant, const Problem& problem,
                              const emulator::Options& options, bool both_builds) {
  return std::move(check_sets_on_emulator(rung, variant, problem, options, both_builds).front());
}

CheckResult check_start(const Rung& rung, const Variant& variant, const Shape& shape, const emulator::Options& given) {
  CheckResult result = start_result(rung, variant, shape, "no inputs", Place::emulator);
  constexpr uint64_t FAR = uint64_t{1} << 31;
  emulator::Options options = given;
  options.starts_only = variant.workspace_at(shape) / sizeof(float) < FAR;
  options.ends = options.from = 1;  // there numbers leave 31 bits, and at the end 32
  if (variant.on_emulator != nullptr)
    fail_reports(result, FailureKind::emulator_report, start_on_emulator(rung, variant, shape, options).reports);
  result.ok = result.failures.empty();
  return result;
}

bool each_query_is_begun(const Rung& rung, const Variant& variant, const Shape& shape, const emulator::Options& given) {
  struct Heads {
    std::set<int64_t> of_queries, of_keys;
  };
  const std::vector<TensorSpec> inputs = formula_of(shape).inputs(shape);
  const TensorSpec &Q = inputs.at(0), &K = inputs.at(1);
  std::vector<bool> begun(static_cast<size_t>(Q.units() * Q.rows()));
  std::map<uint64_t, Heads> blocks;
  std::mutex mutex;
  emulator::Options options = given;
  options.begun = [&](const std::string& buffer, uint64_t offset, uint32_t bytes, uint64_t block) {
    const bool is_Q = buffer == Q.name;
    if (!is_Q && buffer != K.name) return;
    const uint64_t row_bytes = (is_Q ? Q : K).row_bytes();
    const std::lock_guard guard(mutex);
    for (uint64_t row = offset / row_bytes; row * row_bytes < offset + bytes; ++row) {
      if (is_Q) begun.at(row) = true;
      Heads& heads = blocks[block];
      (is_Q ? heads.of_queries : heads.of_keys).insert(static_cast<int64_t>(row) / (is_Q ? Q : K).rows());
    }
  };
  if (!start_on_emulator(rung, variant, shape, options).reports.empty()) return false;
  const int64_t group = shape.heads / shape.key_heads();
  const bool agree = std::ranges::all_of(blocks, [&](const auto& block) {
    const auto& [of_queries, of_keys] = block.second;
    return of_keys.empty() ||
           std::ranges::all_of(of_queries, [&](int64_t head) { return of_keys.contains(head / group); });
  });
  return agree && std::ranges::all_of(begun, [](bool is) { return is; });
}

namespace {

// What it does when it is launched again, until there have been so many launches. What one leaves is read only where its hash is another:
// to read gradients of a few hundred MB, and to compare them here, takes half a second.
template <class Run, class Read>
void judge_more_launches(CheckResult& launch, const Problem& problem, GpuProblem& problem_on_gpu,
                         const Tensors& outputs, int launches, const Run& run, const Read& read) {
  const auto first = problem_on_gpu.hash_of_outputs();
  if (!first) return launch.fail(FailureKind::launch_failed, first.error().message);
  for (int i = 1; i < launches; ++i) {
    if (const Status status = run(); !status) return launch.fail(FailureKind::launch_failed, status.error().message);
    const auto hash = problem_on_gpu.hash_of_outputs();
    if (hash && *hash == *first) continue;
    const auto again = hash ? read() : passed_on(hash);
    if (!again) return launch.fail(FailureKind::launch_failed, again.error().message);
    if (const auto what = difference(problem, outputs, *again)) {
      return launch.fail(FailureKind::order_dependent,
                         fmt::format("two launches give {}; launch {} differs from the first", *what, i + 1));
    }
  }
}

}  // namespace

std::vector<CheckResult> check_sets_on_gpu(const Rung& rung, const Variant& variant, const Problem& problem,
                                           GpuProblem& problem_on_gpu, const Tensor& naive, int launches) {
  const Stopwatch watch;
  CheckResult launch = start_result(rung, variant, problem.launched(), "", Place::gpu);
  const auto run = [&]() -> Status {
    if (const Status status = problem_on_gpu.poison_output(); !status) return status;
    return problem_on_gpu.run(variant);
  };
  const auto read_outputs = [&]() -> Result<Tensors> {
    Tensors outputs;
    for (const TensorSpec& spec : outputs_of(variant, problem.shape)) {
      std::vector<OutputRow> rows;  // of the units that are known, where there are too many to read
      for (int64_t unit = 0; problem.far_heads > 0 && unit < spec.units(); ++unit) {
        for (int64_t i = 0; i < spec.rows(); ++i) rows.push_back({.cell = {problem.launched_head(unit), i}});
      }
      const auto read =
          rows.empty() ? problem_on_gpu.read_output(spec.name) : problem_on_gpu.read_rows(spec.name, rows);
      if (!read) return passed_on(read);
      Tensor output(spec);  // the known heads' rows, one after the other, are those heads
      std::ranges::copy(read->bytes(), output.bytes().begin());
      outputs.add(std::move(output));
    }
    return outputs;
  };
  Tensors outputs;
  const Status launched = run();
  if (auto first = launched ? read_outputs() : passed_on(launched); !first) {
    launch.fail(FailureKind::launch_failed, first.error().message);
  } else {
    outputs = std::move(*first);
    if (variant.same_bits && problem.far_heads == 0)
      judge_more_launches(launch, problem, problem_on_gpu, outputs, launches, run, read_outputs);
    if (const Status guards = problem_on_gpu.check_guards(); !guards) {
      launch.fail(FailureKind::guard_overwritten, guards.error().message);
    }
    const Status inputs = problem.far_heads > 0 ? Status() : problem_on_gpu.check_inputs(problem.inputs);
    if (!inputs) launch.fail(FailureKind::input_modified, inputs.error().message);
  }

  return results_of(launch, problem, watch, outputs, [&](CheckResult& result, size_t set) {
    if (outputs.empty()) return;
    judge_outputs(result, problem, set, outputs);
    if (!naive.empty()) judge_against_naive(result, problem, set, outputs.at(0), naive);
  });
}

CheckResult check_on_gpu(const Rung& rung, const Variant& variant, const Problem& problem, GpuProblem& problem_on_gpu,
                         const Tensor& naive) {
  return std::move(check_sets_on_gpu(rung, variant, problem, problem_on_gpu, naive, 1).front());
}

std::vector<CheckResult> check_properties(const Rung& rung, const Variant& variant, const Shape& shape, uint64_t seed,
                                          Place backend) {
  const Stopwatch watch;
  if (!formula_of(shape).is_attention || !beyond_columns(shape).empty()) return {};
  const Run on_emulator = [&](const Inputs& inputs) -> Result<Tensor> {
    return run_on_emulator(rung, variant, {shape, {InputKind::normal}, seed, inputs, {}}).outputs.at(0);
  };
  const Run on_gpu = [&](const Inputs& inputs) -> Result<Tensor> {
    auto problem = GpuProblem::create(shape, inputs, variant.workspace_at(shape));
    if (!problem) return passed_on(problem);
    if (const Status status = (*problem)->run(variant); !status) return passed_on(status);
    return (*problem)->read_output(formula_of(shape).outputs(shape).front().name);
  };
  const auto properties = check_properties_of(backend == Place::gpu ? on_gpu : on_emulator, shape, seed);
  std::vector<CheckResult> results;
  const auto add = [&](std::string_view what) -> CheckResult& {
    return results.emplace_back(start_result(rung, variant, shape, what, backend));
  };
  if (!properties) add("properties").fail(FailureKind::launch_failed, properties.error().message);
  for (const PropertyResult& property : properties.value_or(std::vector<PropertyResult>())) {
    CheckResult& result = add(property.name);
    result.max_err = property.deviation;
    result.tolerance = property.bound;
    if (property.holds()) continue;
    result.fail(FailureKind::property_broken,
                fmt::format("{}: outputs that should agree differ by {:.2e}; rounding explains {:.2e}", property.name,
                            property.deviation, property.bound));
  }
  for (CheckResult& result : results) result.ok = result.failures.empty(), result.seconds = watch.seconds();
  return results;
}

}  // namespace ladder
