// ladder check: every rung against every input set, on the emulator and on the GPU.
#pragma once
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"
#include "harness/verify/judge.hpp"

namespace ladder {

// Who is checked, how and where, and where the answer goes.
struct CheckRequest {
  std::vector<Subject> subjects = {};
  CheckChoice choice = {};
  // The problems of a subject that accepts so much.
  std::function<std::vector<Spec>(const Accepts&)> emulator_shapes = {}, gpu_shapes = {};
  Where on = Where::automatic;
  bool named = false;                // subjects were: one that cannot take part is an error, not a note
  std::FILE* out = stdout;           // the table
  std::string json = {}, seal = {};  // a file, "-" or nothing; a word before and behind it
};
CheckRequest check_request(const Options& options);
// The default variants of the rungs, or with --ablate all.
std::vector<Subject> subjects_of(const Options& options);
Result<ExitCode> check(const CheckRequest& request);

}  // namespace ladder
