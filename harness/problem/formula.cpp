#include "harness/problem/formula.hpp"

namespace ladder {
namespace {

std::vector<TensorSpec> forward_inputs(const Shape& shape) {
  std::vector<TensorSpec> specs;
  for (const char* name : {"Q", "K", "V"}) {
    specs.push_back({.name = name, .heads = shape.batch_heads(), .rows = shape.n, .columns = shape.d});
  }
  return specs;
}

std::vector<TensorSpec> forward_outputs(const Shape& shape) {
  return {{.name = "O", .heads = shape.batch_heads(), .rows = shape.n, .columns = shape.d},
          {.name = "LSE", .element = Element::f32, .heads = shape.batch_heads(), .rows = shape.n, .columns = 1}};
}

// FlashAttention's convention: two products of n * n * d multiply-adds in each head, half of it under a causal mask.
// Counting the softmax too, as the write-up does, adds 1.17 % at d = 128.
double dense_flops(const Shape& shape) {
  return 4.0 * static_cast<double>(shape.elements()) * shape.n;
}
double causal_flops(const Shape& shape) {
  return dense_flops(shape) / 2;
}

}  // namespace

const Formula DENSE_FORWARD{.name = "dense",
                            .inputs = forward_inputs,
                            .outputs = forward_outputs,
                            .flops = dense_flops,
                            .make_inputs = make_inputs,
                            .make_reference = make_reference,
                            .odd_input = "V"};

const Formula CAUSAL_FORWARD{.name = "causal",
                             .inputs = forward_inputs,
                             .outputs = forward_outputs,
                             .flops = causal_flops,
                             .make_inputs = make_inputs,
                             .make_reference = make_reference,
                             .odd_input = "V"};

const Formula& formula_of(const Shape& shape) {
  return shape.causal ? CAUSAL_FORWARD : DENSE_FORWARD;
}

std::vector<TensorSpec> outputs_of(const Variant& variant, const Shape& shape) {
  std::vector<TensorSpec> specs = formula_of(shape).outputs(shape);
  std::erase_if(specs, [&](const TensorSpec& spec) { return spec.name == "LSE" && !variant.writes_lse; });
  return specs;
}

}  // namespace ladder
