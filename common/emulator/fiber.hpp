// The stacks that a block's threads run on. One CUDA thread is one boost::context::fiber; fibers of a block switch to
// one another directly and never leave their OS thread.
#pragma once
#include <sys/mman.h>
#include <boost/context/fiber.hpp>
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace emulator {

using boost::context::fiber;

class Stacks {
 public:
  explicit Stacks(uint32_t count) : bytes_(size_t{count} * SPAN) {
    // Pages get memory when they are first touched: a kernel uses a few of each stack's.
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    // Abandoned fibers may have stood here before, in stacks that are gone.
    ASAN_UNPOISON_MEMORY_REGION(memory_, bytes_);
    for (uint32_t i = 0; i < count; ++i) std::memcpy(memory_ + i * SPAN, &CANARY, sizeof CANARY);
  }
  ~Stacks() { munmap(memory_, bytes_); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  template <class Function>
  fiber start(uint32_t i, Function&& function) {
    // AddressSanitizer does not see how the frames of an abandoned fiber go.
    ASAN_UNPOISON_MEMORY_REGION(memory_ + i * SPAN, SPAN);
    // Stacks at equal offsets would compete for the same sets of the L1 cache: stagger them.
    std::byte* const top = memory_ + (i + 1) * SPAN - i % COLOURS * COLOUR_STEP;
    const boost::context::stack_context stack = {.size = SPAN - i % COLOURS * COLOUR_STEP, .sp = top};
    return fiber(std::allocator_arg, boost::context::preallocated(top, stack.size, stack), Keep{},
                 std::forward<Function>(function));
  }

  bool overflowed(uint32_t i) const { return std::memcmp(memory_ + i * SPAN, &CANARY, sizeof CANARY) != 0; }

 private:
  static constexpr size_t SPAN = 128 * 1024;
  static constexpr uint32_t COLOURS = 16;  // of 256 B, the alignment that fiber gives its own record: one page
  static constexpr size_t COLOUR_STEP = 256;
  static constexpr uint64_t CANARY = 0x7374616b656e6421;

  struct Keep {  // a stack allocator that leaves the memory to Stacks
    boost::context::stack_context allocate() { return {}; }
    void deallocate(boost::context::stack_context&) {}
  };

  size_t bytes_;
  std::byte* memory_ = nullptr;
};

// Forgets a suspended fiber. Its destructor would unwind the fiber's stack with an exception instead, which
// AddressSanitizer cannot follow on a stack of ours.
inline void abandon(fiber& suspended) {
  ::new (&suspended) fiber;
}

}  // namespace emulator
