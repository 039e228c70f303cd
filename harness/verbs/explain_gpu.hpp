// ladder explain --on gpu: one checked launch of each rung at each shape, for Nsight Compute to watch, and the device
// memory that it holds.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

// tools/evidence/traffic.py relies on two things: between the kernels of two launches runs `fill` of gpu.cu and
// nothing else, and the objects of --json come in the order of the launches. A rung that cannot solve a shape is left
// out with a note; it is an error when none is left.
Result<ExitCode> explain_on_gpu(const Options& options);

}  // namespace ladder
