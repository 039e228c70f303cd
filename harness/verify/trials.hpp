// What a check consists of: the problems that one variant is tried on. A kernel that is right on one problem may have that
// problem built in, so a check holds a sample of what can differ, and --thorough many random ones.
#pragma once
#include <cstdint>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/problem/problem.hpp"
#include "harness/rung.hpp"

namespace ladder {

// One launch.
struct Trial {
  Shape shape;
  std::vector<InputKind> kinds;  // of the heads, in turn
  uint64_t seed = 1;
  Exponents exponents = {};  // of the inputs; with Q's in the softmax scale the other way round it is the same problem
  int far_heads = 0;         // as Problem::far_heads
  bool ends_only = false;    // as Problem::ends_only
  bool leaves_out = false;   // outputs that nobody has to want; with ends_only
  uint32_t multiprocessors = emulator::MULTIPROCESSORS;
  bool both_builds = false;  // of the emulated kernel, in two orders of its threads; they must do the same
  uint64_t schedule = 0;     // as emulator::Options::schedule
  bool operator==(const Trial&) const = default;
};

// What a reader asked for.
struct TrialChoice {
  std::vector<InputKind> inputs = {};  // only these sets; all if empty
  bool n_given = false;                // the shape's n is the reader's, not a default
  bool thorough = false;
  bool quick = false;  // a few trials, which stop most of what all of them stop
  uint64_t seed = 1;
};

// On the emulator, for a shape:
//   1. normal inputs at that shape;
//   2. all input sets at once, a head each, in two batches, by both builds and in two orders of the threads: at the shape's n if
//      it was given, or else at a length of three tiles or so;
//   3. another softmax scale, more tiles than usual and an odd number of them where the tile allows it, in the first, a
//      middle and the last head of a problem of more than 2^32 elements, or in the latter two;
//   4. as few tiles of keys as it takes, in three heads: fewer than a GPU has places for; and two tiles or so in eight. Their
//      numbers are of other magnitudes, Q by a power of two and the softmax scale by its inverse. Four, five, six, eight,
//      nine, ten and sixteen tiles for some of the queries, with head dimensions that have other remainders; Q and K of
//      zeros; and seven tiles, on six SMs, whose scores reach beyond ten thousand;
//   5. as few tiles in 45 heads, on five SMs: a block that stays there goes on for long, from one head to another after the
//      next. Scores as large, above and below zero; its threads come in another order. Of a variant whose grid depends on the
//      number of SMs, as few in 137 heads on 132, and two in twelve heads on two, of which the first alone has scores that surprise;
//   6. maxima that stand anywhere, and such that grow to the last key, over 67 tiles and at least 2173 keys, for the first
//      queries, for the last and for some between: a rung of a pipeline is used a dozen times, a mask of 64 bits is at its
//      end, and no block has so many threads;
//      And some blocks of 16, 32 or 64 heads of a length that the commit draws;
//   7. the second, the third and the fewest tiles once more under a causal mask, of a rung that has one, with two in eight
//      heads, four to eight in one, nine in two with peaky scores, 66, and a length that the commit draws: tiles of queries
//      have different lengths then, and a kernel that deals them out in pairs, or in pairs of pairs, has fewer than there
//      are places for, an odd or an even number, or is left with one.
//   8. what the formula adds for what the variant takes besides: other lengths, heads that share keys, windows, ...; rows gigabytes
//      apart, where they have strides; a softcap far above scores that f32 has no exponentials of, and one that few keys come near;
//      33 tiles of queries and more, a number that the commit draws, before a tile of keys; nobody who wants the log-sum-exps; and
//      for a rung that begins at the first key scores that are largest there;
//   9. of a variant that takes any lengths of both sides, two problems with some of all that, drawn by the commit: what a rung
//      predicts is held there, too. Of three lengths one lies at the edge of a tile, or is next to nothing.
// A variant that takes any head dimension meets one that four divides and eight does not, others that no power of two divides,
// and its largest. Lengths have different remainders too.
// With `quick` five of these in little, two of them under a mask: all input sets, in both builds; another scale and an odd number of
// tiles; and numbers of another magnitude in eight heads, on twelve SMs.
// With `inputs` only those sets, at that shape. With `thorough` also some queries of more than 65536 keys, or as many rows in 64
// sequences, some queries of 16 to 64 heads of up to 4096 keys, all of a head of more than 4096 where tensor cores multiply, and
// random ones, of other seeds, lengths, batches, heads, head dimensions, masks, scales and orders of threads. Every trial's shape
// is one that the variant supports.
std::vector<Trial> emulator_trials(const Rung& rung, const Variant& variant, const Shape& shape,
                                   const TrialChoice& choice);

// On the GPU the same without builds, and with fewer of few tiles: one and two, and under a mask five; the walk over 67 tiles is
// whole there; more than 2^32 elements with `thorough` only.
std::vector<Trial> gpu_trials(const Rung& rung, const Variant& variant, const Shape& shape, const TrialChoice& choice);

}  // namespace ladder
