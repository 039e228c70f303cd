// Named tensors: what goes into a problem and what comes out, whatever the elements are.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/problem/element.hpp"

namespace ladder {

// A tensor of sequences, heads, rows and columns. On the host it is packed in that order; in the memory of a device rows lie
// where the strides say, as in DLPack, and what lies between them is nobody's. A unit is a head of a sequence: unit u is head
// u % heads of sequence u / heads. Where sequences have lengths of their own, those lie there one behind the other, each
// with as many rows as it has.
struct TensorSpec {
  std::string_view name;  // a literal, as reports call it: "K"
  Element element = Element::f16;
  std::array<int64_t, 4> shape = {};
  std::array<int64_t, 3> strides = {};  // of sequences, heads and rows, in elements; columns lie side by side
  Lengths lengths = {};                 // rows that each sequence has, if not all; on the host the others are nobody's
  int64_t page = 0;                // of a cache: in memory rows lie in pages of so many, of which strides[0] is one
  std::string_view row = "query";  // what one of them is
  bool is_optional = false;        // an output that a variant may leave out
  bool is_added_to = false;        // an output that begins with zeros, to which the kernel adds
  bool is_fixed = false;           // an input that belongs to the whole problem: no more units of it are made
  bool per_head = false;           // and has a number for each head

  int64_t units() const { return shape[0] * shape[1]; }
  int64_t rows() const { return shape[2]; }
  int64_t columns() const { return shape[3]; }
  int64_t rows_of(int64_t unit) const { return lengths.count > 0 ? lengths.of[unit / shape[1]] : rows(); }

  // Packed.
  int64_t unit_elements() const { return rows() * columns(); }
  int64_t elements() const { return units() * unit_elements(); }
  int64_t index(int64_t unit, int64_t row) const { return (unit * rows() + row) * columns(); }
  size_t row_bytes() const { return bytes_of(element, columns()); }
  size_t unit_bytes() const { return bytes_of(element, unit_elements()); }
  size_t bytes() const { return bytes_of(element, elements()); }

  // In a device's memory.
  bool is_packed() const {
    return lengths.count == 0 && page == 0 && strides[2] == columns() && strides[1] == unit_elements() &&
           (shape[0] == 1 || strides[0] == shape[1] * strides[1]);
  }
  int64_t offset(int64_t unit, int64_t row = 0) const {
    const int64_t sequence = unit / shape[1];
    if (page > 0)
      return place_of_page(sequence, row / page) * strides[0] + unit % shape[1] * strides[1] + row % page * strides[2];
    const int64_t before = lengths.count > 0 ? lengths.before(sequence) * strides[2] : sequence * strides[0];
    return before + unit % shape[1] * strides[1] + row * strides[2];
  }
  // A sequence's pages, and where its page j lies among all. If it has several they are dealt out, and one is nobody's.
  int64_t pages() const { return (rows() + page - 1) / page; }
  int64_t all_pages() const { return shape[0] * pages() + (pages() > 1); }
  int64_t place_of_page(int64_t sequence, int64_t j) const {
    const int64_t all = all_pages(), step = all % 7919 == 0 ? 7907 : 7919;  // a prime that does not divide it
    return pages() == 1 ? sequence : ((sequence * pages() + j) * step + 1) % all;
  }
  size_t memory_bytes() const {
    if (page > 0 && elements() > 0) {
      const int64_t last = (all_pages() - 1) * strides[0] + (shape[1] - 1) * strides[1] + (page - 1) * strides[2];
      return bytes_of(element, last + columns());
    }
    const int64_t last = lengths.count > 0 ? lengths.of[lengths.count - 1] - 1 : rows() - 1;
    return elements() == 0 || (lengths.count > 0 && lengths.before(lengths.count) == 0)
               ? 0
               : bytes_of(element, offset(units() - 1, last) + columns());
  }
  // Each unit as far behind the one before, whichever sequence it is of.
  bool is_a_row_of_units() const { return lengths.count == 0 && page == 0 && strides[0] == shape[1] * strides[1]; }
  // Units from one place on at which a launch can begin to the next: where heads lie within rows, whole sequences.
  int64_t unit_step() const { return is_a_row_of_units() ? 1 : shape[1]; }
  // The same with more units behind them, a multiple of the step.
  TensorSpec with_more(int64_t more) const {
    TensorSpec longer = *this;
    if (is_a_row_of_units()) {
      longer.shape = {1, units() + more, rows(), columns()};
    } else {
      longer.shape[0] += more / shape[1];
    }
    return longer;
  }
  // Calls visit(element in a device's memory, element of the packed tensor, number of elements) for each run that is in one piece.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    if (is_packed()) return visit(int64_t{0}, int64_t{0}, elements());
    for (int64_t unit = 0; unit < units(); ++unit) {
      for (int64_t row = 0; row < rows_of(unit); ++row) visit(offset(unit, row), index(unit, row), columns());
    }
  }
};

// Packed, or with the heads within the rows, or `pad` elements behind each row, behind all rows of a head (or all heads of a row), and
// behind each sequence: so no stride is a product of others.
TensorSpec tensor(std::string_view name, Element element, const std::array<int64_t, 4>& shape,
                  Layout layout = Layout::bhnd, int pad = 0);

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const TensorSpec& spec) : spec_(spec), data_(spec.bytes()) {}

  const TensorSpec& spec() const { return spec_; }
  std::string_view name() const { return spec_.name; }
  std::span<std::byte> bytes() { return data_; }
  std::span<const std::byte> bytes() const { return data_; }
  size_t size() const { return static_cast<size_t>(spec_.elements()); }
  bool empty() const { return data_.empty(); }

  // All elements, which are f16 (half) or f32 (single).
  std::span<f16> half() { return {reinterpret_cast<f16*>(data_.data()), data_.size() / sizeof(f16)}; }
  std::span<const f16> half() const { return {reinterpret_cast<const f16*>(data_.data()), data_.size() / sizeof(f16)}; }
  std::span<float> single() { return {reinterpret_cast<float*>(data_.data()), data_.size() / sizeof(float)}; }

  // Elements as numbers, whatever they are. Of four bits an even one begins a byte.
  const std::byte* at(int64_t i) const { return data_.data() + bytes_of(spec_.element, i); }
  std::byte* at(int64_t i) { return data_.data() + bytes_of(spec_.element, i); }
  double operator[](size_t i) const { return load(spec_.element, data_.data(), static_cast<int64_t>(i)); }
  void set(int64_t i, double value) { store(spec_.element, data_.data(), i, value); }
  void read(int64_t first, std::span<float> values) const { info(spec_.element).read(at(first), values); }
  bool is_poison(int64_t i) const { return ladder::is_poison(spec_.element, at(i)); }
  void poison() { ladder::poison(spec_.element, data_); }

  // Behind the units that are there, some of `more`, which has the same rows and columns.
  void append(const Tensor& more, int64_t first_unit, int64_t units);

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
  Tensor& add(Tensor tensor) { return tensors_.emplace_back(std::move(tensor)); }

 private:
  std::vector<Tensor> tensors_;
};

// How many units of an input go with so many of the one that has the fewest.
int64_t units_of_more(std::span<const TensorSpec> inputs, const TensorSpec& input, int64_t more);
// Of those that are not fixed.
int64_t fewest_units(const Tensors& inputs);
// Where a tensor of that name is among them; their number, if it is not.
size_t place_of(std::span<const TensorSpec> specs, std::string_view name);

}  // namespace ladder
