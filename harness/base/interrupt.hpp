// Ctrl-C as a question that long work asks, so that it can stop between two steps and keep what it has.
#pragma once

namespace ladder {

// While one exists, SIGINT and SIGTERM set the flag that interrupted() reads and say so on stderr; a second one ends
// the program.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();
};

bool interrupted();

}  // namespace ladder
