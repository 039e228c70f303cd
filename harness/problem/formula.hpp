// What the ladder computes. A problem is one of these at a shape; a stage's variants say which of them they solve.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/problem/inputs.hpp"
#include "harness/problem/reference.hpp"
#include "harness/problem/tensors.hpp"
#include "harness/stage.hpp"

namespace ladder {

// What a launch does at least, by convention and not what a kernel executes, and which of the two bounds its rate.
struct Work {
  enum class Bound { products, reads };
  double flops = 0, bytes = 0;  // bytes: of each input and output once
  Bound bound = Bound::products;
};

// The bytes that a variant has to move between global memory and the chip, on paper, as measured bytes are set beside them;
// and per head in words: "4nd + 4n^2 d / 64".
struct IoModel {
  double bytes = 0;
  std::string text;
};

struct Formula {
  std::string_view name;  // "dense"
  // The tensors that a kernel reads, and those that it may write. Of the outputs, the first is always written.
  std::vector<TensorSpec> (*inputs)(const Shape&);
  std::vector<TensorSpec> (*outputs)(const Shape&);
  Work (*work)(const Shape&);
  IoModel (*io_model)(const Variant&, const Shape&);
  // Each head is of one input set: head i of kinds[i % kinds.size()].
  Tensors (*make_inputs)(std::span<const InputKind> kinds, const Shape&, uint64_t seed);
  // The right answers in the given rows, and how far a kernel may be from them.
  Reference (*make_reference)(const Shape&, const Tensors& inputs, std::vector<int64_t> rows, size_t sets,
                              bool with_score_terms);
  // The first output changes its sign with this input, and no other output changes.
  std::string_view odd_input;
};

// O = softmax(Q K^T * softmax_scale) V and LSE, dense and under a causal mask.
extern const Formula DENSE_FORWARD, CAUSAL_FORWARD;

const Formula& formula_of(const Shape& shape);
inline double flops_of(const Shape& shape) {
  return formula_of(shape).work(shape).flops;
}

// The tensors that the variant writes at this shape.
std::vector<TensorSpec> outputs_of(const Variant& variant, const Shape& shape);

}  // namespace ladder
