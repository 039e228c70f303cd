// ladder check: every stage against every input set, on the emulator and on the GPU.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> check_verb(const Options& options);

}  // namespace ladder
