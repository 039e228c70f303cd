// One attention problem: its inputs, and the answer that every kernel is held to.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "harness/problem/formula.hpp"
#include "harness/problem/inputs.hpp"
#include "harness/problem/reference.hpp"
#include "harness/stage.hpp"

namespace ladder {

// One problem with its answer: made once, given to every kernel. Each head is of one input set.
struct Problem {
  Shape shape;
  std::vector<InputKind> kinds;  // of head i: kinds[i % kinds.size()]; a multiple of their number are the heads
  uint64_t seed;
  Inputs inputs;
  Reference reference;
  // If not 0: the kernel is launched on so many heads, an even number, of which these two are the first and the last.
  // The tensors have more elements than 32 bits can number. On the emulator only these heads' blocks run, and no memory
  // holds the others; on a GPU the two are repeated.
  int far_heads = 0;

  Shape launched() const;  // what the kernel sees
  const Formula& formula() const { return formula_of(shape); }
};
// Inputs times powers of two, by their names: exact, but for what leaves the range of f16.
using Exponents = std::map<std::string_view, int>;

// With `on_gpu`, the tolerances hold what tensor cores do to sums.
Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed, bool on_gpu = false);
Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu = false,
                     const Exponents& exponents = {});

}  // namespace ladder
