#include "harness/base/watch.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <thread>

#include "harness/base/interrupt.hpp"

namespace ladder {

Watched watch(std::function<void(const std::atomic<bool>& stop)> work, std::optional<double> seconds, Seconds kind) {
  using namespace std::chrono_literals;
  constexpr auto LOOK = 20ms;  // a signal handler cannot wake anybody
  constexpr auto MOMENT = 2s;  // to stop in
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  std::packaged_task<void()> task([work = std::move(work), stop] { work(*stop); });
  std::future<void> done = task.get_future();
  std::thread worker(std::move(task));

  const auto start = std::chrono::steady_clock::now();
  const std::clock_t work_before = std::clock();
  const auto spent = [&] {
    const double by_clock = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (kind == Seconds::of_clock) return by_clock;
    return std::max(static_cast<double>(std::clock() - work_before) / CLOCKS_PER_SEC, by_clock / 10);
  };
  const auto ends_within = [&](auto time) { return done.wait_for(time) == std::future_status::ready; };
  Watched result;
  while (!ends_within(LOOK)) {
    if (interrupted()) result.ended = Ended::interrupted;
    if (seconds && spent() > *seconds) result.ended = Ended::timed_out;
    if (result.ended == Ended::by_itself) continue;
    *stop = true;
    result.lost = !ends_within(MOMENT);
    break;
  }
  if (result.lost) {
    worker.detach();
    return result;
  }
  worker.join();
  done.get();  // throws what the work has thrown
  return result;
}

}  // namespace ladder
