// What of conformance_record has kernels in it. nvcc reads no fmt here.
#include "harness/conformance/record.hpp"

#include <memory>

#include "harness/conformance/cases.hpp"

namespace {

struct FreeOnGpu {
  void operator()(uint32_t* words) const { cudaFree(words); }
};
using GpuWords = std::unique_ptr<uint32_t[], FreeOnGpu>;

GpuWords allocate(Device& device, size_t words) {
  uint32_t* address = nullptr;
  // At least one word, so that a case without input has a valid pointer too.
  if (device.error == cudaSuccess) device.error = cudaMalloc(&address, (words + 1) * sizeof(uint32_t));
  return GpuWords(address);
}

void copy(Device& device, uint32_t* to, const uint32_t* from, size_t words, cudaMemcpyKind kind) {
  if (device.error == cudaSuccess) device.error = cudaMemcpy(to, from, words * sizeof(uint32_t), kind);
}

}  // namespace

namespace ladder::conformance {

std::vector<Case> cases_of_gpu() {
  return all_cases();
}

cudaError_t run_on_gpu(const Case& test, std::vector<uint32_t>& answer) {
  answer.assign(test.output_words, 0xdeadbeef);
  Device device;
  const GpuWords in = allocate(device, test.input.size()), out = allocate(device, answer.size());
  copy(device, in.get(), test.input.data(), test.input.size(), cudaMemcpyHostToDevice);
  copy(device, out.get(), answer.data(), answer.size(), cudaMemcpyHostToDevice);
  if (device.error == cudaSuccess) run_case(device, test, in.get(), out.get());
  if (device.error == cudaSuccess) device.error = cudaDeviceSynchronize();
  copy(device, answer.data(), out.get(), answer.size(), cudaMemcpyDeviceToHost);
  return device.error;
}

}  // namespace ladder::conformance
