#include "harness/problem/tensors.hpp"

#include <algorithm>
#include <cstdlib>

namespace ladder {

void Tensor::append(const Tensor& more, int64_t first_head, int64_t heads) {
  const size_t head = more.spec_.head_bytes();
  const auto from = more.data_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first_head) * head);
  data_.insert(data_.end(), from, from + static_cast<std::ptrdiff_t>(static_cast<size_t>(heads) * head));
  spec_.heads += heads;
}

Tensor& Tensors::operator[](std::string_view name) {
  const auto found = std::ranges::find(tensors_, name, &Tensor::name);
  if (found == tensors_.end()) std::abort();
  return *found;
}

}  // namespace ladder
