#include "harness/problem/problem.hpp"

#include <cmath>

namespace ladder {

Shape Problem::launched() const {
  Shape all = shape;
  if (far_heads > 0) {
    all.batch = far_heads % 2 == 0 ? 2 : 1;
    all.heads = far_heads / all.batch;
  }
  return all;
}

Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed, bool on_gpu) {
  return make_problem(shape, {&kind, 1}, seed, on_gpu);
}

Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu,
                     const Exponents& exponents) {
  const Formula& formula = formula_of(shape);
  Inputs inputs = formula.make_inputs(kinds, shape, seed);
  for (const auto& [name, exponent] : exponents) {
    for (f16& value : inputs.half(name)) value = to_f16(std::ldexp(to_float(value), exponent));
  }
  bool all_rows = false;
  std::vector<int64_t> rows = choose_rows(shape, all_rows);
  Reference reference = formula.make_reference(shape, inputs, std::move(rows), kinds.size(), on_gpu);
  reference.all_rows = all_rows;
  return {shape, {kinds.begin(), kinds.end()}, seed, std::move(inputs), std::move(reference)};
}

}  // namespace ladder
