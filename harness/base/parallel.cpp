#include "harness/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace ladder {

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t ranges = (count + grain - 1) / grain;
  const int64_t threads = std::min<int64_t>(std::max(1u, std::thread::hardware_concurrency()), ranges);
  std::atomic<int64_t> next{0};
  std::exception_ptr thrown;
  std::mutex mutex;
  const auto drain = [&] {
    try {
      for (int64_t range = next++; range < ranges; range = next++) {
        work(range * grain, std::min(count, (range + 1) * grain));
      }
    } catch (...) {
      next = ranges;  // nobody begins another one
      const std::lock_guard guard(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::future<void>> helpers;  // libc++ has no jthread before 20
  for (int64_t i = 1; i < threads; ++i) helpers.push_back(std::async(std::launch::async, drain));
  drain();
  helpers.clear();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace ladder
