// ladder peer CMD: tries a peer by itself, without a bench.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> peer_verb(const Options& options);

}  // namespace ladder
