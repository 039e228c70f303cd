// A buffer between two guard zones, and the values that memory holds before a kernel runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "common/attention.hpp"

namespace ladder {

constexpr size_t GUARD_BYTES = 4096;  // before and behind: any access up to 2048 f16 outside meets it
constexpr uint8_t GUARD_BYTE = 0xa5;

// What an output holds until a kernel writes it: a NaN that no arithmetic produces, so that "never written" and "wrote
// NaN" can be told apart. As f32 (two of them side by side) it is a NaN as well.
constexpr f16 POISON{0x7fa5};
constexpr bool is_nan(f16 value) {
  return (value.bits & 0x7fff) > 0x7c00;
}
constexpr bool is_poison(f16 value) {
  return value.bits == POISON.bits;
}

// Index of the first byte of a guard zone that lost the pattern.
inline std::optional<size_t> overwritten(std::span<const std::byte> guard) {
  for (size_t i = 0; i < guard.size(); ++i) {
    if (guard[i] != std::byte{GUARD_BYTE}) return i;
  }
  return std::nullopt;
}

// Host memory for `count` elements, 256-byte aligned as the GPU's allocator gives them.
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count)
      : bytes_(count * sizeof(T)),
        memory_(static_cast<std::byte*>(::operator new(bytes_ + 2 * GUARD_BYTES, ALIGNMENT))) {
    std::memset(memory_.get(), GUARD_BYTE, bytes_ + 2 * GUARD_BYTES);
  }
  GuardedBuffer(std::span<const T> values) : GuardedBuffer(values.size()) {
    std::memcpy(data(), values.data(), bytes_);
  }

  T* data() { return reinterpret_cast<T*>(memory_.get() + GUARD_BYTES); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get() + GUARD_BYTES); }
  size_t bytes() const { return bytes_; }
  std::span<T> values() { return {data(), bytes_ / sizeof(T)}; }
  std::span<const T> values() const { return {data(), bytes_ / sizeof(T)}; }
  std::span<const std::byte> guard_before() const { return {memory_.get(), GUARD_BYTES}; }
  std::span<const std::byte> guard_behind() const { return {memory_.get() + GUARD_BYTES + bytes_, GUARD_BYTES}; }

 private:
  static constexpr std::align_val_t ALIGNMENT{256};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, ALIGNMENT); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace ladder
