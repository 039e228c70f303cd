// ladder without a verb: this machine, the rungs, the table, and what to do next.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> overview_verb(const Options& options);

}  // namespace ladder
