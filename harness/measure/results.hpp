// From timings to the rows of the table: pure functions between the round loop and the CSV.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/csv.hpp"
#include "harness/measure/rounds.hpp"

namespace ladder {

// A contestant as the results know it; entry i owns timing i.
struct Entry {
  std::string name;                      // of its row: "02_swizzle", "02_swizzle[64x32, 2 warps]", "fa2", "mma_sync"
  std::string kind;                      // stage, peer, ceiling
  double flops = 0;                      // of one launch
  std::string stage = {}, variant = {};  // of a stage: its name and the variant's label
  bool is_default = false;               // the stage's default variant
  std::string ceiling = {};              // of a stage: the ceiling of its instruction, by name
  std::string previous = {};             // and the stage that it starts from, by name
  std::optional<double> max_err = {};
  std::optional<int> registers = {}, spill_bytes = {}, smem_bytes = {};
};

// "02_swizzle" for the default variant, "02_swizzle[64x32, 2 warps]" for another.
std::string row_name(const Stage& stage, const Variant& variant);

// The ceiling of the instruction that a stage multiplies with: wgmma if it needs that, or else mma_sync.
std::string ceiling_of(const Stage& stage);

// What all rows of one shape have in common.
struct RunFacts {
  std::string gpu;
  int sm = 0;
  int processors = 0;
  std::string driver, cuda;
  Shape shape;
  std::string inputs, regime, commit, date;
};

struct Results {
  std::vector<ResultRow> rows;     // of those that have a result: stages, peers, ceilings
  std::vector<std::string> notes;  // why the others have none, and what to know about these
  bool ok = true;                  // false when a stage failed or a figure cannot be true
};

// vs_previous pairs a stage's default variant with the default of the stage that it starts from, and any other variant
// with the variant of the same label there: the same shape with and without the idea. `previous` is the name of that
// row. Without it in the run there is no ratio. vs_fa2 pairs with the peer "fa2".
// A stage is held to the ceiling of its own instruction, and everybody to those of csv.hpp's bounds(); a rate above is
// reported and gets no row.
Results evaluate(std::span<const Entry> entries, std::span<const Timing> timings, const RunFacts& facts);

// What to say of a sustained run of too few rounds: only over as many as it has contestants, or twice as many of an odd
// number, does everyone follow everyone else equally often. Nothing if there were enough.
std::optional<std::string> unbalanced(std::span<const Timing> timings, Regime regime);

// The paired speedup of entry a over entry b, or nothing when one of them failed or was timed alone.
std::optional<Estimate> paired(std::span<const Entry> entries, std::span<const Timing> timings, size_t a, size_t b);

}  // namespace ladder
