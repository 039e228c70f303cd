// Which problems a stage takes, and which fit into this machine's memory.
#pragma once
#include <string>
#include <vector>

#include "harness/error.hpp"
#include "harness/gpu.hpp"
#include "harness/options.hpp"
#include "harness/stage.hpp"

namespace ladder {

// One shape for each --n; what the options leave open comes from `defaults`.
std::vector<Shape> shapes_for(const Options& options, const Shape& defaults);

// "B=1 H=1 N=512 d=128"
std::string to_string(const Shape& shape);

// Success, or why the variant cannot solve this shape, with the nearest N that it can: usage, or cannot_run_here when no
// GPU, emulated or not, has the shared memory for it.
Status supports(const Stage& stage, const Variant& variant, const Shape& shape);

// Success, or why this GPU cannot run the variant at this shape (cannot_run_here).
Status runs_on(const Stage& stage, const Variant& variant, const Shape& shape, const GpuInfo& gpu);

// Success, or how many GiB are needed and how many there are (cannot_run_here).
Status fits_gpu_memory(const Shape& shape, bool with_scores, const GpuInfo& gpu);
Status fits_host_memory(const Shape& shape, bool with_scores);

// Host memory that a new process could get without swapping, in bytes.
size_t host_memory_available();

}  // namespace ladder
