// What bench asks before it times anything, and all that it says without a GPU. Apart from the rest of it, which the card of one
// rung on a machine without a GPU has not to wait for.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/measure/csv.hpp"
#include "harness/measure/rounds.hpp"
#include "harness/verbs/options.hpp"

namespace ladder {

// What the options ask for: --n and the rest, the headline shape without any, and with --sweep N = 512 ... 16384 at
// batch * N = 16384 before those of an explicit --n.
std::vector<Shape> bench_shapes(const Options& options);
Regime regime_of(const Options& options);

// Those of `recorded` that answer the options, as a table marked as recorded; or a line saying that there are none.
std::string recorded_table(std::span<const ResultRow> recorded, const Options& options, size_t columns = 0);

// What the columns of such a table mean.
extern const char* const LEGEND;

// Success when there is something to time and a file that can take it, or why not.
Status can_bench(const Options& options);
// bench on a machine where `no_gpu` says why none can be used: what is recorded, and that as the error.
Result<ExitCode> bench_without_gpu(const Options& options, const Error& no_gpu);

}  // namespace ladder
