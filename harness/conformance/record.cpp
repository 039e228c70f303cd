// conformance_record: runs every conformance case on the GPU. Writes the answers as fixtures, or compares them.
//
//   conformance_record DIR --date 2026-11-21    write one text file per primitive into DIR; more words: of these primitives alone
//   conformance_record DIR --compare            exit 1 if this GPU answers differently
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/conformance/fixture.hpp"
#include "harness/conformance/record.hpp"

namespace {

using ladder::ExitCode;
using ladder::Result;
using ladder::conformance::Case;
using ladder::conformance::Provenance;

int sm_of_gpu() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major * 10 + minor;
}

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Result<Provenance> provenance(std::string date) {
  cudaDeviceProp properties;
  int runtime = 0, driver = 0;
  if (const auto error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return ladder::failure(ExitCode::cannot_run_here, "no GPU to record: {}", cudaGetErrorString(error));
  }
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return Provenance{.gpu = std::string(properties.name) + ", sm_" + std::to_string(sm_of_gpu()),
                    .cuda = version(runtime) + ", driver " + version(driver),
                    .date = std::move(date)};
}

ladder::Status compare(const Case& test, const std::filesystem::path& directory, const std::vector<uint32_t>& answer) {
  const auto recorded = ladder::conformance::read_fixture(ladder::conformance::fixture_path(directory, test.primitive));
  if (!recorded) return ladder::Unexpected{recorded.error()};
  if (auto text = ladder::conformance::difference(test, *recorded, answer); !text.empty()) {
    return ladder::failure(ExitCode::check_failed, std::move(text));
  }
  return {};
}

int fail(const ladder::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return static_cast<int>(error.code);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool is_comparison = words.size() == 2 && words[1] == "--compare";
  if (!is_comparison && !(words.size() >= 3 && words[1] == "--date")) {
    std::fprintf(stderr, "usage: conformance_record DIR --date YYYY-MM-DD [PRIMITIVE...], or DIR --compare\n");
    return static_cast<int>(ExitCode::usage);
  }
  const std::string& directory = words[0];

  const auto recorded_by = provenance(is_comparison ? "" : words[2]);
  if (!recorded_by) return fail(recorded_by.error());
  auto cases = ladder::conformance::cases_of_gpu();
  const auto skipped = std::erase_if(cases, [sm = sm_of_gpu()](const Case& test) { return test.min_sm > sm; });
  if (words.size() > 3) {
    const std::span wanted = std::span(words).subspan(3);
    std::erase_if(cases, [&](const Case& test) { return std::ranges::find(wanted, test.primitive) == wanted.end(); });
  }
  std::vector<std::vector<uint32_t>> answers(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    if (const auto error = ladder::conformance::run_on_gpu(cases[i], answers[i]); error != cudaSuccess)
      return fail({ExitCode::check_failed, std::string(cases[i].primitive) + ": " + cudaGetErrorString(error)});
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const bool is_shared = std::ranges::count(answers, answers[i]) > 1 ||
                           std::filesystem::exists(ladder::conformance::shared_path(directory, answers[i]));
    const auto done =
        is_comparison ? compare(cases[i], directory, answers[i])
                      : ladder::conformance::write_fixture(directory, cases[i], answers[i], *recorded_by, is_shared);
    if (!done) return fail(done.error());
  }
  std::printf("%zu primitives %s %s (%s, CUDA %s)\n", cases.size(), is_comparison ? "equal to" : "recorded in",
              directory.c_str(), recorded_by->gpu.c_str(), recorded_by->cuda.c_str());
  if (skipped > 0) std::printf("%zu left out, which need a newer GPU\n", skipped);
  return 0;
}
