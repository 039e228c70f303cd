// The harness's own kernels, started in the default stream; cudaGetLastError() says whether that went well. All pointers
// are of the GPU's memory, or pinned.
#pragma once
#include <cstddef>
#include <cstdint>

#include "common/attention.hpp"

namespace ladder {

// Uniform numbers in middle +-spread, or the NaN without a spread.
template <class T>  // f16, bf16, float
void fill(T* values, int64_t count, T nan, uint64_t seed, float middle, float spread);

// The sign of all values of those units of which `flip` holds no zero: unit u is head u % heads of sequence u / heads, and has
// rows of `columns` elements. The sign is the highest bit of an element.
struct SignLayout {
  int64_t units, heads, rows, columns;
  int64_t strides[3];  // of sequences, heads and rows, in elements
  int bytes;           // of an element
};
void change_sign(std::byte* values, const SignLayout& layout, const uint8_t* flip);

// Rows of `row_bytes` in one piece, one after another.
void gather_rows(const std::byte* const* rows, size_t count, size_t row_bytes, std::byte* to);

// Sets `changed` to 1 where one of `count` zones of `bytes` holds another byte than it was filled with.
void compare_guards(const std::byte* const* zones, size_t count, size_t bytes, unsigned char filled, unsigned* changed);

// Adds to `sum` a hash of each byte and its number, from `first` on: the same bytes give the same sum, in whichever order.
void add_hashes(const std::byte* bytes, size_t count, uint64_t first, unsigned long long* sum);

// What each SM's counter of clocks and the card's time say, at its number. An SM that gets no block keeps what is there.
struct SmTime {
  uint64_t cycles, ns;
};
void read_clocks(SmTime* of, int processors);

}  // namespace ladder
