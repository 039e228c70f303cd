#include "harness/verify/record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/base/files.hpp"
#include "harness/base/text.hpp"
#include "harness/devices/emulator_run.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/problem/spec.hpp"

namespace ladder {
namespace {

std::string file_of(const Rung& rung) {
  return (std::filesystem::path(LADDER_SOURCE_DIR) / rung.directory / "counts.tsv").string();
}

std::string command_of(const Rung& rung) {
  return fmt::format("./ladder check {} --record-counts", rung.number());
}

// A line begins with these, and goes on with a number for each word of the first line.
std::string key_of(const Variant& variant, const Trial& trial) {
  return fmt::format("{}\t{}\t{}\t{}", variant.label, to_string(trial.shape), trial.multiprocessors, trial.seed);
}
constexpr std::string_view KEY = "variant\tproblem\tmultiprocessors\tseed";

// What the text has of a variant's problem, if anything; an error where it is none of these files.
Result<std::optional<Counts>> find_in(const std::string& text, const Variant& variant, const Trial& trial) {
  const std::vector<std::string_view> lines = split(text, '\n');
  std::vector<emulator::CountOf> columns;
  for (const std::string_view name : split(lines.front(), '\t')) {
    const auto known = std::ranges::find(emulator::COUNTS, name, &emulator::Count::name);
    if (known != std::end(emulator::COUNTS)) columns.push_back(known->value);
  }
  const std::string key = key_of(variant, trial) + '\t';
  const auto line = std::ranges::find_if(lines, [&](std::string_view each) { return each.starts_with(key); });
  if (line == lines.end()) return std::nullopt;
  const std::vector<std::string_view> numbers = split(line->substr(key.size()), '\t');
  if (numbers.size() != columns.size())
    return failure(ExitCode::check_failed, "names counts that the emulator does not have");
  Counts counts;
  for (size_t i = 0; i < columns.size(); ++i) counts.*columns[i] = number_in<uint64_t>(numbers[i]).value_or(0);
  return counts;
}

}  // namespace

std::vector<Trial> recorded_trials(const Variant& variant) {
  std::vector<Trial> trials = emulator_trials(variant, fitted(variant.accepts, EMULATOR_SHAPE), {});
  std::erase_if(trials, [](const Trial& trial) { return !trial.recorded; });
  return trials;
}

emulator::Counters count_recorded(const Rung& rung, const Variant& variant, const Trial& trial) {
  emulator::Options options{.multiprocessors = trial.multiprocessors};
  if (variant.same_bits) options.threads = 1;  // as in a check
  const Problem question = make_question(trial.shape, trial.kinds, trial.seed, trial.exponents);
  return run_on_emulator(rung, variant, question, options).counters;
}

Result<size_t> record_counts(const Rung& rung) {
  std::vector<std::pair<std::string, Counts>> rows;
  for (const Variant& variant : rung.variants) {
    if (!variant.recorded) continue;
    for (const Trial& trial : recorded_trials(variant))
      rows.emplace_back(key_of(variant, trial), count_recorded(rung, variant, trial));
  }
  if (rows.empty()) return usage("{} predicts all of its counts in stage.cu: there is nothing to record.", rung.name);
  std::string text(KEY);
  std::vector<std::string> lines;
  for (const auto& [key, counts] : rows) lines.push_back(key);
  for (const emulator::Count& each : emulator::COUNTS) {
    if (std::ranges::all_of(rows, [&](const auto& row) { return row.second.*each.value == 0; })) continue;
    text += fmt::format("\t{}", each.name);
    for (size_t i = 0; i < rows.size(); ++i) lines[i] += fmt::format("\t{}", rows[i].second.*each.value);
  }
  if (auto status = write_text(file_of(rung), fmt::format("{}\n{}\n", text, fmt::join(lines, "\n"))); !status)
    return passed_on(status);
  return rows.size();
}

void judge_record(CheckResult& result, const Rung& rung, const Variant& variant, const Trial& trial) {
  const auto differs = [&](const std::string& message, std::string_view then) {
    result.fail(FailureKind::counts_differ, fmt::format("{}: {} {}", message, command_of(rung), then));
    result.ok = false;
  };
  std::stringstream text;
  text << std::ifstream(file_of(rung)).rdbuf();
  const Result<std::optional<Counts>> recorded = find_in(text.str(), variant, trial);
  if (!recorded || !*recorded) {
    const std::vector<Trial> usual = recorded_trials(variant);
    if (recorded && std::ranges::find(usual, trial) == usual.end()) return;
    return differs(
        fmt::format("{}/counts.tsv {}, so nobody can say whether they are as before", rung.directory,
                    recorded ? fmt::format("has no counts of {} here", variant.label) : recorded.error().message),
        "records them");
  }
  std::vector<std::string> changed;
  for (const emulator::Count& each : emulator::COUNTS) {
    const uint64_t then = **recorded.*each.value, now = (*result.counters).*each.value;
    if (then != now) changed.push_back(fmt::format("{} {}, recorded {}", each.words, now, then));
  }
  if (!changed.empty())
    differs(fmt::format("counted otherwise than recorded: {}. If that is meant", fmt::join(changed, "; ")),
            "records it");
}

}  // namespace ladder
