#include "harness/problem/problem.hpp"

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
  Inputs inputs = make_inputs(kind, shape, seed);
  Reference reference = make_reference(shape, inputs, 1, on_gpu);
  return {shape, {kind}, seed, std::move(inputs), std::move(reference)};
}

Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu) {
  Inputs inputs = make_inputs(kinds, shape, seed);
  Reference reference = make_reference(shape, inputs, kinds.size(), on_gpu);
  return {shape, {kinds.begin(), kinds.end()}, seed, std::move(inputs), std::move(reference)};
}

}  // namespace ladder
