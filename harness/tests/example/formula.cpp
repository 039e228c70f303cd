// Another formula, as a part would bring it: Y = softmax(X W) row by row in bf16, and the logits L = X W in f32. X and Y lie in rows
// with gaps between them where a problem asks for that. W belongs to all rows.
#include "harness/problem/formula.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "harness/problem/spec.hpp"

namespace ladder {
namespace {

constexpr int64_t CLASSES = 16;

std::vector<TensorSpec> inputs(const Spec& spec) {
  TensorSpec W = tensor("W", spec.kv_type, {1, 1, spec.d, CLASSES});
  W.is_fixed = true;
  return {tensor("X", spec.q_type, {spec.batch, spec.heads, spec.n, spec.d}, spec.layout, spec.pad), W};
}

std::vector<TensorSpec> outputs(const Spec& spec) {
  std::vector<TensorSpec> made{
      tensor("Y", spec.o_type, {spec.batch, spec.heads, spec.n, CLASSES}, spec.layout, spec.pad),
      tensor("L", Element::f32, {spec.batch, spec.heads, spec.n, CLASSES})};
  for (TensorSpec& each : made) each.row = "row";
  return made;
}

Work work(const Spec& spec) {
  Work work{.flops = 2.0 * double(spec.elements()) * CLASSES, .bound = Work::Bound::reads};
  for (const auto& tensors : {inputs(spec), outputs(spec)}) {
    for (const TensorSpec& each : tensors) work.bytes += double(each.bytes());
  }
  return work;
}

IoModel io_model(const Variant&, const Spec& spec) {
  return {work(spec).bytes, "each tensor once"};
}

Tensors make_inputs(std::span<const InputKind>, const Spec& spec, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensors made(inputs(spec));
  for (Tensor& tensor : made) {
    for (int64_t i = 0; i < tensor.spec().elements(); ++i)
      tensor.set(i, double(random() >> 11) * 0x1p-52 - 1);  // within 1
  }
  return made;
}

Cells cells(const Spec& spec) {
  std::vector<Cell> all;
  for (int64_t unit = 0; unit < spec.batch_heads(); ++unit) {
    for (int64_t row = 0; row < spec.n; ++row) all.push_back({unit, row});
  }
  return Cells(2, all);
}

template <class T>
std::array<T, CLASSES> logits_of(const Tensor& X, const Tensor& W, const Cell& cell) {
  std::array<T, CLASSES> logits{};
  for (int64_t k = 0; k < X.spec().columns(); ++k) {
    const auto x = static_cast<T>(X[static_cast<size_t>(X.spec().index(cell.unit, cell.row) + k)]);
    for (int64_t c = 0; c < CLASSES; ++c) logits[c] += x * static_cast<T>(W[static_cast<size_t>(k * CLASSES + c)]);
  }
  return logits;
}

template <class T>
std::array<T, CLASSES> softmax(std::array<T, CLASSES> values) {
  const T largest = std::ranges::max(values);
  T sum = 0;
  for (T& value : values) sum += value = std::exp(value - largest);
  for (T& value : values) value /= sum;
  return values;
}

Reference make_reference(const Spec& spec, const Tensors& in, const Cells& cells, size_t sets, bool) {
  Reference reference;
  for (size_t which = 0; which < 2; ++which) {
    Reference::Answer& answer =
        reference.answers.emplace_back(Reference::Answer{.output = which == 0 ? "Y" : "L",
                                                         .columns = CLASSES,
                                                         .cells = cells[which],
                                                         .baseline = std::vector<Reference::Baseline>(sets),
                                                         .sets = sets});
    std::vector<double> squares(sets), numbers(sets);
    for (size_t i = 0; i < answer.cells.size(); ++i) {
      const auto exact = logits_of<double>(in["X"], in["W"], answer.cells[i]);
      const auto plain = logits_of<float>(in["X"], in["W"], answer.cells[i]);
      const auto right = which == 0 ? softmax(exact) : exact;
      const auto rough = which == 0 ? softmax(plain) : plain;
      const Element type = which == 0 ? spec.o_type : Element::f32;
      Reference::Baseline& baseline = answer.baseline[answer.set_of(i)];
      for (int64_t c = 0; c < CLASSES; ++c) {
        const double error = rounded(type, rough[c]) - right[c];
        baseline.max = std::max(baseline.max, std::abs(rough[c] - right[c]) + half_step(type, right[c]));
        squares[answer.set_of(i)] += error * error;
        numbers[answer.set_of(i)] += 1;
        answer.values.push_back(right[c]);
      }
    }
    for (size_t set = 0; set < sets; ++set)
      answer.baseline[set].rms = std::sqrt(squares[set] / std::max(numbers[set], 1.0));
  }
  return reference;
}

Spec of_heads(const Spec& spec, int heads) {
  Spec few = spec;
  few.batch = 1;
  few.heads = heads;
  few.layout = Layout::bhnd;
  few.pad = 0;
  return few;
}

std::vector<Spec> trials(const Accepts& accepts, const Spec& usual) {
  std::vector<Spec> specs{parse_spec("b=2 h=3 n=1", usual).value(), parse_spec("b=1 h=2 n=77", usual).value()};
  if (accepts.features & STRIDES) {
    specs.push_back(parse_spec("b=2 h=3 n=20 layout=bnhd", usual).value());
    specs.push_back(parse_spec("h=2 n=33 pad=8", usual).value());
  }
  return specs;
}

const FormulaRegistration registration({.name = "classify",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .work = work,
                                        .io_model = io_model,
                                        .make_inputs = make_inputs,
                                        .cells = cells,
                                        .make_reference = make_reference,
                                        .odd_input = "",
                                        .odd_outputs = {},
                                        .of_heads = of_heads,
                                        .trials = trials});

}  // namespace
}  // namespace ladder
