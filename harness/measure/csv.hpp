// The results table on disk: docs/results/GPU.csv, and the JSON of the same columns. docs/results/README.md describes them.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/base/json.hpp"
#include "harness/measure/statistics.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// What the rows of one run have in common. The problem is the shape, the element type, the inputs, and in words what these
// do not say; a ceiling carries that of the run that it was measured in, though its work is its own.
struct RunFacts {
  std::string gpu;     // "NVIDIA H200"
  int sm = 0;          // 90
  int processors = 0;  // in no column
  std::string driver, cuda;
  Shape shape;
  std::string dtype = "fp16";  // of the operands of its products; of a ceiling that multiplies, its own
  std::string problem, inputs, regime, commit, date;

  // Of one card, problem and regime: what a table and a ratio hold together, and --resume need not time again.
  bool same_measurement(const RunFacts& other) const {
    const auto key = [](const RunFacts& of) { return std::tie(of.gpu, of.dtype, of.problem, of.inputs, of.regime); };
    return shape == other.shape && key(*this) == key(other);
  }
};

// One contestant at one shape in one regime. What was not measured or does not apply stays empty.
struct ResultRow : RunFacts {
  std::string rung;                 // "03_kvpipe", "02_swizzle[64x32, 2 warps]", "fa2", "mma_sync"
  std::string kind;                 // stage, peer, ceiling
  std::optional<double> clock_mhz;  // of the SMs, counted on the card around each group
  std::optional<double> power_w;    // averaged over the row's own work, or nothing
  int rounds = 0;
  std::optional<double> ms_median, ms_p20, ms_p80;  // per launch
  // 4 * B * H * N^2 * d, halved when causal, over ms_median; of a ceiling that multiplies no matrices 1e12 of what it counts
  double tflops = 0;
  std::optional<double> flop_per_clk_sm, pct_ceiling;
  std::string previous;  // the row that vs_previous is taken over
  std::optional<Estimate> vs_previous;
  std::string verdict;  // on vs_previous
  std::optional<Estimate> vs_fa2;
  std::optional<double> max_err;
  std::optional<int> registers, spill_bytes, smem_bytes;
  int heat = 0;         // who ran beside it: the rows of one heat, counted from 1; 0: nobody
  std::string version;  // of a peer, in its own words
  std::string source = "measured";
  std::optional<Speedup> over;  // a contestant that was chosen; in no column

  // A time in turns of this shape, which nothing else sets apart: N(0, 1) inputs in f16.
  bool is_record_of(const Shape& plain) const {
    return source == "measured" && kind != "ceiling" && regime == "turns" && shape == plain && problem.empty() &&
           (inputs.empty() || inputs == "normal") && (dtype.empty() || dtype == "fp16");
  }
};

// Whether a ceiling bounds a row: the rule of docs/results/schema.json, which the other readers have from there as well.
bool bounds(const ResultRow& ceiling, const ResultRow& row);
bool can_bound(std::string_view ceiling);  // some row

// The header line, without its end.
std::string csv_header();
// One line, without its end.
std::string csv_line(const ResultRow& row);
// A cell as it stands in a line: with commas or quotes in quotes (RFC 4180).
std::string quoted(const std::string& cell);
// One object with the CSV's columns; empty cells are null, `causal` is a boolean.
Json to_json(const ResultRow& row);

// Reads a whole file, which may lack the columns that were added later. Refuses other columns, text where a number belongs, and a rate
// above the ceilings of the same card that bound it; tools/results.py knows all rules. Messages begin with file:line.
Result<std::vector<ResultRow>> read_csv(std::istream& text, const std::string& file);
Result<std::vector<ResultRow>> read_csv(const std::filesystem::path& file);

// Adds rows to a results file, on the disk when it returns. Measuring the same thing again replaces the older row. A new
// or empty file gets its header; "-", standard output, and devices get it with the `first` rows.
Status append_csv(const std::string& file, std::span<const ResultRow> rows, bool first);

// Success if append_csv can add to what the file holds now: to be asked before an hour of measuring, not after it.
Status can_append_csv(const std::string& file);

// Rows of every GPU.csv in a directory, docs/results; none when there is no such directory. A file that read_csv
// refuses is left out, which a line on standard error says. Files named
// GPU_what.csv (h200_counters.csv) lie beside them and have columns of their own.
std::vector<ResultRow> recorded_results(const std::filesystem::path& directory = LADDER_SOURCE_DIR "/docs/results");

}  // namespace ladder
