// One attention problem: its inputs, and the answer that every kernel is held to.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/formula.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/problem/reference.hpp"
#include "harness/stages/rung.hpp"

namespace ladder {

// Inputs times powers of two, by their names: exact, but for what leaves the range of f16. And by this one: scales of K and V become 2^-14,
// 2^15, 0 and 1 in turn, of neighbours, or if it is 1 those of a head all alike.
constexpr std::string_view SCALES_APART = "scales apart";
using Exponents = std::map<std::string_view, int>;

// One problem with its answer: made once, given to every kernel. Each head is of one input set.
struct Problem {
  Shape shape;
  std::vector<InputKind> kinds;  // of head i: kinds[i % kinds.size()]; a multiple of their number are the heads
  uint64_t seed;
  Inputs inputs;
  Reference reference;
  Exponents exponents = {};  // that the inputs have been multiplied by
  // If not 0: the kernel is launched on so many heads, of which these three are the first, one in the middle and the last, or these
  // two the latter; each in a sequence of its own if these are. Where tensors have more elements than 32 bits can number, those of the
  // middle one have numbers that 31 bits cannot. On the emulator only these heads' blocks run, and no memory holds the others; on a GPU the two are repeated.
  int far_heads = 0;
  // On the emulator only the first and the last clusters of the grid run and, but for long walks that are alike, some between them,
  // drawn by the seed, unless there is a workspace, which leads from one launch to the next. The reference is made of rows that they have written.
  bool ends_only = false;
  int some =
      0;  // with `ends_only`: not these, but so many clusters beside each other, drawn by the seed; of thousands of keys the last

  Shape launched() const;  // what the kernel sees
  int64_t launched_head(int64_t head) const;
  const Formula& formula() const { return formula_of(shape); }
};
// "batch 0, head 3, query 17": where a row of an output is in what the kernel sees.
std::string place(const Problem& problem, const TensorSpec& output, const Cell& cell);

// No reference yet.
// Of so many heads that few of them run: five heads are made, of normal inputs, and stand again and again.
Problem make_question_of_few(const Shape& shape, uint64_t seed);
Problem make_question(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed,
                      const Exponents& exponents = {});
// With `on_gpu`, the tolerances hold what tensor cores do to sums.
Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed, bool on_gpu = false);
Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu = false,
                     const Exponents& exponents = {});

}  // namespace ladder
