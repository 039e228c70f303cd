#include "harness/problem/tensors.hpp"

#include <algorithm>
#include <bit>
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

f16 to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;  // 65536 and above: infinity
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: an f32 addition rounds to the subnormals' spacing, 2^-24, whose f32 ulp belongs to [0.5, 1).
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    // Subtract the biases' difference (112), round the 13 dropped bits to nearest even; a carry reaches the exponent.
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace ladder
