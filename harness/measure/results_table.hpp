// The results as text for a terminal.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "harness/measure/results.hpp"

namespace ladder {

// Rows in the order given, under a header for each run of rows that share card, problem and regime. A rung without
// a ratio to FA2 shows that of `recorded`, marked. Recorded rows themselves are printed with `are_recorded`.
// `columns` is the width to fit to, as Table::text takes it. Of another contestant than fa2, `versus`, the rows have their ratios `over`.
std::string results_table(std::span<const ResultRow> rows, std::span<const ResultRow> recorded = {},
                          bool are_recorded = false, size_t columns = 0, const std::string& versus = "fa2");

// For each pair of neighbouring rungs with two variant labels in common, the 2 x 2 table that separates the idea from the
// tile shape, and for each remaining variant its ratio to its rung's default. Empty when there is neither.
// Rates are of the entries, nothing where one was not timed.
std::string ablation_tables(std::span<const Entry> entries, std::span<const std::optional<double>> tflops,
                            const Ratios& ratios, size_t columns = 0);

// "1.052 [1.048, 1.055]"
std::string to_string(const Estimate& estimate);

}  // namespace ladder
