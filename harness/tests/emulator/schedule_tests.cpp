// The order in which the threads of a block run: drawn, it shows what comes out right only because somebody comes first.
#include <set>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

constexpr uint32_t WARPS = 4, THREADS = WARPS * 32;

// On one block. `schedule` as in Options.
template <class... Params, class... Args>
Device run_in_order(uint64_t schedule, bool check, void (*kernel)(Params...), uint32_t smem_bytes, Args... args) {
  Device device({.threads = 1, .check = check, .schedule = schedule});
  launch(device, kernel, dim3(1), dim3(THREADS), smem_bytes, args...);
  return device;
}

// In what order the warps begin, and in which the lanes of warp 0.
__global__ void notes_order(uint32_t* count, uint32_t* warps, uint32_t* lanes) {
  const uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 5) warps[count[0]++] = warp;
  if (warp == 0) lanes[count[1]++] = threadIdx.x;
}

// A number goes from warp 0 to the others through global memory, of which the race detector knows nothing within a block.
__global__ void handover(uint32_t* box, uint32_t* out) {
  if (threadIdx.x == 0) st_global_b32(box, 7);
  st_global_b32(out + threadIdx.x, ld_global_b32(box));
}

// Three warps meet by twos: 0 twice, 1 and 2 once. If 1 and 2 meet each other, 0 waits for ever. That this can happen is
// told in every order.
__global__ void three_by_twos() {
  const uint32_t warp = threadIdx.x / 32;
  if (warp == 3) return;
  named_barrier_sync(1, 64);  // @by twos
  if (warp == 0) named_barrier_sync(1, 64);
}

// A ring of one stage. Thread 0 fills it for the others, which take turns to let go of it: a warp that does not reads the
// news all the same, and nothing waits for it.
__global__ void takes_turns(uint32_t* out) {
  const uint32_t full = smem_base(), empty = full + 8, value = full + 16, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 1);
  }
  __syncthreads();
  if (warp == 0) {
    for (uint32_t i = 0; threadIdx.x == 0 && i < 9; ++i) {
      mbarrier_wait_parity(empty, (i + 1) % 2);
      st_shared_b32(value, i);
      mbarrier_arrive(full);  // @news
    }
    return;
  }
  for (uint32_t i = 0; i < 9; ++i) {
    mbarrier_wait_parity(full, i % 2);  // @late
    if (warp != 1 + i % 3) continue;
    __syncwarp();
    if (threadIdx.x % 32 == 3) {
      st_global_b32(out + i, ld_shared_b32(value));
      mbarrier_arrive(empty);
    }
  }
}

// The same, but all warps let go of it.
__global__ void takes_part(uint32_t* out) {
  const uint32_t full = smem_base(), empty = full + 8, value = full + 16, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, WARPS - 1);
  }
  __syncthreads();
  for (uint32_t i = 0; i < 9; ++i) {
    if (threadIdx.x == 0) {
      mbarrier_wait_parity(empty, (i + 1) % 2);
      st_shared_b32(value, i);
      mbarrier_arrive(full);
    } else if (warp > 0) {
      mbarrier_wait_parity(full, i % 2);
      st_global_b32(out + i * 128 + threadIdx.x, ld_shared_b32(value));
      __syncwarp();
      if (threadIdx.x % 32 == 3) mbarrier_arrive(empty);
    }
  }
}

// Two phases are over before anybody has looked.
template <bool LOOKS>
__global__ void looks_late() {
  if (threadIdx.x == 0) mbarrier_init(smem_base(), 32);
  __syncthreads();
  if (threadIdx.x < 64) mbarrier_arrive(smem_base());  // @unseen
  __syncthreads();
  if (LOOKS && threadIdx.x == 70) mbarrier_wait_parity(smem_base(), 1);  // @too late
}

bool has(const Device& device, ReportKind kind) {
  for (const Report& report : device.reports()) {
    if (report.kind == kind) return true;
  }
  return false;
}

constexpr uint64_t SEEDS = 20;

}  // namespace

TEST_CASE("threads take turns, or run in an order that the seed alone decides", "[emulator][schedule]") {
  std::set<std::vector<uint32_t>> orders, lanes;
  for (uint64_t schedule = 0; schedule <= SEEDS; ++schedule) {
    std::vector<uint32_t> seen[2];
    for (std::vector<uint32_t>& run : seen) {
      uint32_t count[2] = {};
      run.resize(WARPS + 32);
      run_in_order(schedule, true, notes_order, 0, count, run.data(), run.data() + WARPS);
      CHECK(count[0] == WARPS);
      CHECK(count[1] == 32);
    }
    CHECK(seen[0] == seen[1]);
    if (schedule == 0) {
      for (uint32_t i = 0; i < WARPS; ++i) CHECK(seen[0][i] == i);
    }
    orders.emplace(seen[0].begin(), seen[0].begin() + WARPS);
    lanes.emplace(seen[0].begin() + WARPS, seen[0].end());
  }
  CHECK(orders.size() > 8);
  CHECK(lanes.size() > 4);
}

TEST_CASE("what depends on who comes first shows in another order", "[emulator][schedule]") {
  int wrong = 0, stuck = 0;
  for (uint64_t schedule = 0; schedule <= SEEDS; ++schedule) {
    uint32_t box = 0, out[THREADS] = {};
    check_silent(run_in_order(schedule, true, handover, 0, &box, out));
    const bool all = std::count(std::begin(out), std::end(out), 7) == THREADS;
    const Device twos = run_in_order(schedule, true, three_by_twos, 0);
    if (schedule == 0) {
      CHECK(all);
      CHECK_FALSE(twos.failed());
    }
    CHECK(has(twos, ReportKind::barrier_misuse));
    wrong += !all;
    stuck += has(twos, ReportKind::deadlock);
  }
  CHECK(wrong > 5);
  CHECK(stuck > 2);
}

TEST_CASE("a wait that comes late finds the barrier two phases on", "[emulator][schedule][mbarrier]") {
  constexpr uint32_t SMEM_BYTES = 32;
  uint32_t out[9 * THREADS] = {};
  SECTION("told in the order in which it does not") {
    const Device device = run_in_order(0, true, takes_turns, SMEM_BYTES, out);
    check_only(device, ReportKind::barrier_misuse, {MARKED("news"), MARKED("late")},
               Contains("it completes phase 1, and nothing says that thread"));
    CHECK_FALSE(device.failed());
  }
  SECTION("and waits for ever in another") {
    int stuck = 0;
    check_silent(run_in_order(0, false, takes_turns, SMEM_BYTES, out));
    for (uint64_t schedule = 1; schedule <= SEEDS; ++schedule)
      stuck += has(run_in_order(schedule, false, takes_turns, SMEM_BYTES, out), ReportKind::deadlock);
    CHECK(stuck > 2);
  }
  SECTION("unless the phase waits for it") {
    const Device in_order = run_in_order(0, true, takes_part, SMEM_BYTES, out);
    for (uint64_t schedule = 0; schedule <= SEEDS; ++schedule) {
      const Device device = run_in_order(schedule, true, takes_part, SMEM_BYTES, out);
      check_silent(device);
      CHECK(device.counters() == in_order.counters());
      for (uint32_t i = 0; i < 9 * THREADS; ++i) CHECK(out[i] == (i % THREADS < 32 ? 0 : i / THREADS));
    }
  }
  SECTION("two phases that nobody has waited for are one too many") {
    check_only(run_in_order(0, true, looks_late<true>, SMEM_BYTES), ReportKind::barrier_misuse,
               {MARKED("too late"), MARKED("unseen")}, Contains("two phases or more have been completed"));
    check_silent(run_in_order(0, true, looks_late<false>, SMEM_BYTES));
  }
}
