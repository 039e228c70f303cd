// Work that may never end: a kernel that loops for ever, on the emulator or on the GPU.
#pragma once
#include <atomic>
#include <functional>
#include <optional>

namespace ladder {

enum class Ended {
  by_itself,
  timed_out,    // it has been told to stop
  interrupted,  // Ctrl-C (interrupt.hpp); it has been told to stop
};

struct Watched {
  Ended ended = Ended::by_itself;
  // It did not stop when it was told to and still runs, on a thread of its own and with all that it refers to. The
  // program must end without waiting for it: std::_Exit.
  bool lost = false;
};

// By the clock, or of this program's own on all cores: then others that keep a busy machine from it do not count, unless it has
// had ten times as many by the clock.
enum class Seconds { of_clock, of_work };

// Calls work(stop) on a thread of its own and waits for it: for `seconds` at most, and until an interrupt. Then `stop`
// becomes true, and `work` has a moment to return. What it throws is thrown here.
Watched watch(std::function<void(const std::atomic<bool>& stop)> work, std::optional<double> seconds,
              Seconds kind = Seconds::of_clock);

}  // namespace ladder
