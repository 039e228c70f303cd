// conformance_record: runs every conformance case on the GPU. Writes the answers as fixtures, or compares them.
//
//   conformance_record DIR --date 2026-11-21    write one text file per primitive into DIR
//   conformance_record DIR --compare            exit 1 if this GPU answers differently
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "harness/conformance/cases.hpp"

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

struct FreeOnGpu {
  void operator()(uint32_t* words) const { cudaFree(words); }
};
using GpuWords = std::unique_ptr<uint32_t[], FreeOnGpu>;

tl::unexpected<ladder::Error> cuda_failure(const Case& test, cudaError_t error) {
  return ladder::failure(ExitCode::check_failed, std::string(test.primitive) + ": " + cudaGetErrorString(error));
}

Result<GpuWords> allocate(const Case& test, size_t words) {
  uint32_t* address = nullptr;
  // At least one word, so that a case without input has a valid pointer too.
  if (const auto error = cudaMalloc(&address, (words + 1) * sizeof(uint32_t)); error != cudaSuccess) {
    return cuda_failure(test, error);
  }
  return GpuWords(address);
}

Result<std::vector<uint32_t>> run_on_gpu(const Case& test) {
  auto in = allocate(test, test.input.size());
  if (!in) return tl::make_unexpected(in.error());
  auto out = allocate(test, test.output_words);
  if (!out) return tl::make_unexpected(out.error());

  std::vector<uint32_t> answer(test.output_words, 0xdeadbeef);
  const size_t in_bytes = test.input.size() * sizeof(uint32_t), out_bytes = answer.size() * sizeof(uint32_t);
  Device device;
  device.error = cudaMemcpy(in->get(), test.input.data(), in_bytes, cudaMemcpyHostToDevice);
  if (device.error == cudaSuccess) {
    device.error = cudaMemcpy(out->get(), answer.data(), out_bytes, cudaMemcpyHostToDevice);
  }
  run_case(device, test, in->get(), out->get());
  if (device.error == cudaSuccess) device.error = cudaDeviceSynchronize();
  if (device.error == cudaSuccess) {
    device.error = cudaMemcpy(answer.data(), out->get(), out_bytes, cudaMemcpyDeviceToHost);
  }
  if (device.error != cudaSuccess) return cuda_failure(test, device.error);
  return answer;
}

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Result<Provenance> provenance(std::string date) {
  cudaDeviceProp properties;
  int runtime = 0, driver = 0;
  if (const auto error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return ladder::failure(ExitCode::cannot_run_here, std::string("no GPU to record: ") + cudaGetErrorString(error));
  }
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return Provenance{.gpu = std::string(properties.name) + ", sm_" + std::to_string(sm_of_gpu()),
                    .cuda = version(runtime) + ", driver " + version(driver),
                    .date = std::move(date)};
}

ladder::Status write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  if (!stream) return ladder::failure(ExitCode::usage, "cannot write " + file.string());
  return {};
}

// One case: recorded, or compared with what was recorded.
ladder::Status process(const Case& test, const std::filesystem::path& directory, const Provenance* recorded_by) {
  const auto answer = run_on_gpu(test);
  if (!answer) return tl::make_unexpected(answer.error());
  const auto file = ladder::conformance::fixture_path(directory, test.primitive);
  if (recorded_by != nullptr) return write(file, ladder::conformance::fixture_text(test, *answer, *recorded_by));

  const auto recorded = ladder::conformance::read_fixture(file);
  if (!recorded) return tl::make_unexpected(recorded.error());
  if (auto text = ladder::conformance::difference(test, *recorded, *answer); !text.empty()) {
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
  const bool compare = words.size() == 2 && words[1] == "--compare";
  if (!compare && !(words.size() == 3 && words[1] == "--date")) {
    std::fprintf(stderr, "usage: conformance_record DIR --date YYYY-MM-DD, or DIR --compare\n");
    return static_cast<int>(ExitCode::usage);
  }
  const std::string& directory = words[0];

  const auto recorded_by = provenance(words.back());
  if (!recorded_by) return fail(recorded_by.error());
  std::error_code ignored;  // an unusable directory shows when the first file is written
  if (!compare) std::filesystem::create_directories(directory, ignored);

  auto cases = all_cases();
  const auto skipped = std::erase_if(cases, [sm = sm_of_gpu()](const Case& test) { return test.min_sm > sm; });
  for (const Case& test : cases) {
    const auto done = process(test, directory, compare ? nullptr : &*recorded_by);
    if (!done) return fail(done.error());
  }
  std::printf("%zu primitives %s %s (%s, CUDA %s)\n", cases.size(), compare ? "equal to" : "recorded in",
              directory.c_str(), recorded_by->gpu.c_str(), recorded_by->cuda.c_str());
  if (skipped > 0) std::printf("%zu left out, which need a newer GPU\n", skipped);
  return 0;
}
