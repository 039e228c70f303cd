// ladder compare A B: what one change is worth. Interleaved timing, counters, registers and the size of the diff.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/base/error.hpp"
#include "harness/measure/csv.hpp"

namespace ladder {

// The variant whose label is `label` or the only one to begin with it ("64x32"); the default for "".
Result<const Variant*> find_variant(const Rung& rung, std::string_view label);

// Lines that differ between two files, by GNU diff as tools/changes.py counts: in each place the larger of the lines taken away and
// the lines put there. Nothing where that cannot be said.
std::optional<int> changed_lines(const std::string& before, const std::string& after);

// "1.052 [1.048, 1.055], RECORDED on ..." for b over a at the shape: the paired ratio when b is the rung after a,
// otherwise that of the medians. "" when the records do not have both.
std::string recorded_speedup(std::span<const ResultRow> recorded, std::string_view a, std::string_view b,
                             const Shape& shape);

}  // namespace ladder
