// Memory of one tensor for an emulated launch. Kernels get addresses that nothing may be read from or written to; the
// emulator's loads and stores know where the elements really are. So an access past them, a plain pointer in a kernel,
// faults at its line, inside the tensor as well as outside.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/emulator/emulator.hpp"
#include "harness/devices/guarded.hpp"

namespace ladder {

// Whole pages.
struct Unmap {
  size_t bytes = 0;
  void operator()(std::byte* memory) const;
};
using Mapped = std::unique_ptr<std::byte, Unmap>;

class TensorBytes {
 public:
  // The payload begins at a multiple of 16 bytes, which is all that a kernel may count on, and of no other power of two,
  // and ends near the end of a page; guard zones of GUARD_BYTES before and behind it hold GUARD_BYTE. Memory is taken where it is touched:
  // the payload may be far larger than the machine's. Throws std::bad_alloc.
  explicit TensorBytes(size_t bytes);

  std::byte* data() const { return real_.get() + offset_; }
  std::byte* for_kernels() const { return barred_.get() + offset_; }
  size_t bytes() const { return bytes_; }

  void register_with(emulator::Device& device, std::string name, emulator::Access access) const {
    device.register_buffer(for_kernels(), bytes_, std::move(name), access, data());
  }
  // A message for each guard zone that was written to.
  void check_guards(const std::string& name, std::vector<std::string>& messages) const;

 private:
  size_t bytes_, offset_;
  Mapped real_, barred_;
};

}  // namespace ladder
