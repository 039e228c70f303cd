#include <fmt/format.h>
#include <iterator>
#include "common/emulator/report_log.hpp"

namespace emulator {

std::string_view to_string(ReportKind kind) {
  static constexpr std::string_view NAMES[] = {
      "uninitialised-read",
      "in-flight-read",
      "in-flight-overwrite",
      "race-read-after-write",
      "race-write-after-read",
      "race-write-after-write",
      "exit-in-flight",
      "divergent-barrier",
      "barrier-misuse",
      "race-between-blocks",
      "unordered-sums",
      "missing-proxy-fence",
      "registers-in-flight",
      "missing-wgmma-fence",
      "register-budget",
      "cluster-misuse",
      "newer-instruction",
      "global-out-of-bounds",
      "global-misaligned",
      "global-read-only",
      "shared-out-of-bounds",
      "shared-misaligned",
      "bad-descriptor",
      "divergent-collective",
      "incomplete-warp",
      "deadlock",
      "endless-loop",
      "plain-access",
      "array-bounds",
      "undefined-arithmetic",
      "stack-overflow",
      "kernel-exception",
      "bad-launch",
  };
  static_assert(std::size(NAMES) == static_cast<size_t>(ReportKind::bad_launch) + 1);
  return NAMES[static_cast<size_t>(kind)];
}

int rank(const Report& report) {
  switch (report.kind) {
    case ReportKind::in_flight_read:
    case ReportKind::in_flight_overwrite:
    case ReportKind::exit_in_flight:
    case ReportKind::registers_in_flight:
      return 0;
    case ReportKind::uninitialised_read:
      return 1;
    case ReportKind::race_read_after_write:
    case ReportKind::race_write_after_read:
    case ReportKind::race_write_after_write:
    case ReportKind::race_between_blocks:
    case ReportKind::unordered_sums:
      return report.within_warp ? 3 : 2;
    default:
      return is_fatal(report.kind) ? 5 : 4;
  }
}

bool is_fatal(ReportKind kind) {
  return kind >= ReportKind::shared_out_of_bounds;
}

std::string to_string(const SourceLine& where) {
  const size_t name = where.file.find_last_of('/');
  const size_t directory = name == std::string::npos || name == 0 ? name : where.file.find_last_of('/', name - 1);
  const size_t begin = directory == std::string::npos ? 0 : directory + 1;
  return fmt::format("{}:{}", where.file.substr(begin), where.line);
}

std::string ranges(const std::vector<uint32_t>& ascending) {
  std::string text;
  for (size_t first = 0, last = 0; first < ascending.size(); first = last + 1) {
    for (last = first; last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1;) ++last;
    text += fmt::format("{}{}", first == 0 ? "" : ", ", ascending[first]);
    if (last > first) text += fmt::format("-{}", ascending[last]);
  }
  return text;
}

}  // namespace emulator
