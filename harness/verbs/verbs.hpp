// The verbs. Each returns an Error for what stops it, and ExitCode::check_failed when it ran to its end and something was wrong.
#pragma once
#include "harness/base/error.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

Result<ExitCode> overview_verb(const Options& options);   // none: this machine, the rungs, the table, what to do next
Result<ExitCode> check_verb(const Options& options);      // every rung against every input set, on both machines
Result<ExitCode> explain_verb(const Options& options);    // a rung's idea and prediction, against what was counted
Result<ExitCode> explain_counts(const Options& options);  // without the idea and what stands in stage.cu, and no JSON
Result<ExitCode> bench_verb(const Options& options);     // the TFLOPS table, against peers and ceilings of the same run
Result<ExitCode> compare_verb(const Options& options);   // what one change is worth
Result<ExitCode> describe_verb(const Options& options);  // parts and rungs: how scripts learn of them
Result<ExitCode> list_verb(const Options& options);      // the line, and what comes before and after a rung
Result<ExitCode> peer_verb(const Options& options);      // tries a peer by itself, without a bench
Result<ExitCode> try_verb(const Options& options);       // a kernel of the reader's, held to what the rung is held to

// explain --on gpu: one checked launch of each rung at each shape, for Nsight Compute to watch, and the device memory that it holds.
// tools/evidence/traffic.py relies on two things: between the kernels of two launches runs `fill` of gpu.cu and nothing else, and the
// objects of --json come in the order of the launches. A rung that cannot solve a shape is left out with a note; it is an error when
// none is left.
Result<ExitCode> explain_on_gpu(const Options& options);

}  // namespace ladder
