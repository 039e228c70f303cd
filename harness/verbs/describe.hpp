// `ladder describe`: the parts and their rungs as they are. Its JSON is how scripts learn of them.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> describe_verb(const Options& options);

}  // namespace ladder
