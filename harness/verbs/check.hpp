// ladder check: every rung against every input set, on the emulator and on the GPU.
#pragma once
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"
#include "harness/verify/judge.hpp"

namespace ladder {

// The default variants of the rungs, or with --ablate all.
std::vector<Subject> subjects_of(const Options& options);
// Holds these to what the options ask for. One of them may loop for ever; the JSON stands between two copies of `seal`.
Result<ExitCode> check(const Options& options, const std::vector<Subject>& subjects, bool may_loop = false,
                       const std::string& seal = "");

}  // namespace ladder
