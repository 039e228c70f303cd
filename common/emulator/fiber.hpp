// The stacks that a block's threads run on. One CUDA thread is one fiber; fibers of a block switch to one another directly
// and never leave their OS thread.
#pragma once
#include <sys/mman.h>
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

// fiber.cpp, in assembler. Keeps the registers that a call must keep on this stack and goes on with those on another one; returns,
// once somebody has switched back here, where that one's lie.
extern "C" void* ladder_switch_stack(void* to);
// Where a fiber begins: it calls function(object, where the registers lie of who switched here), which never returns.
extern "C" void ladder_begin_fiber();

namespace emulator {

// One that is suspended, or none. It owns nothing: its stack is of Stacks, and whatever stands there may be forgotten.
class fiber {
 public:
  fiber() = default;
  fiber(fiber&& other) noexcept : registers_(std::exchange(other.registers_, nullptr)) {}
  fiber& operator=(fiber&& other) noexcept {
    registers_ = std::exchange(other.registers_, nullptr);
    return *this;
  }
  explicit operator bool() const { return registers_ != nullptr; }

  // It runs, until some fiber switches back here: that one is the result.
  fiber resume() && { return fiber(ladder_switch_stack(std::exchange(registers_, nullptr))); }

  // One that will call `function` with who switched to it first, and end in the fiber that this returns. `top`: of its stack,
  // at a multiple of 16.
  template <class Function>
  static fiber at(std::byte* top, Function function) {
    static_assert(std::is_trivially_destructible_v<Function>);  // nobody destroys it
    top -= (sizeof(Function) + 15) / 16 * 16;
    auto* const object = ::new (top) Function(std::move(function));
    void (*const run)(void*, void*) = [](void* object, void* from) {
      fiber next = (*static_cast<Function*>(object))(fiber(from));
      std::move(next).resume();
      std::abort();
    };
    void** const registers = reinterpret_cast<void**>(top) - FRAME;
    std::memset(registers, 0, FRAME * sizeof(void*));  // a debugger's list of calls ends in a return to 0
    registers[OBJECT] = object;
    registers[FUNCTION] = reinterpret_cast<void*>(run);
    registers[RETURN] = reinterpret_cast<void*>(&ladder_begin_fiber);
    return fiber(registers);
  }

 private:
  // Words that ladder_switch_stack takes from a stack, and which of them are what.
#if defined(__x86_64__)
  static constexpr int FRAME = 8, OBJECT = 3, FUNCTION = 4,
                       RETURN = 6;  // r12, rbx; the eighth is where run() would return to
#elif defined(__aarch64__)
  static constexpr int FRAME = 20, OBJECT = 8, FUNCTION = 9, RETURN = 19;  // x19, x20, x30
#else
#error "The emulator's fibers are written for x86-64 and for 64-bit ARM."
#endif

  explicit fiber(void* registers) : registers_(registers) {}

  void* registers_ = nullptr;
};

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
    return fiber::at(memory_ + (i + 1) * SPAN - i % COLOURS * COLOUR_STEP, std::forward<Function>(function));
  }

  bool overflowed(uint32_t i) const { return std::memcmp(memory_ + i * SPAN, &CANARY, sizeof CANARY) != 0; }

 private:
  static constexpr size_t SPAN = 128 * 1024;
  static constexpr uint32_t COLOURS = 16;  // of 256 B: one page
  static constexpr size_t COLOUR_STEP = 256;
  static constexpr uint64_t CANARY = 0x7374616b656e6421;

  size_t bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace emulator
