// The text file that holds what a GPU answered to a case.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/conformance/case.hpp"

namespace ladder::conformance {

// Where a fixture comes from.
struct Provenance {
  std::string gpu;   // "NVIDIA H200, sm_90"
  std::string cuda;  // "13.0, driver 13.0"
  std::string date;  // "2026-11-21"
};

std::filesystem::path fixture_path(const std::filesystem::path& directory, std::string_view primitive);
// Where an answer stands that several cases have given, under a name made of its words, so that each fixture keeps its own.
std::filesystem::path shared_path(const std::filesystem::path& directory, const std::vector<uint32_t>& words);
// A shared answer has been written before, or is by this.
Status write_fixture(const std::filesystem::path& directory, const Case& test, const std::vector<uint32_t>& words,
                     const Provenance& provenance, bool is_shared);
Result<std::vector<uint32_t>> read_fixture(const std::filesystem::path& file);

// Empty when `actual` conforms to `expected`; otherwise what differs where, in words.
std::string difference(const Case& test, const std::vector<uint32_t>& expected, const std::vector<uint32_t>& actual);

}  // namespace ladder::conformance
