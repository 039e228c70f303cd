#include "harness/base/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "harness/base/terminal.hpp"

namespace ladder {
namespace {

constexpr double SILENT_SECONDS = 2;
constexpr double LINE_SECONDS = 10;  // between two lines when standard error is no terminal
constexpr double TERMINAL_SECONDS = 0.2;

}  // namespace

Progress::~Progress() {
  if (width_ > 0) fmt::print(stderr, "\r{:{}}\r", "", width_);
}

void Progress::say(std::string_view line) {
  if (width_ > 0) fmt::print(stderr, "\r{:{}}\r", "", width_);
  width_ = 0;
  fmt::print(stderr, "{}\n", line);
}

void Progress::step(std::string_view what, double work) {
  done_ += current_;
  current_ = work;
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (elapsed < SILENT_SECONDS) return;
  const double pause = is_terminal(stderr) ? TERMINAL_SECONDS : LINE_SECONDS;
  if (shown_ && std::chrono::duration<double>(now - *shown_).count() < pause) return;
  shown_ = now;
  const double left = done_ > 0 ? elapsed / done_ * (total_ - done_) : 0;
  const std::string share = fmt::format("{:3.0f} %  ", 100 * done_ / total_);
  const std::string time = done_ > 0 ? fmt::format("  {:.0f} s left", left) : std::string("  ...");
  if (is_terminal(stderr)) {
    // A line that is too long would scroll instead of being written over. The last column stays free: some terminals go
    // on to the next line as soon as it is written.
    const size_t room = std::max<size_t>(screen_columns(stderr), 2) - 1;
    const size_t others = share.size() + time.size();
    const std::string line =
        (share + std::string(what.substr(0, room - std::min(room, others))) + time).substr(0, room);
    width_ = std::min(room, std::max(width_, line.size()));
    fmt::print(stderr, "\r{:{}}", line, width_);
    std::fflush(stderr);
  } else {
    fmt::print(stderr, "{}{}{}\n", share, what, time);
  }
}

}  // namespace ladder
