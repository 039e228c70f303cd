#include "harness/base/interrupt.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace ladder {
namespace {

volatile std::sig_atomic_t flag = 0;

void raise_flag(int) {
  flag = 1;
  // Of all output, write() alone is allowed in a handler. What it returns helps nobody here.
  constexpr char WORDS[] = "\nStopping; what is done so far follows. Ctrl-C again ends at once.\n";
  const int before = errno;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, WORDS, sizeof WORDS - 1);
  errno = before;
}

void install(void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  flag = 0;
  install(raise_flag, static_cast<int>(SA_RESETHAND));  // the second signal finds the default again
}

InterruptGuard::~InterruptGuard() {
  install(SIG_DFL, 0);
}

bool interrupted() {
  return flag != 0;
}

}  // namespace ladder
