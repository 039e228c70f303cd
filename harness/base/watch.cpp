#include "harness/base/watch.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "harness/base/interrupt.hpp"

namespace ladder {

Watched watch(std::function<void(const std::atomic<bool>& stop)> work, std::optional<double> seconds, Seconds kind) {
  using namespace std::chrono_literals;
  constexpr auto LOOK = 20ms;  // a signal handler cannot wake anybody
  constexpr auto MOMENT = 2s;  // to stop in
  struct State {
    std::function<void(const std::atomic<bool>&)> work;
    std::atomic<bool> stop = false;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr thrown;
  };
  const auto state = std::make_shared<State>();
  state->work = std::move(work);
  std::thread worker([state] {
    std::exception_ptr thrown;
    try {
      state->work(state->stop);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(state->mutex);
    state->thrown = thrown;
    state->done = true;
    state->changed.notify_one();
  });

  const auto start = std::chrono::steady_clock::now();
  const std::clock_t work_before = std::clock();
  const auto spent = [&] {
    const double by_clock = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (kind == Seconds::of_clock) return by_clock;
    return std::max(static_cast<double>(std::clock() - work_before) / CLOCKS_PER_SEC, by_clock / 10);
  };
  const auto is_done = [&] { return state->done; };
  Watched result;
  std::unique_lock lock(state->mutex);
  while (!state->changed.wait_for(lock, LOOK, is_done)) {
    if (interrupted()) result.ended = Ended::interrupted;
    if (seconds && spent() > *seconds) result.ended = Ended::timed_out;
    if (result.ended == Ended::by_itself) continue;
    state->stop = true;
    result.lost = !state->changed.wait_for(lock, MOMENT, is_done);
    break;
  }
  lock.unlock();
  if (result.lost) {
    worker.detach();
    return result;
  }
  worker.join();
  if (state->thrown) std::rethrow_exception(state->thrown);
  return result;
}

}  // namespace ladder
