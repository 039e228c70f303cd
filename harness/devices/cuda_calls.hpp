// What host code asks of the CUDA runtime, for the two files that do.
#pragma once
#include <cuda_runtime.h>

#include <memory>
#include <source_location>
#include <string_view>

#include "harness/base/error.hpp"

namespace ladder {

// Success, or what the runtime said about the call, with its source line.
inline Status checked(cudaError_t error, std::string_view doing,
                      const std::source_location& here = std::source_location::current()) {
  if (error == cudaSuccess) return {};
  const std::string_view path = here.file_name();
  return failure(ExitCode::check_failed, "{}: {} ({}, {}:{})", doing, cudaGetErrorString(error),
                 cudaGetErrorName(error), path.substr(path.rfind('/') + 1), here.line());
}

// For what unique_ptr owns.
template <auto FREE>
struct Freed {
  void operator()(auto* owned) const { FREE(owned); }
};
using FreeOnDevice = Freed<cudaFree>;
using FreePinned = Freed<cudaFreeHost>;
using DestroyEvent = Freed<cudaEventDestroy>;

// Milliseconds between two events around work(), which starts launches and gives their error; nothing else happens between the two.
template <class Work>
cudaError_t time_on_card(float& milliseconds, cudaStream_t stream, const Work& work) {
  std::unique_ptr<CUevent_st, DestroyEvent> events[2];
  cudaError_t error = cudaSuccess;
  for (auto& event : events) {
    cudaEvent_t made = nullptr;
    if (error == cudaSuccess) error = cudaEventCreate(&made);
    event.reset(made);
  }
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) error = cudaEventRecord(events[0].get(), stream);
  if (error == cudaSuccess) error = work();
  if (error == cudaSuccess) error = cudaEventRecord(events[1].get(), stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(events[1].get());
  if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, events[0].get(), events[1].get());
  return error;
}

}  // namespace ladder
