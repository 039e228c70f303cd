// What a kernel does past the emulator ends in a signal: a pointer that leads nowhere, a quotient that is no integer, a loop
// without an emulated instruction. During a launch these signals become reports. Linux only; not under
// AddressSanitizer, which reports the first two itself.
#pragma once
#include <signal.h>
#include <ctime>
#include <memory>
#include <optional>
#include "common/emulator/emulator.hpp"

namespace emulator {

// Takes the signals of all threads, for as long as one of these lives; then their previous handlers have them again.
// What does not come from a kernel goes to those at once.
class SignalHandlers {
 public:
  SignalHandlers();
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;
};

// A stack for the signals of this thread, and a clock that looks whether it makes progress.
class SignalStack {
 public:
  explicit SignalStack(const Options& options);
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
  stack_t previous_ = {};
  std::optional<timer_t> timer_;
};

// The source line of a machine instruction, if the program has line numbers (-g1) and addr2line is there.
std::optional<SourceLine> machine_line(const void* pc);

}  // namespace emulator
