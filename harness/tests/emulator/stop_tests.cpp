// Kernels that do not end by themselves, kernels that reach past the emulator, and launches of a part of the grid.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <numeric>
#include <thread>

#include "harness/tests/emulator/emulator_test.hpp"

using namespace emulator_test;

namespace {

Device run_with(const Options& options, void (*kernel)(uint32_t), uint32_t threads, uint32_t argument) {
  Device device(options);
  launch(device, kernel, dim3(1), dim3(threads), 4096, argument);
  return device;
}

// ---- the number of steps --------------------------------------------------------------------------------------------

// Thread 33 executes `count` instructions of its own, the others wait for it.
__global__ void one_thread_stores(uint32_t count) {
  if (threadIdx.x == 33) {
    for (uint32_t i = 0; i < count; ++i) {
      st_shared_b32(smem_base(), i);  // @loop begins
      if (i == 0) st_shared_b32(smem_base() + 4, i);
      st_shared_b32(smem_base() + 8, i);  // @loop ends
    }
  }
  __syncthreads();  // @the others
}

__global__ void all_multiply(uint32_t count) {
  float c[4] = {};
  const uint32_t a[4] = {};
  for (uint32_t i = 0; i < count; ++i) mma_m16n8k16(c, a, 0, 0);  // @products
}

__global__ void all_meet(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) __syncthreads();  // @meetings
}

volatile uint32_t sink = 0;
__global__ void goes_round_without_an_instruction(uint32_t thread) {
  st_shared_b32(smem_base() + threadIdx.x * 4, 0);
  __syncthreads();                                // @before the round
  while (threadIdx.x == thread) sink = sink + 1;  // @the round
  __syncthreads();
}

}  // namespace

TEST_CASE("a thread that executes more instructions than it may ends the launch", "[emulator][stop]") {
  SECTION("not one fewer") {
    check_silent(run_with({.threads = 1, .max_steps = 2002}, one_thread_stores, 64, 1000));
    const Device device = run_with({.threads = 1, .max_steps = 2001}, one_thread_stores, 64, 1000);
    check_only(device, ReportKind::endless_loop);
  }
  SECTION("the report names the thread, its loop, and where the others are") {
    const Device device = run_with({.threads = 1, .max_steps = 100000}, one_thread_stores, 64, 0xffffffff);
    const Report report = check_only(device, ReportKind::endless_loop);
    CHECK(emulator::is_fatal(report.kind));
    CHECK(device.failed());
    const auto begins = MARKED("loop begins"), ends = MARKED("loop ends");
    REQUIRE(report.where.size() == 3);
    CHECK((report.where[0] == begins || report.where[0] == ends));
    CHECK(report.where[1] == begins);
    CHECK(report.where[2] == ends);
    CHECK_THAT(report.message,
               StartsWith("endless loop: thread 33 (warp 1) has executed more than 100000 instructions") &&
                   Contains("it goes round in " + to_string(begins) + " to " + std::to_string(ends.line)) &&
                   Contains("__syncthreads at " + to_string(MARKED("the others")) + ": threads 0-32, 34-63"));
  }
  SECTION("instructions of a warp count once for each thread") {
    check_silent(run_with({.threads = 1, .max_steps = 1000}, all_multiply, 32, 1000));
    const Device device = run_with({.threads = 1, .max_steps = 1000}, all_multiply, 32, 1001);
    CHECK(only_report(device).where == std::vector{MARKED("products"), MARKED("products")});
    check_silent(run_with({.threads = 1, .max_steps = 1000}, all_meet, 64, 1000));
    CHECK(only_report(run_with({.threads = 1, .max_steps = 1000}, all_meet, 64, 1001)).kind ==
          ReportKind::endless_loop);
  }
  SECTION("0 is no bound") {
    check_silent(run_with({.threads = 1}, all_meet, 64, 5000));
  }
}

// ---- from outside ---------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> stop;

Device stopped_soon(void (*kernel)(uint32_t), uint32_t argument) {
  stop = false;
  const std::future<void> timer = std::async(std::launch::async, [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
  });
  Device device({.threads = 2, .stop = &stop});
  launch(device, kernel, dim3(8), dim3(64), 4096, argument);
  for (const Report& report : device.reports()) UNSCOPED_INFO(report.message);
  CHECK(device.reports().empty());
  CHECK(device.stopped());
  CHECK_FALSE(device.failed());
  return device;
}

}  // namespace

TEST_CASE("a launch can be stopped from outside", "[emulator][stop]") {
  SECTION("in a loop of one thread") {
    stopped_soon(one_thread_stores, 0xffffffff);
  }
  SECTION("in a loop of warps") {
    stopped_soon(all_multiply, 0xffffffff);
  }
  SECTION("in a loop of barriers") {
    stopped_soon(all_meet, 0xffffffff);
  }
  SECTION("a device does nothing more until its reset") {
    Device device = stopped_soon(all_meet, 0xffffffff);
    stop = false;
    const uint64_t before = device.counters().barriers;
    launch(device, all_meet, dim3(1), dim3(64), 4096, 7);
    CHECK(device.counters().barriers == before);
    device.reset();
    CHECK_FALSE(device.stopped());
    launch(device, all_meet, dim3(1), dim3(64), 4096, 7);
    CHECK(device.counters().barriers == 7);
  }
}

// ---- part of a grid -------------------------------------------------------------------------------------------------

namespace {

__global__ void mark(uint32_t* ran) {
  st_global_b32(ran + blockIdx.y * gridDim.x + blockIdx.x, 1);
}

std::vector<uint32_t> blocks_run(dim3 grid, const Options& options) {
  std::vector<uint32_t> ran(grid.x * grid.y);
  Device device(options);
  launch(device, mark, grid, dim3(1), 0, ran.data());
  check_silent(device);
  return ran;
}

}  // namespace

TEST_CASE("the first and the last slice of a grid, and one between them", "[emulator][stop]") {
  using Blocks = std::vector<uint32_t>;
  const auto run = [](dim3 grid, uint64_t slices, uint64_t between = 0, uint64_t interleaved = 0) {
    return blocks_run(grid, {.threads = 2, .slices = slices, .between = between, .interleaved = interleaved});
  };
  CHECK(run(dim3(2, 4), 0) == Blocks(8, 1));
  CHECK(run(dim3(2, 4), 4) == Blocks{1, 1, 0, 0, 0, 0, 1, 1});
  CHECK(run(dim3(2, 4), 8) == Blocks{1, 0, 0, 0, 0, 0, 0, 1});
  CHECK(run(dim3(2, 4), 2) == Blocks(8, 1));
  CHECK(run(dim3(2, 4), 1) == Blocks(8, 1));
  CHECK(run(dim3(2, 4), 3) == Blocks{1, 1, 1, 0, 0, 1, 1, 1});  // of 2 2/3 blocks
  CHECK(run(dim3(2, 4), 5, 2) == Blocks{1, 1, 0, 1, 1, 0, 1, 1});
  CHECK(run(dim3(2, 4), 99) == Blocks{1, 0, 0, 0, 0, 0, 0, 1});  // one block each
  CHECK(run(dim3(1, 1), 99, 5) == Blocks{1});
  CHECK(run(dim3(2, 4), 4, 2) == Blocks{1, 1, 0, 0, 1, 1, 1, 1});
  CHECK(run(dim3(2, 4), 4, 0, 1) == Blocks{1, 1, 0, 1, 1, 0, 1, 1});
  CHECK(run(dim3(2, 4), 8, 3, 1) == Blocks{1, 0, 0, 1, 0, 0, 0, 1});
  CHECK(blocks_run(dim3(2, 4), {.slices = 4, .whole_up_to = 8}) == Blocks(8, 1));
  CHECK(blocks_run(dim3(2, 4), {.slices = 4, .whole_up_to = 7}) == Blocks{1, 1, 0, 0, 0, 0, 1, 1});
  CHECK(blocks_run(dim3(2, 4), {.slices = 4, .from = 2}) == Blocks{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(blocks_run(dim3(2, 4), {.slices = 4, .from = 1, .interleaved = 1}) == Blocks{0, 1, 1, 1, 0, 1, 1, 1});
  // Two sequences of two heads each, a head's blocks two apart; slice 0 is the first head, slice 3 the last.
  CHECK(run(dim3(2, 4), 4, 0, 2) == Blocks{1, 1, 1, 0, 0, 1, 1, 1});
  for (const uint64_t between : {0, 3, 4, 7}) {  // modulo 4 it is the first one, or the last
    CHECK(run(dim3(2, 4), 4, between) == Blocks{1, 1, 0, 0, 0, 0, 1, 1});
  }
}

TEST_CASE("some clusters at either end of a grid, and between them", "[emulator][stop]") {
  using Blocks = std::vector<uint32_t>;
  CHECK(blocks_run(dim3(7, 1), {.ends = 1}) == Blocks{1, 0, 0, 0, 0, 0, 1});
  CHECK(blocks_run(dim3(7, 1), {.ends = 3}) == Blocks{1, 1, 1, 0, 1, 1, 1});
  CHECK(blocks_run(dim3(7, 1), {.ends = 4}) == Blocks(7, 1));
  CHECK(blocks_run(dim3(7, 1), {.between = 3, .ends = 1}) == Blocks{1, 0, 0, 0, 1, 0, 1});
  CHECK(blocks_run(dim3(7, 1), {.between = 5, .ends = 1}) == Blocks{1, 1, 0, 0, 0, 0, 1});  // of five places
  CHECK(blocks_run(dim3(7, 1), {.between = 1, .ends = 2}) == Blocks{1, 1, 0, 1, 1, 1, 1});
  CHECK(blocks_run(dim3(3, 1), {.between = 9, .ends = 1}) == Blocks(3, 1));
  CHECK(blocks_run(dim3(5, 1), {.between = 9, .ends = 2}) == Blocks{1, 1, 0, 1, 1});  // no room
  CHECK(blocks_run(dim3(1, 1), {.ends = 1}) == Blocks{1});
  CHECK(blocks_run(dim3(8, 1), {.from = 1, .ends = 1}) == Blocks{0, 0, 0, 0, 1, 0, 0, 1});
  CHECK(blocks_run(dim3(8, 1), {.from = 1, .between = 7, .ends = 1}) ==
        Blocks{0, 0, 0, 1, 1, 0, 0, 1});  // of four places
  CHECK(blocks_run(dim3(8, 1), {.from = 1, .between = 2, .ends = 2}) == Blocks{0, 0, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("a kernel is told how many SMs there are, and as many as it likes where only the ends of a grid run",
          "[emulator][stop]") {
  CHECK(multiprocessors(Device()) == emulator::MULTIPROCESSORS);
  CHECK(multiprocessors(Device({.multiprocessors = 6})) == 6);
  CHECK(multiprocessors(Device({.multiprocessors = 6, .slices = 2})) == 6);
  CHECK(multiprocessors(Device({.multiprocessors = 6, .ends = 2})) == emulator::MANY_MULTIPROCESSORS);
}

// ---- plain pointers -------------------------------------------------------------------------------------------------

#ifndef __SANITIZE_ADDRESS__  // which takes the signals itself

namespace {

// `pages` pages that a kernel gets the address of, and the same memory again for the emulator.
class Mirrored {
 public:
  explicit Mirrored(size_t bytes, int protection) : bytes_(bytes), file_(memfd_create("mirrored", MFD_CLOEXEC)) {
    REQUIRE(ftruncate(file_, static_cast<off_t>(bytes)) == 0);
    // A page of nobody's before and after.
    reserved_ = static_cast<std::byte*>(map(nullptr, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    begin_ = map(reserved_ + PAGE, bytes, protection, MAP_SHARED | MAP_FIXED, file_);
    shadow_ = map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_);
  }
  ~Mirrored() {
    munmap(reserved_, bytes_ + 2 * PAGE);
    munmap(shadow_, bytes_);
    close(file_);
  }
  Mirrored(const Mirrored&) = delete;

  static constexpr size_t PAGE = 4096;
  uint32_t* begin() { return static_cast<uint32_t*>(begin_); }
  uint32_t* shadow() { return static_cast<uint32_t*>(shadow_); }

 private:
  static void* map(void* at, size_t bytes, int protection, int flags, int file) {
    void* const memory = mmap(at, bytes, protection, flags, file, 0);
    REQUIRE(memory != MAP_FAILED);
    return memory;
  }
  size_t bytes_;
  int file_;
  std::byte* reserved_;
  void *begin_, *shadow_;
};

__global__ void plain_read(const uint32_t* K, uint32_t thread, int32_t index, uint32_t* out) {
  st_shared_b32(smem_base() + threadIdx.x * 4, 0);
  if (threadIdx.x == thread) {
    ld_global_b32(out);               // @before the plain read
    const uint32_t value = K[index];  // @plain read
    st_global_b32(out, value);
  }
  __syncthreads();
}

__global__ void plain_write(uint32_t* K, uint32_t thread, int32_t index) {
  if (threadIdx.x == thread) K[index] = 1;  // @plain write
  __syncthreads();
}

__global__ void through_the_emulator(const uint32_t* in, uint32_t* out) {
  const uint32_t here = smem_base() + threadIdx.x * 16;
  cp_async_16(here, in + threadIdx.x * 4);
  cp_async_commit();
  cp_async_wait<0>();
  st_global_v4(out + threadIdx.x * 4, ld_shared_v4(here));
  st_global_b32(out, ld_global_b32(in) + 1);
}

#ifdef __x86_64__
__global__ void divides_the_smallest(uint32_t by) {
  const int32_t quotient = INT32_MIN / static_cast<int32_t>(threadIdx.x + by);  // @quotient
  st_shared_b32(smem_base() + 64 + threadIdx.x * 4, static_cast<uint32_t>(quotient));
}
#endif

}  // namespace

TEST_CASE("a kernel's own pointer ends the launch where pages are protected", "[emulator][stop]") {
  constexpr size_t BYTES = 2 * Mirrored::PAGE;
  Mirrored K(BYTES, PROT_NONE), O(BYTES, PROT_NONE);
  K.shadow()[3] = 7;
  Device device({.threads = 2});
  device.register_buffer(K.begin(), BYTES, "K", emulator::Access::read_only, K.shadow());
  device.register_buffer(O.begin(), BYTES, "O", emulator::Access::read_write, O.shadow());
  const auto report_of = [&](auto kernel, auto... arguments) {
    launch(device, kernel, dim3(1), dim3(64), 4096, arguments...);
    Report report = only_report(device);
    CHECK(device.failed());
    CHECK(report.kind == ReportKind::plain_access);
    return report;
  };
  SECTION("a read inside the buffer") {
    const Report report = report_of(plain_read, K.begin(), 37, 3, O.begin());
    CHECK(report.where == std::vector{MARKED("plain read")});
    CHECK(report.buffer == "K");
    CHECK_THAT(report.message, StartsWith("thread 37 (warp 1) has ") &&
                                   Contains("K+12 with a plain pointer, at " + to_string(MARKED("plain read"))));
#ifdef __x86_64__
    CHECK_THAT(report.message, Contains("has read K+12"));
#endif
  }
  SECTION("a read after its end, on another page") {
    CHECK_THAT(report_of(plain_read, K.begin(), 0, BYTES / 4, O.begin()).message,
               Contains("K+8192, 0 bytes after its end"));
  }
  SECTION("a read before its start") {
    CHECK_THAT(report_of(plain_read, K.begin(), 0, -1, O.begin()).message, Contains("4 bytes before the start of K"));
  }
  SECTION("a null pointer") {
    const Report report = report_of(plain_write, nullptr, 1, 0);
    CHECK_THAT(report.message, Contains("thread 1 (warp 0)") && Contains("address 0x0"));
    CHECK(report.buffer.empty());
  }
  SECTION("a write") {
    const Report report = report_of(plain_write, O.begin(), 0, 1);
    CHECK(report.where == std::vector{MARKED("plain write")});
#ifdef __x86_64__
    CHECK_THAT(report.message, Contains("has written O+4"));
#endif
    CHECK(O.shadow()[1] == 0);
  }
  SECTION("instructions read and write at the shadow") {
    std::iota(K.shadow(), K.shadow() + 256, 100u);
    launch(device, through_the_emulator, dim3(1), dim3(64), 4096, K.begin(), O.begin());
    check_silent(device);
    CHECK(O.shadow()[0] == 101);
    CHECK(std::equal(O.shadow() + 1, O.shadow() + 256, K.shadow() + 1));
  }
  SECTION("the device goes on after its reset, and so does a second one") {
    report_of(plain_write, O.begin(), 0, 1);
    device.reset();
    report_of(plain_write, O.begin(), 0, 1);
    check_silent(run_with({.threads = 1}, all_meet, 64, 3));
  }
}

#ifdef __x86_64__
TEST_CASE("a quotient that is no integer ends the launch where the processor stops at it", "[emulator][stop]") {
  check_silent(run_with({.threads = 1}, divides_the_smallest, 32, 1));
  const Device device = run_with({.threads = 1}, divides_the_smallest, 32, 0u - 4);
  check_only(device, ReportKind::kernel_exception, {MARKED("quotient")},
             StartsWith("thread 3 (warp 0) has divided integers without a quotient, at"));
}
#endif

TEST_CASE("a loop without an instruction ends the launch", "[emulator][stop]") {
  SECTION("by the clock") {
    const Device device = run_with({.threads = 1, .max_steps = 1000}, goes_round_without_an_instruction, 64, 40);
    const Report report = check_only(device, ReportKind::endless_loop);
    // The clock strikes at any instruction of the loop, and the compiler counts some of them to the line before.
    REQUIRE(report.where.size() == 1);
    CHECK((report.where[0] == MARKED("the round") || report.where[0] == MARKED("before the round")));
    CHECK_THAT(report.message, StartsWith("endless loop: thread 40 (warp 1) of block (0, 0, 0) has executed no"));
  }
  SECTION("from outside") {
    stopped_soon(goes_round_without_an_instruction, 0);
  }
}

TEST_CASE("signals are back with their owner after a launch", "[emulator][stop]") {
  struct sigaction own = {}, before, after;
  own.sa_handler = [](int) {};
  sigaction(SIGFPE, &own, &before);
  check_silent(run_with({.threads = 2, .max_steps = 1000}, all_meet, 64, 3));
  sigaction(SIGFPE, &before, &after);
  CHECK(after.sa_handler == own.sa_handler);
}

#endif
