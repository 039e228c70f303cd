// How far long work has come, on standard error: silent for the first two seconds, then with the time that is left.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace ladder {

class Progress {
 public:
  // `total` is the work in any unit; steps are weighed by it.
  explicit Progress(double total) : total_(total) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line

  // Called before a step: what comes now, and how much work it is.
  void step(std::string_view what, double work);
  // A line that stays, above the one that changes.
  void say(std::string_view line);

 private:
  using Clock = std::chrono::steady_clock;
  double total_, done_ = 0, current_ = 0;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> shown_;  // when the line was last written
  size_t width_ = 0;                        // of the line on the terminal
};

}  // namespace ladder
