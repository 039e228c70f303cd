// Named tensors on the host: what goes into a problem and what comes out, whatever the elements are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/problem/element.hpp"

namespace ladder {

// [heads, rows, columns], row-major and contiguous. `heads` counts through the batch.
struct TensorSpec {
  std::string_view name;  // as reports call it: "K"
  Element element = Element::f16;
  int64_t heads = 0;
  int rows = 0, columns = 0;  // of a head

  int64_t head_elements() const { return int64_t{rows} * columns; }
  int64_t elements() const { return heads * head_elements(); }
  size_t head_bytes() const { return static_cast<size_t>(head_elements()) * bytes_of(element); }
  size_t bytes() const { return static_cast<size_t>(elements()) * bytes_of(element); }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const TensorSpec& spec) : spec_(spec), data_(spec.bytes()) {}

  const TensorSpec& spec() const { return spec_; }
  std::string_view name() const { return spec_.name; }
  std::span<std::byte> bytes() { return data_; }
  std::span<const std::byte> bytes() const { return data_; }
  size_t size() const { return data_.size() / bytes_of(spec_.element); }
  bool empty() const { return data_.empty(); }

  // All elements, which are f16 (half) or f32 (single).
  std::span<f16> half() { return {reinterpret_cast<f16*>(data_.data()), size()}; }
  std::span<const f16> half() const { return {reinterpret_cast<const f16*>(data_.data()), size()}; }
  std::span<float> single() { return {reinterpret_cast<float*>(data_.data()), size()}; }
  std::span<const float> single() const { return {reinterpret_cast<const float*>(data_.data()), size()}; }
  // An element as a number, whatever it is.
  double operator[](size_t i) const {
    return spec_.element == Element::f16 ? double{ladder::to_float(half()[i])} : double{single()[i]};
  }
  // visit(the elements), a span of what they are.
  template <class Visit>
  auto with_elements(const Visit& visit) const {
    if (spec_.element == Element::f16) return visit(half());
    return visit(single());
  }

  // Behind the heads that are there, those of `more`, which has the same rows and columns; or some of them.
  void append(const Tensor& more) { append(more, 0, more.spec_.heads); }
  void append(const Tensor& more, int64_t first_head, int64_t heads);

 private:
  TensorSpec spec_;
  std::vector<std::byte> data_;
};

// A few tensors in a fixed order. What is asked for by name is there; otherwise the program ends.
class Tensors {
 public:
  Tensors() = default;
  explicit Tensors(std::span<const TensorSpec> specs) {
    for (const TensorSpec& spec : specs) tensors_.emplace_back(spec);
  }
  Tensor& operator[](std::string_view name);
  const Tensor& operator[](std::string_view name) const { return const_cast<Tensors&>(*this)[name]; }
  std::span<f16> half(std::string_view name) { return (*this)[name].half(); }
  std::span<const f16> half(std::string_view name) const { return (*this)[name].half(); }

  bool empty() const { return tensors_.empty(); }
  size_t size() const { return tensors_.size(); }
  auto begin() { return tensors_.begin(); }
  auto end() { return tensors_.end(); }
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  Tensor& at(size_t i) { return tensors_.at(i); }
  const Tensor& at(size_t i) const { return tensors_.at(i); }
  void add(Tensor tensor) { tensors_.push_back(std::move(tensor)); }

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace ladder
