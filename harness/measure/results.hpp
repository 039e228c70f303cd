// From timings to the rows of the table: pure functions between the round loop and the CSV.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/csv.hpp"
#include "harness/measure/rounds.hpp"

namespace ladder {

// The loop of nothing but a rung's own work, by the beginning of its name, and how much of that a launch does: FLOPs that
// an instruction multiplies, or bytes.
struct OwnWork {
  std::string loop = {};
  double work = 0;
  std::string_view unit = "TFLOPS";  // of 1e12 of it a second
};
// What the formula says that the problem is bound by: reads, or else the products of the instruction that the variant is
// predicted to execute, which the emulator counts.
OwnWork own_work(const Variant& variant, const Shape& shape);

// A contestant as the results know it.
struct Entry {
  std::string name;                     // of its row: "02_swizzle", "02_swizzle[64x32, 2 warps]", "fa2", "mma_sync"
  std::string kind;                     // stage, peer, ceiling
  double flops = 0;                     // of one launch
  std::string rung = {}, variant = {};  // of a rung: its name and the variant's label
  bool is_default = false;              // the rung's default variant
  OwnWork own = {};                     // of a rung
  std::string previous = {};            // and the rung that it starts from, by name
  std::string version = {};             // of a peer
  std::optional<double> max_err = {};
  std::optional<int> registers = {}, spill_bytes = {}, smem_bytes = {};
};

// "02_swizzle" for the default variant, "02_swizzle[64x32, 2 warps]" for another.
std::string row_name(const Rung& rung, const Variant& variant);

// Whether a ceiling bounds a row, by csv.hpp's rule or as the loop of its own work. The others are thermometers.
bool is_needed(std::string_view ceiling, std::span<const Entry> entries);

// All that an entry's ratios are taken over: the one of vs_previous, for a default the same tile there too, for another variant its
// own default.
std::vector<size_t> links_of(std::span<const Entry> entries, size_t which);

// A heat that was run. Timing i is of entry all[i].
struct HeatRun {
  int number = 0;  // from 1; 0: timed apart
  std::vector<size_t> own, all;
  HeatTimings timings;
};

using Ratios =
    std::map<std::pair<size_t, size_t>, Estimate>;  // of entries: how much faster the first is than the second

struct Results {
  std::vector<ResultRow> rows;     // of those whose home this heat is and that have a result: rungs, peers, ceilings
  std::vector<std::string> notes;  // why the others have none, and what to know about these
  Ratios ratios;                   // over the links
  bool ok = true;                  // false when a rung failed or a figure cannot be true
};

// `previous` is the name of the row that vs_previous is taken over; without it in the heat there is no ratio. vs_fa2 pairs
// with the peer "fa2". A rung is held to the loop of its own work, and who has none to those of csv.hpp's bounds(); a
// rate above is reported and gets no row. The verdicts of a heat are chosen together.
Results evaluate(std::span<const Entry> entries, const HeatRun& heat, const RunFacts& facts,
                 std::string_view versus = "fa2");

// What to say of a heat in turns of too few rounds: without everyone having followed everyone else there is no verdict.
std::optional<std::string> unbalanced(const HeatTimings& heat, Regime regime);

// How much an entry that is everywhere read in the heats, when there are several: "fa2 read 348.1, 349.0 TFLOPS in heats 1, 2".
std::optional<std::string> everywhere_note(std::span<const Entry> entries, std::span<const HeatRun> heats,
                                           std::string_view name);

// The rows of --rounds-csv: one for each group of the heat, under ROUNDS_HEADER.
extern const std::string ROUNDS_HEADER;
std::string rounds_lines(std::span<const Entry> entries, const HeatRun& heat, const RunFacts& facts);

}  // namespace ladder
