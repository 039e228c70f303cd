#include "harness/verify/check_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "harness/base/table.hpp"
#include "harness/base/terminal.hpp"
#include "harness/problem/shapes.hpp"

namespace ladder {
namespace {

// The same fault, wherever it was seen: places and numbers in the message differ from launch to launch.
bool same_fault(const Failure& a, const Failure& b) {
  return a.kind == b.kind && a.detail == b.detail && (a.kind != FailureKind::emulator_report || a.where == b.where);
}

// "    92 | ldmatrix_x4(K_frag, ...);", or nothing if the file cannot be read here.
std::string source_text(const emulator::SourceLine& where) {
  std::ifstream file(where.file);
  std::string text;
  for (int line = 0; line < where.line && std::getline(file, text); ++line) {
  }
  const size_t begin = text.find_first_not_of(' ');
  if (!file || begin == std::string::npos) return "";
  return fmt::format("    {:>4} | {}\n", where.line, text.substr(begin));
}

std::string lines_of(const Failure& failure) {
  std::string text;
  std::set<int> shown;
  constexpr size_t MOST = 6;  // an endless loop may have many
  for (const emulator::SourceLine& where : failure.where) {
    if (shown.size() < MOST && shown.insert(where.line).second) text += source_text(where);
  }
  return text;
}

// What the shapes of those that fail say of the cause, beside the inputs that it was met with: all words of theirs that no other
// result's shape has. Which counts are told differs from shape to shape, so of these it says nothing.
std::string about_shape(const CheckLine& line, const Failure& cause) {
  if (is_about_counts(cause.kind)) return "";
  struct Met {
    std::set<std::string> with, without;  // "n=64", or "" where the shape does not have the word
  };
  std::vector<std::string> names;  // in the order of the words
  std::map<std::string, Met> words;
  for (const CheckResult& result : line.results) {
    for (const std::string& name : words_of(to_string(result.shape))) {
      if (words.try_emplace(name).second) names.push_back(name);
    }
  }
  for (const CheckResult& result : line.results) {
    const bool met =
        std::ranges::any_of(result.failures, [&](const Failure& failure) { return same_fault(failure, cause); });
    std::map<std::string, std::string> own;
    std::istringstream text(to_string(result.shape));
    for (std::string word; text >> word;) own[word.substr(0, word.find('='))] = word;
    for (auto& [name, sides] : words) (met ? sides.with : sides.without).insert(own[name]);
  }
  std::vector<std::string> theirs;
  for (const std::string& name : names) {
    const auto& [with, without] = words[name];
    const bool apart = std::ranges::none_of(with, [&](const std::string& word) { return without.contains(word); });
    constexpr size_t MOST = 4;  // of more it tells nothing
    if (apart && !without.empty() && !with.contains("") && with.size() <= MOST)
      theirs.push_back(fmt::format("{}", fmt::join(with, " or ")));
  }
  if (theirs.empty()) return "";
  return fmt::format("  All that was tried with {} meets it, and nothing else does: {} may be the cause.\n",
                     fmt::join(theirs, ", "), theirs.size() == 1 ? "that" : "one of these");
}

const CheckResult& worst_of(const CheckLine& line) {
  const CheckResult* worst = &line.results.front();
  for (const CheckResult& result : line.results) {
    if (is_worse(result.max_err, result.tolerance, worst->max_err, worst->tolerance)) worst = &result;
  }
  return *worst;
}

}  // namespace

bool CheckLine::answers_right() const {
  return std::ranges::all_of(results, &CheckResult::answers_right);
}

bool CheckLine::counts_right() const {
  return std::ranges::all_of(results, &CheckResult::counts_right);
}

std::string where_to_read(const Failure& failure) {
  const FailureKind kind = failure.kind;
  const std::string_view report = failure.detail;
  const auto emulator = [](std::string_view what) { return fmt::format("docs/emulator.md, \"{}\"", what); };
  if (kind == FailureKind::emulator_report) {
    if (report.find("block") != std::string_view::npos && report.starts_with("race")) {
      return emulator("Races between blocks");
    }
    if (report.starts_with("race")) return emulator("Races");
    if (report.find("flight") != std::string_view::npos) return emulator("Missing waits");
    if (report.find("proxy") != std::string_view::npos) return emulator("Proxy fences");
    if (report.starts_with("divergent") || report == "incomplete-warp") return emulator("Divergence");
    if (report == "endless-loop") return emulator("Loops without end");
    if (report == "barrier-misuse") {
      const bool named = failure.message.find("named barrier") != std::string::npos;
      return emulator(named ? "Named barriers" : "mbarriers");
    }
    if (report == "plain-access") return emulator("Pointers past the emulator");
    if (report == "unordered-sums") return emulator("Sums in turn");
    if (report == "uninitialised-read") return emulator("Unset variables");
    if (report == "array-bounds" || report == "undefined-arithmetic") return emulator("Undefined behaviour");
    if (report == "newer-instruction") return emulator("Newer instructions");
    if (report.starts_with("global") || report.starts_with("shared")) return emulator("Addresses");
    return emulator("What is found");
  }
  if (kind == FailureKind::unset_variable) return emulator("Unset variables");
  if (kind == FailureKind::order_dependent) return emulator("Another order");
  if (is_about_counts(kind)) return emulator("What is counted");
  return "docs/measuring.md, \"Right or wrong\"";
}

std::string explain_failures(const CheckLine& line) {
  const CheckResult* where = nullptr;
  const Failure* cause = nullptr;
  for (const CheckResult& result : line.results) {
    for (const Failure& failure : result.failures) {
      if (cause != nullptr && cause->kind <= failure.kind) continue;
      cause = &failure;
      where = &result;
    }
  }
  if (cause == nullptr) return "";

  std::string text;
  // All faults of that kind in the launch where it was met first, and how many other input sets have met it.
  constexpr size_t MOST = 5;
  size_t shown = 0, left_out = 0;
  for (const Failure& failure : where->failures) {
    if (failure.kind != cause->kind && !is_about_counts(cause->kind)) continue;
    if (shown == MOST) {
      ++left_out;
      continue;
    }
    ++shown;
    text += fmt::format("{}{}{}: {}\n{}", text.empty() ? "" : "  ", to_string(failure.kind),
                        failure.detail.empty() ? "" : fmt::format(" ({})", failure.detail), failure.message,
                        lines_of(failure));
  }
  if (left_out > 0) text += fmt::format("  ... and {} more of this kind: --json FILE has them\n", left_out);

  const auto others = std::ranges::count_if(line.results, [&](const CheckResult& result) {
    return &result != where &&
           std::ranges::any_of(result.failures, [&](const Failure& failure) { return same_fault(failure, *cause); });
  });
  text += fmt::format("  {} on the {}: {}\n", line.name, to_string(line.backend),
                      is_about_counts(cause->kind) ? "answers right, counts DIFFER" : "answers WRONG");
  text += fmt::format("  Met with {} at {}", where->inputs, to_string(where->shape));
  text += others > 0 ? fmt::format(", and the same in {} of {} other results.\n", others, line.results.size() - 1)
          : line.results.size() > 1 ? " alone.\n"
                                    : ".\n";
  text += about_shape(line, *cause);

  std::map<std::string_view, int> effects;
  for (const CheckResult& result : line.results) {
    std::set<std::string_view> kinds;
    for (const Failure& failure : result.failures) {
      if (failure.kind != cause->kind && !is_about_counts(failure.kind)) kinds.insert(to_string(failure.kind));
    }
    for (const std::string_view kind : kinds) ++effects[kind];
  }
  std::vector<std::string> with_it;
  for (const auto& [what, count] : effects)
    with_it.push_back(fmt::format("{} in {} input set{}", what, count, count == 1 ? "" : "s"));
  if (!with_it.empty()) text += fmt::format("  With it: {}.\n", fmt::join(with_it, ", "));
  text += fmt::format("  To read: {}; {}/README.md, \"What breaks\".\n", where_to_read(*cause), line.directory);
  return text;
}

// Each count that differs, as it was met first, where that is no failure.
std::string explain_told(const CheckLine& line) {
  std::set<std::string> met;
  std::string text;
  for (const CheckResult& result : line.results) {
    for (const Failure& told : result.told) {
      if (met.insert(told.message.substr(0, told.message.find(':'))).second)
        text += fmt::format("  {} ({} at {})\n", told.message, result.inputs, to_string(result.shape));
    }
  }
  if (text.empty()) return text;
  return fmt::format("\n{}: other counts than the rung's, which is no fault by itself (--counts makes it one)\n{}",
                     line.name, text);
}

void print(const CheckReport& report, std::FILE* out) {
  // Of one rung the reason comes first; beside others the table says which.
  constexpr size_t SHOWN = 12;
  std::string reasons;
  size_t failures = 0;
  bool one_rung = true;
  for (const CheckLine& line : report.lines) {
    const std::string text = explain_failures(line);
    if (!text.empty() && ++failures <= SHOWN) reasons += "\n" + text;
    one_rung &= line.directory == report.lines.front().directory;
  }
  if (failures > SHOWN) reasons += fmt::format("\n... and {} more: --json FILE has all of them.\n", failures - SHOWN);
  if (one_rung && failures > 0) fmt::print(out, "{}\n", std::string_view(reasons).substr(1));
  Table table({"<stage", "<on", "?results", "<error of tolerance", "<answers", "<counts", "?time"});
  size_t wrong = 0, differ = 0;
  for (const CheckLine& line : report.lines) {
    const CheckResult& worst = worst_of(line);
    double seconds = 0;
    for (const CheckResult& result : line.results) seconds += result.seconds;
    const bool right = line.answers_right(), counted = line.backend == Place::emulator;
    wrong += !right;
    differ += right && !std::ranges::all_of(line.results, &CheckResult::ok);
    table.add({line.name, line.backend == Place::gpu ? "gpu" : "cpu", fmt::format("{}", line.results.size()),
               fmt::format("{:.1e} of {:.1e} {}", worst.max_err, worst.tolerance, worst.inputs),
               verdict_word(right, out), !counted || !right ? "" : verdict_word(line.counts_right(), out, "DIFFER"),
               fmt::format("{:.2f} s", seconds)});
  }
  fmt::print(out, "{}", table.text(out));

  std::set<std::string> shapes, inputs;
  bool alone = true;  // --inputs and the like have left nothing beside
  for (const CheckLine& line : report.lines) {
    shapes.insert(to_string(line.shape));
    for (const CheckResult& result : line.results) inputs.insert(result.inputs);
    alone &= line.results.size() == 1;
  }
  if (alone) {
    fmt::print(out, "Inputs: {} at {}, and no others.\n", fmt::join(inputs, ", "), fmt::join(shapes, "; "));
  } else {
    fmt::print(out, "Normal inputs at {}, hostile ones and other problems beside them.\n", fmt::join(shapes, "; "));
  }
  fmt::print(out, "Tolerance: twice the error of the plain formula in the same type, on the same inputs, plus 1e-5.\n");
  if (!one_rung) fmt::print(out, "{}", reasons);
  for (const CheckLine& line : report.lines) fmt::print(out, "{}", explain_told(line));
  for (const std::string& note : report.notes) print_wrapped(out, note);
  const auto say = [&](size_t count, const char* what) {
    if (count > 0) {
      fmt::print(out, "{} of {} check{} failed: {}.\n", count, report.lines.size(), report.lines.size() == 1 ? "" : "s",
                 what);
    }
  };
  say(wrong, "wrong answers");
  say(differ, "right answers, but other counts than predicted");
}

}  // namespace ladder
