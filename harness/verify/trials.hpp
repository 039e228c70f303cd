// What a check consists of: the problems that one variant is tried on. A kernel that is right on one problem may have that
// problem built in, so a check holds a sample of what can differ, and --thorough many random ones.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/problem/problem.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// One launch.
struct Trial {
  Shape shape;
  std::vector<InputKind> kinds = {InputKind::normal};  // of the heads, in turn
  uint64_t seed = 1;
  Exponents exponents = {};  // of the inputs; with Q's in the softmax scale the other way round it is the same problem
  int far_heads = 0;         // as Problem::far_heads
  bool ends_only = false;    // as Problem::ends_only
  int some = 0;              // as Problem::some
  bool begins_only =
      false;  // whose each query is, is all: blocks run as far as their first product, and on if one is nobody's
  bool starts_only = false;  // nothing is computed: whether it can be launched is all
  bool leaves_out = false;   // outputs that nobody has to want; with ends_only
  uint32_t multiprocessors = emulator::MULTIPROCESSORS;
  bool both_builds = false;  // of the emulated kernel, in two orders of its threads; they must do the same
  bool also_fused = false;   // and in the build that rounds a product and the sum behind it once
  bool only_fused = false;   // in that one alone
  bool recorded = false;     // what is counted there, a rung's counts.tsv has
  uint64_t schedule = 0;     // as emulator::Options::schedule
  bool operator==(const Trial&) const = default;
};

// The shortest length from `least` on that the variant takes, of at least `tiles` key tiles, of which the last is in part outside
// where the variant takes that, but for every fourth number of tiles: by an odd number of keys, or of two, six, ten ... tiles by slices
// of 16, which products take at a time. 0: none.
int supported_length(const Variant& variant, Shape shape, int least, int tiles = 0);

// What a reader asked for.
struct TrialChoice {
  std::vector<InputKind> inputs = {};  // only these sets; all if empty
  bool n_given = false;                // the shape's n is the reader's, not a default
  bool thorough = false;
  bool quick = false;       // a few trials, which stop most of what all of them stop
  bool beside = false;      // with `quick`: of a variant beside the one that gets all trials; no climb waits for these
  bool any_scores = false;  // as large as f32 has them, whatever the variant takes
  uint64_t seed = 1;
};

// On the emulator, for a shape: docs/checks.md says which, and the mistakes that each is for. With `quick` five of them in little, two
// of them under a mask: all input sets, in both builds; another scale and an odd number of tiles; and numbers of another magnitude in
// eight heads, on twelve SMs.
// With `inputs` only those sets, at that shape. With `thorough` also some queries of more than 65536 keys, or as many rows in 64
// sequences, some queries of 16 to 64 heads of up to 4096 keys, all of a head of more than 4096 where tensor cores multiply, 258 rounds
// of a block that stays, and random ones, of other seeds, lengths, batches, heads, head dimensions, masks, scales and orders of
// threads. Every trial's shape is one that the variant supports.
std::vector<Trial> emulator_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice);

// The table that these come from, but for the quick ones: each row's name, the mistake that it is for, and how many trials it makes here.
struct TrialRow {
  std::string_view name, mistake;
  size_t trials = 0;
};
std::vector<TrialRow> trial_rows(const Variant& variant, const Shape& shape, const TrialChoice& choice);

// On the GPU the same without builds, and with fewer of few tiles: one and two, and under a mask five; the long walk is whole
// there; more than 2^32 elements with `thorough` only.
std::vector<Trial> gpu_trials(const Variant& variant, const Shape& shape, const TrialChoice& choice);

}  // namespace ladder
