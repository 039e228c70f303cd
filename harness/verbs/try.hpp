// `ladder try FILE --like STAGE`: a kernel of the reader's, compiled alone and held to what the rung is held to.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> try_verb(const Options& options);

}  // namespace ladder
