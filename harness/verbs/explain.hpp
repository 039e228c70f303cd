// ladder explain: a rung's idea and prediction, against what the emulator counted.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

// Which rungs, at which shapes, and where it goes.
struct ExplainRequest {
  std::vector<const Rung*> rungs = {};
  std::vector<Shape> shapes = {};
  uint64_t seed = 1;
  bool counts_only = false;  // without the idea and what stands in stage.cu
  std::FILE* out = stdout;
  std::string json = {}, trace = {};  // a file, "-" or nothing
};
Result<ExitCode> explain(const ExplainRequest& request);

}  // namespace ladder
