// ladder explain: a stage's idea and prediction, against what the emulator counted.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> explain_verb(const Options& options);

}  // namespace ladder
