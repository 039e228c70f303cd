#include "harness/problem/problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace ladder {

Shape Problem::launched() const {
  Shape all = shape;
  if (far_heads > 0) {
    const int sequences = far_heads % 2 == 0 ? 2 : far_heads % 3 == 0 ? 3 : 1;
    all.batch = shape.batch > 1 ? far_heads : sequences;
    all.heads = far_heads / all.batch;
  }
  return all;
}

int64_t Problem::launched_head(int64_t head) const {
  if (far_heads == 0) return head;
  const int64_t known = shape.batch_heads();
  if (head == known - 1) return far_heads - 1;
  // Of two that are repeated the first one lies at an even place.
  return known == 2 ? far_heads / 4 * 2 : head == 0 ? 0 : far_heads / 2;
}

std::string place(const Problem& problem, const TensorSpec& output, const Cell& cell) {
  // Of a problem with many heads, which are the launched one's, the tensor has few.
  const int64_t unit = problem.launched_head(cell.unit);
  const int64_t heads = problem.far_heads > 0 ? problem.launched().heads : output.shape[1];
  return fmt::format("batch {}, head {}, {} {}", unit / heads, unit % heads, output.row, cell.row);
}

Problem make_problem(const Shape& shape, InputKind kind, uint64_t seed, bool on_gpu) {
  return make_problem(shape, {&kind, 1}, seed, on_gpu);
}

namespace {

// Those of V so that O has a number for them.
void set_scales_apart(Inputs& inputs, bool by_head, Element o_type) {
  constexpr float SCALES[] = {0x1p-14f, 0x1p15f, 0, 1};
  for (const char* const name : {"K_scales", "V_scales"}) {
    Tensor& scales = inputs[name];
    const float by = name[0] == 'V' && info(o_type).largest < 0x1p20 ? 0x1p-14f : 1;
    const int64_t alike = by_head ? scales.spec().unit_elements() : 1, first = name[0] == 'V';
    for (int64_t i = 0; i < scales.spec().elements(); ++i) scales.set(i, by * SCALES[(i / alike + first) % 4]);
  }
}

}  // namespace

Problem make_question(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, const Exponents& exponents) {
  Inputs inputs = formula_of(shape).make_inputs(kinds, shape, seed);
  for (const auto& [name, exponent] : exponents) {
    if (name == SCALES_APART) {
      set_scales_apart(inputs, exponent == 1, shape.o_type);
      continue;
    }
    // Bytes stay as they are, and what they are multiplied by changes.
    const bool of_rows = shape.has_row_scales() && name != "V";
    const bool is_scaled = of_rows || (name == "Q" ? shape.has_Q_scales() : shape.has_scales());
    Tensor& input = inputs[is_scaled ? fmt::format("{}_scales", name) : name];
    for (int64_t i = 0; i < input.spec().elements(); ++i) {
      input.set(i, std::ldexp(input[static_cast<size_t>(i)], exponent));
    }
  }
  if (!exponents.empty() && formula_of(shape).complete != nullptr) formula_of(shape).complete(shape, inputs);
  return {shape, {kinds.begin(), kinds.end()}, seed, std::move(inputs), {}, exponents};
}

Problem make_question_of_few(const Shape& shape, uint64_t seed) {
  constexpr int FEW = 5;  // no divisor of 8 or 16: who takes the eighth head before his own takes another one
  Shape few = shape;
  few.batch = 1, few.heads = FEW, few.kv_heads = 0;
  const InputKind kind = InputKind::normal;
  const Inputs made = formula_of(shape).make_inputs({&kind, 1}, few, seed);
  Inputs inputs;
  for (const TensorSpec& spec : formula_of(shape).inputs(shape)) {
    Tensor all(spec);
    const std::span<const std::byte> its = made[spec.name].bytes();
    const size_t unit = spec.unit_bytes();
    for (int64_t i = 0; i < spec.units(); ++i) {
      const size_t number = static_cast<size_t>(i);
      std::memcpy(&all.bytes()[number * unit], &its[number % (its.size() / unit) * unit], unit);
    }
    inputs.add(std::move(all));
  }
  return {shape, {kind}, seed, std::move(inputs), {}, {}};
}

Problem make_problem(const Shape& shape, std::span<const InputKind> kinds, uint64_t seed, bool on_gpu,
                     const Exponents& exponents) {
  Problem problem = make_question(shape, kinds, seed, exponents);
  const Cells cells = problem.formula().cells(shape);
  problem.reference = problem.formula().make_reference(shape, problem.inputs, cells, kinds.size(), on_gpu);
  return problem;
}

}  // namespace ladder
