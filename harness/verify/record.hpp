// The counts of a variant that its stage.cu does not predict (Variant::recorded): a file of the rung's directory, counts.tsv, has what
// they were when somebody last recorded them, on some of the problems of a check (Trial::recorded). As long as the kernel does the same,
// they are the same.
#pragma once
#include "harness/verify/check.hpp"
#include "harness/verify/trials.hpp"

namespace ladder {

// The problems whose counts are recorded.
std::vector<Trial> recorded_trials(const Variant& variant);

// Writes the file anew, of what all of the rung's variants count on the emulator: how many lines.
Result<size_t> record_counts(const Rung& rung);

// What the variant counts there.
emulator::Counters count_recorded(const Rung& rung, const Variant& variant, const Trial& trial);

// Adds what was counted otherwise than it is recorded, or that it is not, and the command that records it. A problem whose shape or seed
// somebody has asked for need not be.
void judge_record(CheckResult& result, const Rung& rung, const Variant& variant, const Trial& trial);

}  // namespace ladder
