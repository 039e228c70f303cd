// ladder compare A B: what one change is worth. Interleaved timing, counters, registers and the size of the diff.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "harness/base/error.hpp"
#include "harness/measure/csv.hpp"

namespace ladder {

// The variant whose label is `label` or the only one to begin with it ("64x32"); the default for "".
Result<const Variant*> find_variant(const Rung& rung, std::string_view label);

// Lines that differ between two texts. Where they differ, the larger of the lines taken away and the lines put there.
int changed_lines(std::string_view before, std::string_view after);

// "1.052 [1.048, 1.055], RECORDED on ..." for b over a at the shape: the paired ratio when b is the rung after a,
// otherwise that of the medians. "" when the records do not have both.
std::string recorded_speedup(std::span<const ResultRow> recorded, std::string_view a, std::string_view b,
                             const Shape& shape);

}  // namespace ladder
