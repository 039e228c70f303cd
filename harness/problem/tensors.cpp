#include "harness/problem/tensors.hpp"

#include <algorithm>
#include <cstdlib>

namespace ladder {

TensorSpec tensor(std::string_view name, Element element, const std::array<int64_t, 4>& shape, Layout layout, int pad) {
  TensorSpec spec{.name = name, .element = element, .shape = shape};
  const auto [sequences, heads, rows, columns] = shape;
  const int64_t inner = columns + pad, many = (layout == Layout::bhnd ? rows : heads) * inner + pad;
  spec.strides =
      layout == Layout::bhnd ? std::array{heads * many + pad, many, inner} : std::array{rows * many + pad, inner, many};
  return spec;
}

void Tensor::append(const Tensor& more, int64_t first_unit, int64_t units) {
  const size_t unit = more.spec_.unit_bytes();
  const auto from = more.data_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first_unit) * unit);
  data_.insert(data_.end(), from, from + static_cast<std::ptrdiff_t>(static_cast<size_t>(units) * unit));
  spec_.shape = {1, spec_.units() + units, spec_.rows(), spec_.columns()};
  spec_.strides = tensor(spec_.name, spec_.element, spec_.shape).strides;
}

Tensor& Tensors::operator[](std::string_view name) {
  const auto found = std::ranges::find(tensors_, name, &Tensor::name);
  if (found == tensors_.end()) std::abort();
  return *found;
}

int64_t units_of_more(std::span<const TensorSpec> inputs, const TensorSpec& input, int64_t more) {
  if (input.is_fixed) return 0;
  int64_t fewest = input.units();
  for (const TensorSpec& other : inputs) {
    if (!other.is_fixed) fewest = std::min(fewest, other.units());
  }
  return fewest == 0 ? more : more * (input.units() / fewest);
}

int64_t fewest_units(const Tensors& inputs) {
  int64_t fewest = 0;
  for (const Tensor& input : inputs) {
    if (!input.spec().is_fixed) fewest = fewest == 0 ? input.spec().units() : std::min(fewest, input.spec().units());
  }
  return fewest;
}

size_t place_of(std::span<const TensorSpec> specs, std::string_view name) {
  return static_cast<size_t>(std::ranges::find(specs, name, &TensorSpec::name) - specs.begin());
}

}  // namespace ladder
