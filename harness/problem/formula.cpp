#include "harness/problem/formula.hpp"

#include <fmt/format.h>

#include <algorithm>

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
Work forward_work(const Shape& shape) {
  Work work{.flops = 4.0 * static_cast<double>(shape.elements()) * shape.n / (shape.causal ? 2 : 1)};
  for (const TensorSpec& spec : forward_inputs(shape)) work.bytes += static_cast<double>(spec.bytes());
  work.bytes += static_cast<double>(forward_outputs(shape).front().bytes());
  return work;
}

// Per head, with n rows of d elements of 2 bytes:
//   scores kept in global memory: Q, K, V read and O written once, 8nd; n^2 scores of 2 bytes written and read once, 4n^2.
//   tiles of b_q queries: Q read and O written once, 4nd; each of the n / b_q query tiles reads all of K and V, 4nd
//   bytes: 4n^2 d / b_q. Causal, a tile stops at its own last query: 2nd (n / b_q + 1) instead; and only n (n + 1) / 2
//   scores exist. A workspace that holds anything else is written once and read once besides.
// A variant without tiles that keeps no scores is taken as b_q = 1. Caches are not part of the model: what K and V tiles
// find in L2 does not come from DRAM, which is where measurements part from it.
IoModel forward_io(const Variant& variant, const Shape& shape) {
  const double n = shape.n, nd = n * shape.d, heads = static_cast<double>(shape.batch_heads());
  if (variant.stores_scores) {
    return {heads * (8 * nd + (shape.causal ? 2 * n * (n + 1) : 4 * n * n)),
            shape.causal ? "8nd + 2n (n + 1)" : "8nd + 4n^2"};
  }
  const int br = std::max(1, variant.tile.br);
  const double workspace = static_cast<double>(variant.workspace_at(shape));
  return {heads * (4 * nd + (shape.causal ? 2 * nd * (n / br + 1) : 4 * nd * n / br)) + 2 * workspace,
          fmt::format(fmt::runtime(shape.causal ? "4nd + 2nd (n/{} + 1){}" : "4nd + 4n^2 d / {}{}"), br,
                      workspace > 0 ? " + 2 of the workspace" : "")};
}

}  // namespace

const Formula DENSE_FORWARD{.name = "dense",
                            .inputs = forward_inputs,
                            .outputs = forward_outputs,
                            .work = forward_work,
                            .io_model = forward_io,
                            .make_inputs = make_inputs,
                            .make_reference = make_reference,
                            .odd_input = "V"};

const Formula CAUSAL_FORWARD{.name = "causal",
                             .inputs = forward_inputs,
                             .outputs = forward_outputs,
                             .work = forward_work,
                             .io_model = forward_io,
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
