#include "harness/devices/tensor_memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace ladder {
namespace {

constexpr size_t PAGE = 4096;
static_assert(GUARD_BYTES % PAGE == 0);

Mapped map(size_t bytes, int protection) {
  void* const memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), {bytes}};
}

}  // namespace

void Unmap::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

TensorBytes::TensorBytes(size_t bytes)
    : bytes_(bytes), offset_(GUARD_BYTES + (PAGE - bytes % PAGE) % PAGE / 32 * 32 + 16) {
  const size_t mapped = (offset_ + bytes + PAGE - 1) / PAGE * PAGE + GUARD_BYTES;
  real_ = map(mapped, PROT_READ | PROT_WRITE);
  barred_ = map(mapped, PROT_NONE);
  std::memset(data() - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
  std::memset(data() + bytes_, GUARD_BYTE, GUARD_BYTES);
}

void TensorBytes::check_guards(const std::string& name, std::vector<std::string>& messages) const {
  report_overwritten({data() - GUARD_BYTES, GUARD_BYTES}, true, name, messages);
  report_overwritten({data() + bytes_, GUARD_BYTES}, false, name, messages);
}

}  // namespace ladder
