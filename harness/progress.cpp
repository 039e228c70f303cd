#include "harness/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ladder {
namespace {

constexpr double SILENT_SECONDS = 2;
constexpr double LINE_SECONDS = 10;  // between two lines when standard error is no terminal
constexpr double TERMINAL_SECONDS = 0.2;

bool on_terminal() {
  return isatty(STDERR_FILENO);
}

}  // namespace

Progress::~Progress() {
  if (width_ > 0) fmt::print(stderr, "\r{:{}}\r", "", width_);
}

void Progress::step(std::string_view what, double work) {
  done_ += current_;
  current_ = work;
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (elapsed < SILENT_SECONDS) return;
  const double pause = on_terminal() ? TERMINAL_SECONDS : LINE_SECONDS;
  if (shown_ && std::chrono::duration<double>(now - *shown_).count() < pause) return;
  shown_ = now;
  const double left = done_ > 0 ? elapsed / done_ * (total_ - done_) : 0;
  const std::string line = fmt::format("{:3.0f} %  {}  {}", 100 * done_ / total_, what,
                                       done_ > 0 ? fmt::format("{:.0f} s left", left) : std::string("..."));
  if (on_terminal()) {
    width_ = std::max(width_, line.size());
    fmt::print(stderr, "\r{:{}}", line, width_);
    std::fflush(stderr);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

}  // namespace ladder
