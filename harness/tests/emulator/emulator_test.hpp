// Shared by the tests of the emulator: running a kernel and finding its lines.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "common/gpu.cuh"
#include "harness/tests/catch.hpp"

namespace Catch {
template <>
struct StringMaker<emulator::SourceLine> {
  static std::string convert(const emulator::SourceLine& where) { return to_string(where); }
};
template <>
struct StringMaker<emulator::ReportKind> {
  static std::string convert(emulator::ReportKind kind) { return std::string(to_string(kind)); }
};
}  // namespace Catch

namespace emulator_test {

using emulator::Options;
using emulator::Report;
using emulator::ReportKind;

// Launches `kernel` on one block of `threads` threads.
template <class... Params, class... Args>
Device run(void (*kernel)(Params...), uint32_t threads, uint32_t smem_bytes, Args... args) {
  Device device({.threads = 1});
  launch(device, kernel, dim3(1), dim3(threads), smem_bytes, args...);
  return device;
}

// The place in `file` that the comment "// @mark" marks.
inline emulator::SourceLine marked(const std::string& file, const std::string& mark) {
  std::ifstream source(file);
  std::string text;
  for (int line = 1; std::getline(source, text); ++line) {
    if (text.ends_with("// @" + mark)) return {file, line};
  }
  FAIL("no line marked @" << mark << " in " << file);
  return {};
}

// The one report that a device must hold.
inline const Report& only_report(const Device& device) {
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  REQUIRE(device.reports().size() == 1);
  return device.reports().front();
}

// The same, which must be of this kind and, if any are named, of these places.
inline Report check_only(const Device& device, ReportKind kind, const std::vector<emulator::SourceLine>& where = {}) {
  const Report& report = only_report(device);
  CHECK(report.kind == kind);
  if (!where.empty()) CHECK(report.where == where);
  return report;
}

// The same, and what it says.
template <class Matcher>
Report check_only(const Device& device, ReportKind kind, const std::vector<emulator::SourceLine>& where,
                  const Matcher& message) {
  const Report report = check_only(device, kind, where);
  CHECK_THAT(report.message, message);
  return report;
}

inline void check_silent(const Device& device) {
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  CHECK(device.reports().empty());
  CHECK(device.repeats() == 0);
  CHECK_FALSE(device.failed());
}

}  // namespace emulator_test

// The place that a comment "// @mark" in this file marks.
#define MARKED(mark) ::emulator_test::marked(__FILE__, mark)
