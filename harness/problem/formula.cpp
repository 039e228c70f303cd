#include "harness/problem/formula.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>

namespace ladder {
namespace {

std::vector<const Formula*>& registry() {
  static std::vector<const Formula*> all;
  return all;
}

}  // namespace

FormulaRegistration::FormulaRegistration(Formula formula) {
  static std::deque<Formula> made;  // where they stay
  registry().push_back(&made.emplace_back(std::move(formula)));
  std::ranges::sort(registry(), {}, &Formula::name);
}

const std::vector<const Formula*>& formulas() {
  return registry();
}

const Formula& formula_of(const Spec& spec) {
  for (const Formula* const formula : registry()) {
    if (Word(formula->name.data()) == spec.formula) return *formula;
  }
  std::fprintf(stderr, "This program has no formula '%s'.\n", spec.formula.text);
  std::abort();
}

double bytes_of_rows(std::span<const TensorSpec> tensors) {
  double bytes = 0;
  for (const TensorSpec& each : tensors) {
    for (int64_t unit = 0; unit < each.units(); ++unit)
      bytes += static_cast<double>(each.rows_of(unit)) * static_cast<double>(each.row_bytes());
  }
  return bytes;
}

std::vector<TensorSpec> outputs_of(const Variant& variant, const Spec& spec) {
  std::vector<TensorSpec> specs = formula_of(spec).outputs(spec);
  std::erase_if(specs, [&](const TensorSpec& each) { return each.is_optional && !variant.writes_lse; });
  return specs;
}

}  // namespace ladder
