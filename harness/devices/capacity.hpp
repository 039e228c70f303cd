// Which problems fit this machine: its GPU, and its memory.
#pragma once
#include <string>
#include "harness/base/error.hpp"
#include "harness/devices/gpu.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// The GPUs that have the rung's instructions: "sm_80 or newer"; of wgmma, which no newer one has, "sm_90 alone".
std::string gpus_of(const Rung& rung);

// Success, or why this GPU cannot run the variant at this shape (cannot_run_here).
Status runs_on(const Rung& rung, const Variant& variant, const Shape& shape, const GpuInfo& gpu);

// Success, or how many GiB are needed and how many there are (cannot_run_here).
Status fits_gpu_memory(const Shape& shape, uint64_t workspace_bytes, const GpuInfo& gpu);
Status fits_host_memory(const Shape& shape, uint64_t workspace_bytes);

// Host memory that a new process could get without swapping, in bytes.
size_t host_memory_available();

}  // namespace ladder
