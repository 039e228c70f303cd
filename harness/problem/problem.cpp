#include "harness/problem/problem.hpp"

#include <cmath>

namespace ladder {

Shape Problem::launched() const {
  Shape all = shape;
  if (far_heads > 0) {
    all.batch = far_heads % 2 == 0 ? 2 : far_heads % 3 == 0 ? 3 : 1;
    all.heads = far_heads / all.batch;
  }
  return all;
}

int64_t Problem::launched_head(int64_t head) const {
  if (far_heads == 0 || head == 0) return head;
  return head == shape.batch_heads() - 1 ? far_heads - 1 : far_heads / 2;
}

Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed, bool on_gpu) {
  return make_problem(shape, {&kind, 1}, seed, on_gpu);
}

Problem make_question(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, const Exponents& exponents) {
  Inputs inputs = formula_of(shape).make_inputs(kinds, shape, seed);
  for (const auto& [name, exponent] : exponents) {
    for (f16& value : inputs.half(name)) value = to_f16(std::ldexp(to_float(value), exponent));
  }
  return {shape, {kinds.begin(), kinds.end()}, seed, std::move(inputs), {}};
}

Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu,
                     const Exponents& exponents) {
  Problem problem = make_question(shape, kinds, seed, exponents);
  bool all_rows = false;
  std::vector<int64_t> rows = choose_rows(shape, all_rows);
  problem.reference = problem.formula().make_reference(shape, problem.inputs, std::move(rows), kinds.size(), on_gpu);
  problem.reference.all_rows = all_rows;
  return problem;
}

}  // namespace ladder
